//! Forking a zygote: the child is made by the zygote, and its root, scratch, control group and
//! user id by the spawner.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use snowmelt_kernel::packet::{self, Sender};
use snowmelt_types::SandboxId;

use super::cell::{Answer, Beginning, Cell, Forked, Kind, Phase, Token};
use super::scratch::Scratch;
use super::service::{Service, Watched};
use super::start::{check_env, group_fault, refusal};
use super::sync::{self, Said};
use super::zygote::{MOST_IN_FLIGHT, Order, Report, ZygoteState};
use crate::cgroup::Group;
use crate::message::{Event, Failure, Started, Status, ZygoteReady};
use crate::root::{Fault, doing};
use crate::spec::{CHANNEL_FD, ForkSpec, Limits, Network};

/// How long a child may take to call its entry. A fork of a large process takes tens of
/// milliseconds; a zygote that was subverted takes for ever.
const FORK_PATIENCE: Duration = Duration::from_secs(10);

/// Packets of one zygote that are heard before others have their turn.
const MOST_HEARD: usize = 32;

impl Service {
    /// Forks a zygote, now or when fewer of its children are on their way.
    pub(super) fn fork(&mut self, sequence: u64, zygote: &SandboxId, mut spec: ForkSpec) {
        spec.env.push(("SNOWMELT_CHANNEL_FD".to_owned(), CHANNEL_FD.to_string()));
        let token = self.find(zygote);
        let Some((token, state)) = token.and_then(|token| Some((token, self.zygote(token)?)))
        else {
            return self.refuse(sequence, Failure::ZygoteLost { zygote: zygote.clone() });
        };
        state.queue.push_back((sequence, spec));
        self.fork_queued(token);
    }

    /// Asks for the children that wait, as far as the zygote can take them.
    pub(super) fn fork_queued(&mut self, zygote: Token) {
        while let Some((sequence, spec)) = self.next_fork(zygote) {
            if let Err(failure) = self.fork_now(zygote, sequence, &spec) {
                self.refuse(sequence, failure);
            }
        }
    }

    fn next_fork(&mut self, zygote: Token) -> Option<(u64, ForkSpec)> {
        let state = self.zygote(zygote)?;
        if state.in_flight < MOST_IN_FLIGHT { state.queue.pop_front() } else { None }
    }

    fn fork_now(&mut self, zygote: Token, sequence: u64, spec: &ForkSpec) -> Result<(), Failure> {
        check_env(&spec.env)?;
        let token = self.name(&spec.id)?;
        let state = self.zygote(zygote).ok_or_else(|| refusal("its zygote is gone"))?;
        let full = || refusal("its zygote has 255 children already");
        let number = state.take_number().ok_or_else(full)?;
        let owner = state.slot.first_id + u32::from(number);
        let begun = Instant::now();
        let group = match self.take_group(zygote, &spec.limits) {
            Ok(group) => group,
            Err(fault) => {
                self.zygote(zygote).into_iter().for_each(|state| state.give_back(number));
                return Err(fault.into());
            }
        };
        match self.order(zygote, token, number, owner, &group, spec) {
            Ok((mut answer, sync)) => {
                answer.sequence = sequence;
                let deadline = Some(begun + FORK_PATIENCE);
                let phase = Phase::Beginning(Beginning { answer, sync, fault: None, deadline });
                let kind = Kind::Forked(Forked { zygote, number, said: None, died: None });
                let id = spec.id.clone();
                let cell = Cell { id, group, begun, pid: 0, pidfd: None, phase, kind };
                self.insert(token, cell);
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

    fn take_group(&mut self, zygote: Token, limits: &Limits) -> Result<Group, Fault> {
        let used = self.zygote(zygote).and_then(|state| state.groups.pop());
        let group = match used {
            Some(group) => self.groups.with_limits(group, limits),
            None => self.groups.take(limits),
        };
        group.map_err(group_fault)
    }

    fn order(
        &mut self,
        zygote: Token,
        token: Token,
        number: u8,
        owner: u32,
        group: &Group,
        spec: &ForkSpec,
    ) -> Result<(Answer, OwnedFd), Fault> {
        let root = self.roots.copy(&self.stage, &spec.root, Network::None)?;
        let scratch = doing("make the scratch", Scratch::make(spec.limits.scratch, owner))?;
        let (sync, theirs) = doing("make a pair of sockets", packet::pair())?;
        doing("identify the child", packet::identify_senders(&sync))?;
        let order = Order {
            token,
            number,
            open_files: spec.limits.open_files,
            env: &spec.env,
            sys_path: &spec.sys_path,
            entry: &spec.entry,
        };
        let fds = [&root, &scratch.mount, &scratch.listener, &scratch.log_in, &theirs];
        let fds: Vec<_> = fds.into_iter().chain(&group.doors).collect();
        let state = self.zygote(zygote).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound));
        let asked = state.and_then(|state| state.ask(&order, &fds));
        doing("ask the zygote for a child", asked)?;
        Ok((Answer { sequence: 0, channel: scratch.channel, log: scratch.log_out }, sync))
    }

    /// A child has named itself: gives it its control group and lets it go on. A sender that has
    /// not the id made for this child is an attack, and the end of its zygote.
    pub(super) fn child_is_here(&mut self, token: Token, sender: Sender) {
        let Err(fault) = self.adopt(token, sender) else { return };
        let attacker = match fault.source.kind() {
            // Neither another user nor another control group is an accident.
            io::ErrorKind::PermissionDenied => self.zygote_of(token),
            _ => None,
        };
        // A child that died has said why, if it could.
        let failure = self.last_words(token).unwrap_or_else(|| fault.into());
        self.fail(token, failure);
        if let Some(zygote) = attacker {
            self.kill_cell(zygote);
        }
    }

    fn last_words(&self, token: Token) -> Option<Failure> {
        let Phase::Beginning(beginning) = &self.cells.get(&token)?.phase else { return None };
        match sync::hear_now(&beginning.sync) {
            Some(Said::Fault(failure)) => Some(failure),
            _ => None,
        }
    }

    fn adopt(&mut self, token: Token, sender: Sender) -> Result<(), Fault> {
        let gone = || io::Error::from(io::ErrorKind::NotFound);
        let expected = self.forked_id(token).ok_or_else(gone);
        let expected = doing("find the child's zygote", expected)?;
        let pidfd = doing("find the child's process", open_process(sender, expected))?;
        let Some(cell) = self.cells.get_mut(&token) else { return Ok(()) };
        if cell.pidfd.is_some() {
            return Ok(());
        }
        cell.pidfd = Some(pidfd);
        cell.pid = sender.pid;
        let cell = &self.cells[&token];
        let Some(pidfd) = &cell.pidfd else { return Ok(()) };
        self.groups.backend().confirm(&cell.group.path, sender.pid).map_err(group_fault)?;
        doing("watch the child", self.watch(pidfd.as_fd(), Watched::Process, token))?;
        if let Phase::Beginning(beginning) = &cell.phase {
            doing("release the child", sync::send_go(&beginning.sync))?;
        }
        self.landed(token);
        Ok(())
    }

    /// One child less is on its way.
    pub(super) fn landed(&mut self, token: Token) {
        if let Some(zygote) = self.zygote_of(token) {
            if let Some(state) = self.zygote(zygote) {
                state.in_flight = state.in_flight.saturating_sub(1);
            }
            self.fork_queued(zygote);
        }
    }

    /// The id on the host that was made for this child.
    fn forked_id(&mut self, token: Token) -> Option<u32> {
        let Kind::Forked(Forked { zygote, number, .. }) = self.cells.get(&token)?.kind else {
            return None;
        };
        Some(self.zygote(zygote)?.slot.first_id + u32::from(number))
    }

    /// Hears what a zygote says, up to a limit: the loop comes back for the rest, and one that
    /// never stops does not keep it from the others. Nonsense is the end of it.
    pub(super) fn zygote_spoke(&mut self, token: Token) {
        for _ in 0..MOST_HEARD {
            let Some(heard) = self.zygote(token).map(|state| state.hear()) else { return };
            match heard {
                Ok(Some(report)) => self.zygote_reports(token, report),
                Ok(None) => return,
                Err(_) => {
                    // The end of its process tells the rest.
                    if let Some(Cell { kind: Kind::Zygote(state), .. }) = self.cells.get(&token) {
                        self.unwatch(state.control.as_fd());
                    }
                    return self.kill_cell(token);
                }
            }
        }
    }

    fn zygote_reports(&mut self, zygote: Token, report: Report) {
        match report {
            Report::Ready(ready) => self.zygote_is_ready(zygote, ready),
            Report::Failed { token, step, errno } if self.zygote_of(token) == Some(zygote) => {
                self.fail(token, Failure::Step { step, errno });
            }
            Report::Exited { token, code, cpu_us } if self.zygote_of(token) == Some(zygote) => {
                let status = if code < 0 { Status::Signal(-code) } else { Status::Exit(code) };
                self.forked_ended(token, status, cpu_us);
            }
            // About a child that is not its own, or that was given up: none of our business.
            Report::Failed { .. } | Report::Exited { .. } => {}
        }
    }

    fn zygote_is_ready(&mut self, token: Token, ready: ZygoteReady) {
        let Some(cell) = self.cells.get_mut(&token) else { return };
        if !matches!(cell.phase, Phase::Importing(_)) {
            return;
        }
        if let Phase::Importing(answer) = std::mem::replace(&mut cell.phase, Phase::Running) {
            self.tell_started(token, &answer, Some(ready));
        }
    }

    /// Tells the server that a sandbox runs.
    pub(super) fn tell_started(&self, token: Token, answer: &Answer, zygote: Option<ZygoteReady>) {
        let Some(cell) = self.cells.get(&token) else { return };
        let Some(pidfd) = &cell.pidfd else { return };
        let (backend, group) = (self.groups.backend(), &cell.group.path);
        let started = Started {
            pid: cell.pid,
            memory_peak_file: backend.memory_peak_file(group),
            memory_file: backend.memory_file(group),
            switch: backend.switch(group),
            zygote,
        };
        let event = Event::Started { sequence: answer.sequence, started };
        self.tell(&event, &[pidfd.as_fd(), answer.channel.as_fd(), answer.log.as_fd()]);
    }

    /// Lets a zygote end with its last child.
    pub(super) fn retire(&mut self, id: &SandboxId) {
        let Some(token) = self.find(id) else { return };
        if let Some(state) = self.zygote(token) {
            state.retired = true;
        }
        self.end_if_retired(token);
    }

    pub(super) fn end_if_retired(&mut self, zygote: Token) {
        if self.zygote(zygote).is_some_and(|state| state.retired && state.is_childless()) {
            self.kill_cell(zygote);
        }
    }

    pub(super) fn kill_cell(&self, token: Token) {
        if let Some(pidfd) = self.cells.get(&token).and_then(|cell| cell.pidfd.as_ref()) {
            // Fails only when the process is gone already.
            let _ = pidfd_send_signal(pidfd, Signal::KILL);
        }
    }

    pub(super) fn zygote(&mut self, token: Token) -> Option<&mut ZygoteState> {
        match &mut self.cells.get_mut(&token)?.kind {
            Kind::Zygote(state) => Some(state),
            _ => None,
        }
    }

    pub(super) fn zygote_of(&self, token: Token) -> Option<Token> {
        match self.cells.get(&token)?.kind {
            Kind::Forked(Forked { zygote, .. }) => Some(zygote),
            _ => None,
        }
    }
}

/// A descriptor of the process, if it has the user id that only this child can have: its number
/// could have passed to another process since it spoke.
fn open_process(sender: Sender, expected_uid: u32) -> io::Result<OwnedFd> {
    let stranger = || io::Error::from(io::ErrorKind::PermissionDenied);
    let pid = Pid::from_raw(sender.pid).ok_or_else(stranger)?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
    let status = fs::read_to_string(format!("/proc/{}/status", sender.pid))?;
    let uid = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    let uid = uid.and_then(|ids| ids.split_whitespace().next()).and_then(|id| id.parse().ok());
    if sender.uid != expected_uid || uid != Some(expected_uid) {
        return Err(stranger());
    }
    Ok(pidfd)
}
