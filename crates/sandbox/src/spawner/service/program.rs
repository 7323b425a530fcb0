//! Starting a program: it is made, set up and executed before the server's next request is read, in
//! memory that it borrows from the spawner, so the two need no protocol.

use std::os::fd::AsFd;
use std::time::Instant;

use snowmelt_kernel::clone::Cloned;
use snowmelt_kernel::packet;

use super::Service;
use super::record::{ProcessOrigin, SandboxRecord, StartAnswer, StartPhase};
use super::spec_checks::{check, refusal};
use crate::cgroup::SandboxGroup;
use crate::fault::{StepFault, doing};
use crate::message::StartFailure;
use crate::root::ProgramNamespaces;
use crate::spawner::child::notifier::{NotifierListener, NotifierSetup};
use crate::spawner::child::scratch::Scratch;
use crate::spawner::child::{self, Child, oom, process_limit};
use crate::spawner::ids::{Holder, IdSlot};
use crate::spec::{CHANNEL_FD, SandboxSpec, SyscallPolicy};

impl Service {
    /// Starts a program and answers the server. If there is an `entry`, it is in the table of the
    /// program's network when the program runs.
    pub(super) fn start(&mut self, sequence: u64, mut spec: SandboxSpec, entry: Option<&[u8]>) {
        spec.env.push(("SNOWMELT_CHANNEL_FD".to_owned(), CHANNEL_FD.to_string()));
        if let Err(failure) = self.begin(sequence, &spec, entry) {
            self.refuse(sequence, failure);
        }
    }

    fn begin(
        &mut self,
        sequence: u64,
        spec: &SandboxSpec,
        entry: Option<&[u8]>,
    ) -> Result<(), StartFailure> {
        check(spec)?;
        if spec.policy == SyscallPolicy::Zygote {
            return Err(refusal("the policy of zygotes is only for zygotes"));
        }
        let token = self.new_token(&spec.id)?;
        let slot = self.slots.take(Holder::Program);
        let slot = slot.ok_or_else(|| refusal("8192 programs are running already"))?;
        let started_at = Instant::now();
        let group = self.group_for(&spec.limits, &slot)?;
        // Before the program exists: it may use its addresses with its first instruction.
        let entered = entry.map_or(Ok(()), |entry| self.enter(spec.network, &group, entry));
        let made = entered.and_then(|()| self.make(sequence, spec, &group, &slot));
        let (process, answer) = match made {
            Ok(made) => made,
            Err(fault) => {
                entry.inspect(|_| self.leave(spec.network, &group));
                self.slots.give_back(&slot);
                self.groups.give_back(group);
                return Err(fault.into());
            }
        };
        let pid = process.pid;
        let pidfd = Some(process.pidfd);
        let phase = StartPhase::Running;
        let id = spec.id.clone();
        let origin = ProcessOrigin::Cloned { slot };
        let zygote = None;
        self.insert(
            token,
            SandboxRecord { id, group, started_at, pid, pidfd, phase, origin, zygote },
        );
        // A program that has ended already is found by its pidfd, which is readable then.
        self.watch_all(token);
        self.send_started(token, &answer, None);
        Ok(())
    }

    fn make(
        &mut self,
        sequence: u64,
        spec: &SandboxSpec,
        group: &SandboxGroup,
        slot: &IdSlot,
    ) -> Result<(Cloned, StartAnswer), StepFault> {
        let scratch = Scratch::make(spec.limits.scratch, slot.first_id, self.home.server_user);
        let scratch = doing("make the scratch", scratch)?;
        let target =
            self.groups.backend().clone_target(&group.path).map_err(StepFault::of_group)?;
        let program = child::prepare(spec)?;
        let notifier =
            NotifierSetup::of(&self.namespaces, spec.network.job(), spec.limits.open_files);
        let notifier = doing("set up the address notifier", notifier)?;
        let (sync, theirs) = match &notifier {
            Some(_) => Some(doing("make a pair of sockets", packet::pair())?).unzip(),
            None => (None, None),
        };
        let child = Child {
            entry_fds: &group.entry_fds,
            scratch: &scratch.mount,
            null: &self.null,
            channel: &scratch.listener,
            log: &scratch.log_in,
            spawner: &self.pidfd,
            filter: self.programs.of(spec.policy, spec.network),
            masked: &self.masked,
            open_files: spec.limits.open_files,
            processes: process_limit::of(&spec.limits),
            working_folder: &spec.process.working_folder,
            writable: &spec.process.writable,
            huge_pages: spec.process.huge_pages,
            notifier: notifier.as_ref().zip(theirs.as_ref()),
            program: &program,
            path: &spec.command[0],
            kind: child::ChildKind::Program {
                id: slot.first_id,
                inside: (spec.process.user, spec.process.group),
                proc: self.namespaces.proc(),
                score: oom::of(spec.policy),
            },
        };
        // Written by the child, in our memory.
        let mut failed = None;
        let mut run = || {
            failed = Some(child.run());
            1
        };
        let ProgramNamespaces { mounts, empty_network } =
            self.roots.namespaces_for(&self.namespaces, &spec.root, spec.network)?;
        let network = self.namespaces.network(spec.network, empty_network);
        let network = doing("find the network", network)?;
        let cgroup = target.as_ref().map(AsFd::as_fd);
        let made = self.namespaces.vfork(mounts, network, cgroup, &mut self.stack, &mut run);
        let process = doing("clone a process", made)?;
        let mut listener = NotifierListener::of(notifier.as_ref());
        // Without waiting: what the child sent before its exec is in the socket by now.
        sync.iter().for_each(|sync| listener.receive(sync));
        // The vfork has returned: the child has executed its program or ended, so `failed` is
        // final.
        if let Some(fault) = failed.or_else(|| listener.fault()) {
            child::kill_and_reap(&process);
            return Err(fault);
        }
        let channel = scratch.channel;
        let log = scratch.log_out;
        Ok((process, StartAnswer { sequence, channel, log, listener }))
    }
}
