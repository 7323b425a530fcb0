//! What can fail in a lab, and how a user is told.

use std::io;
use std::path::PathBuf;

use snowmelt_network::netlink::Failed;
use snowmelt_types::{Code, ErrorReport, HostName, Report};

/// Everything that can fail in this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Only root makes network namespaces.
    #[error("a lab needs root: its hosts are network namespaces")]
    Root,
    /// The kernel refused a step of making or changing a lab.
    #[error("cannot {step}: {source}")]
    Step {
        /// What was being done, as a verb phrase.
        step: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel has no queueing discipline of that kind.
    #[error("this kernel cannot {what} a link: it lacks {module}")]
    Kernel {
        /// What was asked for.
        what: &'static str,
        /// What would do it.
        module: &'static str,
    },
    /// A file or folder of the lab cannot be used.
    #[error("cannot use {}: {source}", path.display())]
    Folder {
        /// Which.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// A lab of that name runs.
    #[error("a lab named `{name}` runs already")]
    Runs {
        /// Its name.
        name: HostName,
    },
    /// There is no lab of that name.
    #[error("there is no lab named `{name}`")]
    NoLab {
        /// What was asked for.
        name: HostName,
    },
    /// The lab has no host of that name.
    #[error("the lab `{lab}` has no host `{host}`")]
    NoHost {
        /// Its name.
        lab: HostName,
        /// What was asked for.
        host: String,
        /// What there is.
        hosts: Vec<String>,
    },
    /// More hosts than the lab's addresses.
    #[error("a lab has at most {most} hosts, not {asked}")]
    Hosts {
        /// The most.
        most: u32,
        /// How many there would be.
        asked: u32,
    },
    /// A host's process ended when it should run.
    #[error("the process of {host} ended")]
    Ended {
        /// Which host.
        host: String,
        /// The end of its log.
        log: Vec<String>,
        /// The whole of it.
        file: PathBuf,
    },
    /// What sandboxes left on a host cannot be removed.
    #[error("cannot remove what the sandboxes of {host} left: {source}")]
    Sweep {
        /// Which host.
        host: String,
        /// Why.
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

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        Self::Step { step: failed.step.to_owned(), source: failed.source }
    }
}

impl Report for Error {
    fn report(&self) -> ErrorReport {
        let code = match self {
            Self::Runs { .. } | Self::NoLab { .. } | Self::NoHost { .. } | Self::Hosts { .. } => {
                Code::LAB_NAME
            }
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
            Self::NoHost { hosts, .. } => report.hint(format!("it has {}", hosts.join(", "))),
            Self::Ended { log, file, .. } => {
                let hint = format!("the whole log is {}", file.display());
                report.excerpt(log.iter().cloned()).hint(hint)
            }
            Self::Sweep { .. } | Self::Folder { .. } | Self::Hosts { .. } => report,
        }
    }
}
