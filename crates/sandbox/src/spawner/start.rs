//! Starting a zygote: the privileged steps, up to the child's "go".

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::time::Instant;

use rustix::process::{Signal, pidfd_send_signal};
use snowmelt_kernel::clone::Cloned;
use snowmelt_kernel::namespace::flags;
use snowmelt_kernel::{packet, process};

use super::child::{self, Child};
use super::ids::{Holder, Slot};
use super::notifier::NotifierListener;
use super::oom;
use super::program::prepare;
use super::record::{Answer, Origin, Phase, SandboxRecord, Starting, Token};
use super::scratch::Scratch;
use super::service::{Service, Watched};
use super::sync;
use super::zygote::{self, ZygoteState};
use crate::Error;
use crate::cgroup::Group;
use crate::message::Failure;
use crate::root::{Fault, doing};
use crate::spec::{
    Limits, MAX_WRITABLE, Network, Policy, ProcessSettings, SandboxSpec, ZygoteSpec,
    may_be_writable,
};
use crate::weaken::{self, Defence, is_disabled};

/// The environment variables that every zygote gets unless its spec sets them. Without most of
/// these, libraries start threads when they are imported, and a process with threads cannot be
/// forked safely; `JE_ARROW_MALLOC_CONF` is for the allocator of pyarrow. With `LD_BIND_NOW`
/// functions are bound in the zygote and not in each child.
const FOR_ZYGOTES: [(&str, &str); 8] = [
    ("LD_BIND_NOW", "1"),
    ("OPENBLAS_NUM_THREADS", "1"),
    ("OMP_NUM_THREADS", "1"),
    ("MKL_NUM_THREADS", "1"),
    ("NUMEXPR_NUM_THREADS", "1"),
    ("VECLIB_MAXIMUM_THREADS", "1"),
    ("BLIS_NUM_THREADS", "1"),
    ("JE_ARROW_MALLOC_CONF", "background_thread:false"),
];

/// The new namespaces of each sandbox.
pub const NAMESPACES: u64 = flags::USER | flags::PID | flags::MOUNT;

impl Service {
    /// Starts a zygote; the server is answered when its imports are done.
    pub(super) fn start_zygote(&mut self, sequence: u64, spec: ZygoteSpec) {
        let command =
            [&*spec.python.to_string_lossy(), "-I", "-S", "-B", "/run/snowmelt/zygote.py"];
        let program = SandboxSpec {
            id: spec.id.clone(),
            root: spec.root.clone(),
            command: command.map(str::to_owned).to_vec(),
            env: environment(&spec.env),
            limits: spec.limits,
            network: Network::None,
            policy: Policy::Zygote,
            process: ProcessSettings::default(),
        };
        let control = zygote::configure(&spec);
        if let Err(failure) = self.begin_zygote(sequence, &program, control) {
            self.refuse(sequence, failure);
        }
    }

    fn begin_zygote(
        &mut self,
        sequence: u64,
        spec: &SandboxSpec,
        control: Control,
    ) -> Result<(), Failure> {
        check(spec)?;
        let token = self.new_token(&spec.id)?;
        let slot = self.slots.take(Holder::Zygote);
        let slot = slot.ok_or(Failure::ZygoteSlots)?;
        let started_at = Instant::now();
        let group = self.group_for(&spec.limits, &slot)?;
        let made = match self.make_zygote(sequence, spec, control, &group, &slot) {
            Ok(made) => made,
            Err(fault) => {
                self.slots.give_back(&slot);
                self.groups.give_back(group);
                return Err(fault.into());
            }
        };
        let state = ZygoteState::new(slot.first_id, slot.count, 0, made.control);
        let (zygote, origin) = (Some(Box::new(state)), Origin::Cloned { slot });
        let (answer, sync) = (made.answer, made.sync);
        let phase =
            Phase::Starting(Starting { answer, sync, mounts: None, fault: None, deadline: None });
        let (id, pid, pidfd) = (spec.id.clone(), made.process.pid, Some(made.process.pidfd));
        self.insert(
            token,
            SandboxRecord { id, group, started_at, pid, pidfd, phase, origin, zygote },
        );
        self.watch_all(token);
        Ok(())
    }

    fn make_zygote(
        &mut self,
        sequence: u64,
        program: &SandboxSpec,
        control: Control,
        group: &Group,
        slot: &Slot,
    ) -> Result<Made, Fault> {
        let root = self.roots.copy(&self.namespaces, &program.root, Network::None)?;
        let scratch = Scratch::make(program.limits.scratch, slot.first_id);
        let scratch = doing("make the scratch", scratch)?;
        let (sync, theirs) = doing("make a pair of sockets", packet::pair())?;
        let (control, channel) = doing("configure the zygote", control)?;
        let executed = prepare(program)?;
        let child = Child {
            entry_fds: &group.entry_fds,
            scratch: &scratch.mount,
            null: &self.null,
            channel: &channel,
            log: &scratch.log_in,
            spawner: &self.pidfd,
            filter: self.programs.of(Policy::Zygote, Network::None),
            masked: &self.masked,
            open_files: program.limits.open_files,
            working_folder: &program.process.working_folder,
            writable: &[],
            huge_pages: program.process.huge_pages,
            program: &executed,
            path: &program.command[0],
            notifier: None,
            kind: child::Kind::Zygote { root: &root, sync: &theirs },
        };
        let target = self.groups.backend().clone_target(&group.path).map_err(group_fault)?;
        let cgroup = target.as_ref().map(AsFd::as_fd);
        let run = || {
            let fault = child.run();
            // If the spawner has ended, the message has no receiver.
            drop(sync::send_fault(&theirs, &fault));
            1
        };
        // Shared by its children.
        let own = doing("make an empty network namespace", self.namespaces.empty_network())?;
        let network =
            doing("find the network", self.namespaces.network(Network::None, own.as_fd()))?;
        let clone = || self.namespaces.clone(NAMESPACES, network, cgroup, run);
        let cloned = oom::inherited(self.namespaces.proc(), oom::ZYGOTE, || {
            if is_disabled(Defence::OwnCounts) {
                return clone();
            }
            process::as_effective_user(slot.first_id, clone)
        });
        let process = doing("clone a process", cloned)?;
        if let Err(fault) = release(&process, &sync, slot) {
            kill_and_reap(&process);
            return Err(fault);
        }
        let (channel, log, listener) = (scratch.channel, scratch.log_out, NotifierListener::Unused);
        let answer = Answer { sequence, channel, log, listener };
        Ok(Made { process, answer, sync, control })
    }

    /// Takes a control group for the owner of this slot. If that fails, the slot is returned.
    pub(super) fn group_for(&mut self, limits: &Limits, slot: &Slot) -> Result<Group, Failure> {
        let taken = self.groups.take(limits);
        taken.map_err(|error| {
            self.slots.give_back(slot);
            group_fault(error).into()
        })
    }

    /// Registers all descriptors of a new record except the zygote's control socket: that one is
    /// read once the zygote has closed its socket pair, however early the zygote sends.
    pub(super) fn watch_all(&mut self, token: Token) {
        let Some(record) = self.records.get(&token) else { return };
        let process = record.pidfd.as_ref().map(|fd| (fd.as_fd(), Watched::Process));
        let sync = match &record.phase {
            Phase::Starting(starting) => Some((starting.sync.as_fd(), Watched::Sync)),
            _ => None,
        };
        for (fd, about) in [process, sync].into_iter().flatten() {
            self.watch_or_complain(fd, about, token);
        }
    }

    pub(super) fn watch_or_complain(&self, fd: BorrowedFd<'_>, about: Watched, token: Token) {
        // Fails only when the kernel has no memory for it; the end of the sandbox is then noticed
        // with the end of the spawner at the latest.
        if let Err(error) = self.watch(fd, about, token) {
            eprintln!("snowmelt spawner: cannot watch sandbox {token}: {error}");
        }
    }
}

/// The two ends of a zygote's control socket.
type Control = io::Result<(OwnedFd, OwnedFd)>;

/// The resources of a zygote that has been released.
struct Made {
    process: Cloned,
    answer: Answer,
    sync: OwnedFd,
    control: OwnedFd,
}

/// Writes the child's id maps, and lets it continue.
fn release(process: &Cloned, sync: &OwnedFd, slot: &Slot) -> Result<(), Fault> {
    let map = format!("0 {} {}", slot.first_id, slot.count);
    for file in ["uid_map", "gid_map"] {
        let path = format!("/proc/{}/{file}", process.pid);
        doing(format!("write {file}"), fs::write(path, &map))?;
    }
    doing("release the child", sync::send_go(sync))
}

/// Kills and reaps a child that could not be released.
pub(super) fn kill_and_reap(process: &Cloned) {
    // If it has ended, the wait returns immediately.
    let _ = pidfd_send_signal(&process.pidfd, Signal::KILL);
    let id = rustix::process::WaitId::PidFd(process.pidfd.as_fd());
    let _ = rustix::process::waitid(id, rustix::process::WaitIdOptions::EXITED);
}

pub(super) fn refusal(reason: impl Into<String>) -> Failure {
    Failure::Spec { reason: reason.into() }
}

/// Converts an error of the control groups into a step.
pub(super) fn group_fault(error: Error) -> Fault {
    match error {
        Error::Cgroup { path, source } => {
            Fault { step: format!("set up the control group {}", path.display()), source }
        }
        other => Fault {
            step: "set up the control group".to_owned(),
            source: io::Error::other(other.to_string()),
        },
    }
}

pub(super) fn check(spec: &SandboxSpec) -> Result<(), Failure> {
    let absolute = spec.command.first().is_some_and(|program| program.starts_with('/'));
    if !absolute {
        return Err(refusal("its program is not an absolute path"));
    }
    if spec.command.iter().any(|part| part.contains('\0')) {
        return Err(refusal("an argument contains a NUL character"));
    }
    check_process(&spec.process)?;
    check_env(&spec.env)
}

fn check_process(process: &ProcessSettings) -> Result<(), Failure> {
    let ProcessSettings { user, group, working_folder, writable, huge_pages: _ } = process;
    // The kernel takes the largest id for "unchanged".
    if [user, group].iter().any(|id| matches!(**id, 0 | u32::MAX)) {
        return Err(refusal("its user or group is root or an invalid id"));
    }
    if !working_folder.is_absolute() || working_folder.as_os_str().as_bytes().contains(&0) {
        return Err(refusal("its working folder is not an absolute path"));
    }
    if writable.len() > MAX_WRITABLE || !writable.iter().all(|folder| may_be_writable(folder)) {
        return Err(refusal("it has too many writable folders, or one that cannot be writable"));
    }
    Ok(())
}

pub(super) fn check_env(env: &[(String, String)]) -> Result<(), Failure> {
    let bad = env.iter().find(|(name, value)| {
        name.is_empty() || name.contains(['=', '\0']) || value.contains('\0')
    });
    match bad {
        Some((name, _)) => Err(refusal(format!("the environment variable `{name}` is not valid"))),
        None => Ok(()),
    }
}

fn environment(env: &[(String, String)]) -> Vec<(String, String)> {
    let missing =
        FOR_ZYGOTES.iter().filter(|(name, _)| !env.iter().any(|(given, _)| given == name));
    let missing = missing.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let mut all: Vec<_> = env.iter().cloned().chain(missing).collect();
    weaken::pass_on(&mut all);
    all
}
