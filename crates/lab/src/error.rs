//! The errors of this crate, and their reports to users.

use std::io;
use std::path::PathBuf;

use snowmelt_network::netlink::BatchFailure;
use snowmelt_types::{Code, ErrorReport, HostName, Report};

use crate::parameters::ServiceKind;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Network namespaces need root.
    #[error("a lab needs root: its hosts are network namespaces")]
    Root,
    /// The kernel refused a step of creating or changing a lab.
    #[error("cannot {step}: {source}")]
    Step {
        /// The step, as a verb phrase.
        step: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The kernel lacks a queueing discipline.
    #[error("this kernel cannot {what} a link: it lacks {module}")]
    Kernel {
        /// The effect on the link, as a verb.
        what: &'static str,
        /// The kernel module that is missing.
        module: &'static str,
    },
    /// A file or folder of the lab cannot be used.
    #[error("cannot use {}: {source}", path.display())]
    Folder {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A lab of that name is running.
    #[error("a lab named `{name}` is running already")]
    Runs {
        /// The name of the lab.
        name: HostName,
    },
    /// No lab of that name exists.
    #[error("there is no lab named `{name}`")]
    NoLab {
        /// The name.
        name: HostName,
    },
    /// The lab has no host of that name.
    #[error("the lab `{lab}` has no host `{host}`")]
    NoHost {
        /// The lab.
        lab: HostName,
        /// The requested name.
        host: String,
        /// The names of the lab's hosts.
        hosts: Vec<String>,
    },
    /// The program of a service is not installed.
    #[error("the {} of a lab needs `{}`, which cannot be found", kind.name(), program.display())]
    Program {
        /// The service.
        kind: ServiceKind,
        /// The program that was looked for.
        program: PathBuf,
    },
    /// Only hosts can have the fault.
    #[error(
        "`{name}` is not a host: it can be killed, frozen, unplugged, slow, or have a wrong clock"
    )]
    NoHostFault {
        /// The service.
        name: String,
    },
    /// The hosts have no disks of their own.
    #[error("the hosts of the lab `{lab}` have no disks of their own")]
    NoDisk {
        /// The lab.
        lab: HostName,
    },
    /// The lab would have more hosts than addresses.
    #[error("a lab has at most {most} hosts, not {asked}")]
    Hosts {
        /// The maximum.
        most: u32,
        /// The number of hosts that there would be.
        asked: u32,
    },
    /// A host's process has ended.
    #[error("the process of {host} ended")]
    Ended {
        /// The host.
        host: String,
        /// The last lines of its log.
        log: Vec<String>,
        /// The log file.
        file: PathBuf,
    },
    /// The remaining control groups and folders of a host's sandboxes cannot be removed.
    #[error("cannot clean up after the sandboxes of {host}: {source}")]
    Sweep {
        /// The host.
        host: String,
        /// The reason.
        source: Box<snowmelt_sandbox::Error>,
    },
}

impl Error {
    /// A step that the kernel refused.
    pub(crate) fn step(step: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let step = step.into();
        move |source| Self::Step { step, source }
    }

    /// A path that cannot be used.
    pub(crate) fn folder(path: &std::path::Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Folder { path, source }
    }
}

impl From<BatchFailure> for Error {
    fn from(failed: BatchFailure) -> Self {
        Self::Step { step: failed.step.to_owned(), source: failed.source }
    }
}

impl Report for Error {
    fn report(&self) -> ErrorReport {
        let code = match self {
            Self::Runs { .. }
            | Self::NoLab { .. }
            | Self::NoHost { .. }
            | Self::NoHostFault { .. }
            | Self::NoDisk { .. }
            | Self::Hosts { .. } => Code::LAB_NAME,
            _ => Code::LAB_STEP,
        };
        let report = ErrorReport::new(code, self.to_string());
        match self {
            Self::Root => report.hint("run it with sudo"),
            Self::Step { .. } => {
                report.hint("it needs network namespaces, `veth` and `bridge` of the kernel")
            }
            Self::Kernel { module, .. } => {
                report.hint(format!("load it (`modprobe {module}`), or leave the option out"))
            }
            Self::Runs { name } => report.hint(format!(
                "`snowmelt lab ls` shows it, `snowmelt lab down --name {name}` ends it"
            )),
            Self::NoLab { name } => {
                report.hint(format!("make it with `snowmelt lab up --name {name}`"))
            }
            Self::Program { kind, .. } => report.hint(format!(
                "`{}` installs it; --{}-program names another path",
                kind.installed_by(),
                kind.name()
            )),
            Self::NoDisk { .. } => report.hint("make the lab with --disk, for example --disk 2GiB"),
            Self::NoHost { hosts, .. } => report.hint(format!("it has {}", hosts.join(", "))),
            Self::Ended { log, file, .. } => {
                let hint = format!("the whole log is {}", file.display());
                report.excerpt(log.iter().cloned()).hint(hint)
            }
            Self::Sweep { .. }
            | Self::Folder { .. }
            | Self::NoHostFault { .. }
            | Self::Hosts { .. } => report,
        }
    }
}
