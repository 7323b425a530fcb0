//! Starting a zygote: the privileged steps, up to the child's "go".

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use snowmelt_kernel::clone::Cloned;
use snowmelt_kernel::{packet, process};

use super::record::{ProcessOrigin, SandboxRecord, StartAnswer, StartPhase, Starting};
use super::spec_checks::check;
use super::{EventSubject, Service};
use crate::cgroup::SandboxGroup;

use crate::disabled_defences::{self, Defence, is_disabled};
use crate::fault::{StepFault, doing};
use crate::message::StartFailure;
use crate::namespaces::NAMESPACES;
use crate::spawner::child::notifier::NotifierListener;
use crate::spawner::child::scratch::Scratch;
use crate::spawner::child::{self, Child, oom, sync};
use crate::spawner::ids::{Holder, IdSlot};
use crate::spawner::zygote::protocol::SandboxToken;
use crate::spawner::zygote::{self, ZygoteState};
use crate::spec::{Limits, Network, ProcessSettings, SandboxSpec, SyscallPolicy, ZygoteSpec};

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
            policy: SyscallPolicy::Zygote,
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
        control: ControlPair,
    ) -> Result<(), StartFailure> {
        check(spec)?;
        let token = self.new_token(&spec.id)?;
        let slot = self.slots.take(Holder::Zygote);
        // A failure of its own kind, because the caller tries another lane then.
        let slot = slot.ok_or(StartFailure::ZygoteSlots)?;
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
        let state = ZygoteState::new(slot.first_id, slot.count, slot.is_shared, 0, made.control);
        let zygote = Some(Box::new(state));
        let origin = ProcessOrigin::Cloned { slot };
        let answer = made.answer;
        let sync = made.sync;
        let phase = StartPhase::Starting(Starting {
            answer,
            sync,
            mounts: None,
            fault: None,
            deadline: None,
        });
        let id = spec.id.clone();
        let pid = made.process.pid;
        let pidfd = Some(made.process.pidfd);
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
        control: ControlPair,
        group: &SandboxGroup,
        slot: &IdSlot,
    ) -> Result<ZygoteResources, StepFault> {
        let root = self.roots.copy(&self.namespaces, &program.root, Network::None)?;
        let scratch = Scratch::make(program.limits.scratch, slot.first_id, self.home.server_user);
        let scratch = doing("make the scratch", scratch)?;
        let (sync, theirs) = doing("make a pair of sockets", packet::pair())?;
        let (control, channel) = doing("configure the zygote", control)?;
        let executed = child::prepare(program)?;
        let child = Child {
            entry_fds: &group.entry_fds,
            scratch: &scratch.mount,
            null: &self.null,
            channel: &channel,
            log: &scratch.log_in,
            spawner: &self.pidfd,
            filter: self.programs.of(SyscallPolicy::Zygote, Network::None),
            masked: &self.masked,
            open_files: program.limits.open_files,
            // Its children would be counted with it.
            processes: None,
            working_folder: &program.process.working_folder,
            writable: &[],
            huge_pages: program.process.huge_pages,
            program: &executed,
            path: &program.command[0],
            notifier: None,
            kind: child::ChildKind::Zygote {
                root: &root,
                sync: &theirs,
                shares_id: slot.is_shared,
            },
        };
        let target =
            self.groups.backend().clone_target(&group.path).map_err(StepFault::of_group)?;
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
        // The score is inherited, because the zygote could undo one that it had set itself.
        let cloned = oom::inherited(self.namespaces.proc(), oom::ZYGOTE, || {
            // Without an id of its own, it counts for the user who runs the platform.
            if is_disabled(Defence::OwnCounts) || slot.first_id == 0 {
                return clone();
            }
            process::as_effective_user(slot.first_id, clone)
        });
        let process = doing("clone a process", cloned)?;
        // It waits for "go", so it runs nothing of the tenant until its maps are written.
        if let Err(fault) = release(&process, &sync, slot) {
            child::kill_and_reap(&process);
            return Err(fault);
        }
        let channel = scratch.channel;
        let log = scratch.log_out;
        let listener = NotifierListener::Unused;
        let answer = StartAnswer { sequence, channel, log, listener };
        Ok(ZygoteResources { process, answer, sync, control })
    }

    /// Takes a control group for the owner of this slot. If that fails, the slot is returned.
    pub(super) fn group_for(
        &mut self,
        limits: &Limits,
        slot: &IdSlot,
    ) -> Result<SandboxGroup, StartFailure> {
        let taken = self.groups.take(limits);
        taken.map_err(|error| {
            self.slots.give_back(slot);
            StepFault::of_group(error).into()
        })
    }

    /// Registers all descriptors of a new record except the zygote's control socket: that one is
    /// read once the zygote has closed its socket pair, however early the zygote sends.
    pub(super) fn watch_all(&mut self, token: SandboxToken) {
        let Some(record) = self.records.get(&token) else { return };
        let process = record.pidfd.as_ref().map(|fd| (fd.as_fd(), EventSubject::Process));
        let sync = match &record.phase {
            StartPhase::Starting(starting) => Some((starting.sync.as_fd(), EventSubject::Sync)),
            _ => None,
        };
        for (fd, about) in [process, sync].into_iter().flatten() {
            self.watch_or_complain(fd, about, token);
        }
    }

    pub(super) fn watch_or_complain(
        &self,
        fd: BorrowedFd<'_>,
        about: EventSubject,
        token: SandboxToken,
    ) {
        // Fails only when the kernel has no memory for it; the end of the sandbox is then noticed
        // with the end of the spawner at the latest.
        if let Err(error) = self.watch(fd, about, token) {
            eprintln!("snowmelt spawner: cannot watch sandbox {token}: {error}");
        }
    }
}

/// The two ends of a zygote's control socket.
type ControlPair = io::Result<(OwnedFd, OwnedFd)>;

/// The resources of a zygote that has been released.
struct ZygoteResources {
    process: Cloned,
    answer: StartAnswer,
    sync: OwnedFd,
    control: OwnedFd,
}

/// Writes the child's id maps, and lets it continue.
fn release(process: &Cloned, sync: &OwnedFd, slot: &IdSlot) -> Result<(), StepFault> {
    let map = format!("0 {} {}", slot.first_id, slot.mapped());
    for file in ["uid_map", "gid_map"] {
        let path = format!("/proc/{}/{file}", process.pid);
        doing(format!("write {file}"), fs::write(path, &map))?;
    }
    doing("release the child", sync::send_go(sync))
}

fn environment(env: &[(String, String)]) -> Vec<(String, String)> {
    let missing =
        FOR_ZYGOTES.iter().filter(|(name, _)| !env.iter().any(|(given, _)| given == name));
    let missing = missing.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let mut all: Vec<_> = env.iter().cloned().chain(missing).collect();
    disabled_defences::pass_on(&mut all);
    all
}
