//! Children of zygotes: the zygote makes the process, and the spawner concurrently makes its
//! scratch, channel, control group and user ids.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::process::{Signal, pidfd_send_signal};
use snowmelt_kernel::packet;
use snowmelt_types::SandboxId;

use super::Service;
use super::record::{
    ChildPurpose, Forked, Mounts, ProcessOrigin, SandboxRecord, StartAnswer, StartPhase, Starting,
};
use super::spec_checks::{check_env, refusal};
use crate::cgroup::SandboxGroup;
use crate::fault::{StepFault, doing};
use crate::message::StartFailure;
use crate::spawner::child::notifier::{NotifierListener, NotifierSetup};
use crate::spawner::child::process_limit;
use crate::spawner::child::scratch::Scratch;
use crate::spawner::zygote::protocol::{self, ChildLimits, ChildOrder, Entries, SandboxToken};
use crate::spawner::zygote::{self, MAX_IN_FLIGHT, Wanted, ZygoteState};
use crate::spec::{CHANNEL_FD, ForkSpec, Limits, Network, ZygoteSpec};

/// The limit on the time until a child calls its entry. A fork of a large process takes tens of
/// milliseconds; a compromised zygote may never finish.
pub(super) const FORK_TIMEOUT: Duration = Duration::from_secs(10);

/// The additional time for each sibling of a child in flight: on a busy machine they compete for
/// the processor.
const SIBLING_TIMEOUT: Duration = Duration::from_secs(1);

/// The resources made for a child while its zygote forks.
struct ForkResources {
    answer: StartAnswer,
    sync: OwnedFd,
    mounts: Mounts,
    /// The spawner's end of the control socket, if the child is a zygote.
    control: Option<OwnedFd>,
}

impl Service {
    /// Forks a zygote, immediately or when fewer of its children are in flight.
    pub(super) fn fork(&mut self, sequence: u64, zygote: &SandboxId, mut spec: ForkSpec) {
        spec.env.push(("SNOWMELT_CHANNEL_FD".to_owned(), CHANNEL_FD.to_string()));
        self.queue(sequence, zygote, Wanted::Handler(spec));
    }

    /// Forks a zygote once for each spec.
    pub(super) fn fork_many(&mut self, first: u64, zygote: &SandboxId, specs: Vec<ForkSpec>) {
        (first..).zip(specs).for_each(|(sequence, spec)| self.fork(sequence, zygote, spec));
    }

    /// Makes a zygote below another.
    pub(super) fn grow(&mut self, sequence: u64, zygote: &SandboxId, spec: ZygoteSpec) {
        self.queue(sequence, zygote, Wanted::Zygote(spec));
    }

    fn queue(&mut self, sequence: u64, zygote: &SandboxId, wanted: Wanted) {
        let token = self.find(zygote);
        let Some((token, state)) = token.and_then(|token| Some((token, self.zygote(token)?)))
        else {
            return self.refuse(sequence, StartFailure::ZygoteLost { zygote: zygote.clone() });
        };
        state.queue.push_back((sequence, wanted));
        self.fork_queued(token);
    }

    /// Requests the queued children, up to the zygote's limit in flight.
    pub(super) fn fork_queued(&mut self, zygote: SandboxToken) {
        while let Some((sequence, wanted)) = self.next_fork(zygote) {
            if let Err(failure) = self.fork_now(zygote, sequence, &wanted) {
                self.refuse(sequence, failure);
            }
        }
    }

    fn next_fork(&mut self, zygote: SandboxToken) -> Option<(u64, Wanted)> {
        let state = self.zygote(zygote)?;
        if state.in_flight < MAX_IN_FLIGHT { state.queue.pop_front() } else { None }
    }

    pub(super) fn fork_now(
        &mut self,
        zygote: SandboxToken,
        sequence: u64,
        wanted: &Wanted,
    ) -> Result<(), StartFailure> {
        wanted.check()?;
        if let Wanted::Handler(spec) = wanted
            && spec.network.is_none()
            && self.use_preforked(zygote, sequence, spec)?
        {
            return Ok(());
        }
        let token = self.new_token(wanted.id())?;
        let started_at = Instant::now();
        let state = self.zygote(zygote).ok_or_else(|| refusal("its zygote is gone"))?;
        let block = state.block();
        let depth = state.depth_below();
        let shares_id = state.shares_id();
        // Taken before this child is counted.
        let siblings = state.in_flight as u32;
        // From here on the number is given back on each way out.
        let number = state.take_number(wanted.is_zygote()).ok_or_else(|| wanted.too_many())?;
        let owner = state.host_id(number);
        let group = match self.take_group(zygote, wanted.limits()) {
            Ok(group) => group,
            Err(fault) => {
                self.zygote(zygote).into_iter().for_each(|state| state.give_back(number));
                return Err(fault.into());
            }
        };
        match self.make_child(zygote, token, number, &group, sequence, wanted) {
            Ok(ForkResources { answer, sync, mounts, control }) => {
                let below =
                    |control| Box::new(ZygoteState::new(owner, block, shares_id, depth, control));
                let deadline = Some(started_at + FORK_TIMEOUT + SIBLING_TIMEOUT * siblings);
                let mounts = Some(mounts);
                let starting = Starting { answer, sync, mounts, fault: None, deadline };
                let phase = StartPhase::Starting(starting);
                let reported = None;
                let died = None;
                let call = wanted.call();
                // Counted below.
                let in_flight = true;
                let forked = Forked { zygote, number, in_flight, reported, died, call };
                let origin = ProcessOrigin::Forked(forked);
                let id = wanted.id().clone();
                let below = control.map(below);
                let pid = 0;
                let pidfd = None;
                let record = SandboxRecord {
                    id,
                    group,
                    started_at,
                    pid,
                    pidfd,
                    phase,
                    origin,
                    zygote: below,
                };
                self.insert(token, record);
                // The record is inserted before: an event for a token without a record is ignored,
                // and the child would be forgotten.
                self.watch_all(token);
                if let Some(state) = self.zygote(zygote) {
                    state.in_flight += 1;
                }
                Ok(())
            }
            Err(fault) => {
                if let Some(state) = self.zygote(zygote) {
                    state.give_back(number);
                }
                self.return_group(zygote, group);
                Err(fault.into())
            }
        }
    }

    fn take_group(
        &mut self,
        zygote: SandboxToken,
        limits: &Limits,
    ) -> Result<SandboxGroup, StepFault> {
        let used = self.zygote(zygote).and_then(|state| state.groups.pop());
        let group = match used {
            Some(group) => self.groups.with_limits(group, limits),
            None => self.groups.take(limits),
        };
        group.map_err(StepFault::of_group)
    }

    /// Tells the zygote to fork, and meanwhile makes the resources of the child. If making them
    /// fails, the child finds its end of the socket pair closed, and ends.
    fn make_child(
        &mut self,
        zygote: SandboxToken,
        token: SandboxToken,
        number: u32,
        group: &SandboxGroup,
        sequence: u64,
        wanted: &Wanted,
    ) -> Result<ForkResources, StepFault> {
        let (sync, theirs) = doing("make a pair of sockets", packet::pair())?;
        // Before the zygote gets the other end: the kernel adds the sender's credentials only to
        // packets that are sent after this.
        doing("identify the child", packet::identify_senders(&sync))?;
        let ordered = self.order(zygote, token, number, &theirs, wanted);
        if ordered.is_err() {
            // Its root may count as sent already.
            self.zygote(zygote).into_iter().for_each(ZygoteState::forget_roots);
        }
        let (owner, root) = ordered?;
        let limits = wanted.limits();
        let scratch =
            doing("make the scratch", Scratch::make(limits.scratch, owner, self.home.server_user))?;
        let (filter, control) = match wanted {
            // A zygote below another one keeps the filter that it has inherited.
            Wanted::Handler(_) | Wanted::Preforked(_) => {
                (Some(self.programs.of_fork(wanted.network().is_some())), None)
            }
            Wanted::Zygote(spec) => {
                (None, Some(doing("configure the zygote", zygote::configure(spec))?))
            }
        };
        let channel = control.as_ref().map_or(&scratch.listener, |(_, theirs)| theirs);
        let fds: Vec<_> = [channel, &scratch.log_in].into_iter().chain(&group.entry_fds).collect();
        let notifier = NotifierSetup::of(&self.namespaces, wanted.network(), limits.open_files);
        let notifier = doing("set up the address notifier", notifier)?;
        // The packet waits in the socket until the child exists and reads it.
        let processes = process_limit::of(limits).filter(|_| !wanted.is_zygote());
        let sent = protocol::send_setup(
            &sync,
            ChildLimits { open_files: limits.open_files, processes },
            filter,
            notifier.as_ref(),
            &fds,
        );
        doing("send the child its set-up", sent)?;
        let channel = scratch.channel;
        let log = scratch.log_out;
        let answer = StartAnswer {
            sequence,
            channel,
            log,
            listener: NotifierListener::of(notifier.as_ref()),
        };
        let mounts = Mounts { scratch: scratch.mount, root };
        Ok(ForkResources { answer, sync, mounts, control: control.map(|(ours, _)| ours) })
    }

    /// Requests a child from the zygote; returns the child's user id on the host, and the root of a
    /// zygote, which is attached later.
    fn order(
        &mut self,
        zygote: SandboxToken,
        token: SandboxToken,
        number: u32,
        sync: &OwnedFd,
        wanted: &Wanted,
    ) -> Result<(u32, Option<OwnedFd>), StepFault> {
        let gone = || io::Error::from(io::ErrorKind::NotFound);
        // Before the root is recorded as sent, because a failure after that means it must be sent
        // again.
        let network = match wanted.network() {
            None => None,
            Some(id) => {
                let found =
                    self.namespaces.networks.get(&id).map(|network| network.namespace.try_clone());
                Some(doing("find the network", found.unwrap_or_else(|| Err(gone())))?)
            }
        };
        let state = doing("find the zygote", self.zygote(zygote).ok_or_else(gone))?;
        let is_zygote = wanted.is_zygote();
        // A zygote leaves the one above with its own root; handlers copy the root that it has.
        let (root, known) = if is_zygote { (0, false) } else { state.root(wanted.root()) };
        let copy = match known {
            true => None,
            false => Some(self.roots.copy(&self.namespaces, wanted.root(), Network::None)?),
        };
        let (own, template) = match copy {
            Some(copy) if !is_zygote => (None, Some(self.template_in(zygote, copy)?)),
            copy => (copy, None),
        };
        // Again, because `template_in` borrows the whole lane.
        let state = doing("find the zygote", self.zygote(zygote).ok_or_else(gone))?;
        let count = state.mapped_below();
        let host_id = state.host_id(number);
        let number = state.inside_id(number);
        let fresh = template.is_some();
        let has_network = network.is_some();
        let order = ChildOrder { token, is_zygote, number, count, root, fresh, has_network };
        let fds: Vec<_> = [sync].into_iter().chain(&template).chain(&network).collect();
        doing("ask the zygote for a child", state.ask(&order, &fds))?;
        Ok((host_id, own))
    }

    /// A mount namespace with this root, which children of the zygote can copy.
    fn template_in(&mut self, zygote: SandboxToken, root: OwnedFd) -> Result<OwnedFd, StepFault> {
        let process = self.records.get(&zygote).and_then(|record| record.pidfd.as_ref());
        let process = process.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound));
        let process = doing("find the zygote", process)?.as_fd();
        let made = self.namespaces.namespace_in_users_of(process, &root, &mut self.stack);
        doing("make a namespace of the root", made)
    }

    /// Lets a zygote end with its last child.
    pub(super) fn retire(&mut self, id: &SandboxId) {
        let Some(token) = self.find(id) else { return };
        if let Some(state) = self.zygote(token) {
            state.retired = true;
        }
        // First: it would count as a child, and no request comes to use it.
        self.end_preforked(token);
        self.end_if_retired(token);
    }

    pub(super) fn end_if_retired(&mut self, zygote: SandboxToken) {
        if self.zygote(zygote).is_some_and(|state| state.retired && state.is_childless()) {
            self.kill_sandbox(zygote);
        }
    }

    pub(super) fn kill_sandbox(&self, token: SandboxToken) {
        if let Some(pidfd) = self.records.get(&token).and_then(|record| record.pidfd.as_ref()) {
            // Fails only when the process has ended already.
            let _ = pidfd_send_signal(pidfd, Signal::KILL);
        }
    }

    pub(super) fn zygote(&mut self, token: SandboxToken) -> Option<&mut ZygoteState> {
        self.records.get_mut(&token)?.zygote.as_deref_mut()
    }

    pub(super) fn zygote_of(&self, token: SandboxToken) -> Option<SandboxToken> {
        match self.records.get(&token)?.origin {
            ProcessOrigin::Forked(Forked { zygote, .. }) => Some(zygote),
            ProcessOrigin::Cloned { .. } => None,
        }
    }
}

impl Wanted {
    fn check(&self) -> Result<(), StartFailure> {
        match self {
            Self::Handler(spec) => spec.check(),
            // A zygote has the environment of the one above.
            Self::Preforked(_) | Self::Zygote(_) => Ok(()),
        }
    }

    fn limits(&self) -> &Limits {
        match self {
            Self::Handler(spec) => &spec.limits,
            Self::Preforked(spec) => &spec.limits,
            Self::Zygote(spec) => &spec.limits,
        }
    }

    fn call(&self) -> ChildPurpose {
        match self {
            Self::Handler(spec) => ChildPurpose::Handler(Entries::of(spec)),
            Self::Preforked(_) => ChildPurpose::Preforked,
            Self::Zygote(_) => ChildPurpose::Zygote,
        }
    }

    fn too_many(&self) -> StartFailure {
        refusal(match self {
            Self::Handler(_) | Self::Preforked(_) => {
                "its zygote has the maximum number of children"
            }
            Self::Zygote(_) => "its zygote has the maximum number of zygotes below it",
        })
    }
}

impl ForkSpec {
    fn check(&self) -> Result<(), StartFailure> {
        check_env(&self.env)?;
        let texts = self.sys_path.iter().chain([&self.entry]);
        match texts.into_iter().any(|text| text.contains('\0')) {
            true => Err(refusal("a path or the entry contains a NUL character")),
            false => Ok(()),
        }
    }
}
