//! The end of a sandbox, and of the lane.

use std::os::fd::AsFd;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use snowmelt_kernel::process;
use snowmelt_types::SandboxId;

use super::cell::{Beginning, Cell, Origin, Phase, Token};
use super::guard::Heard;
use super::service::{Service, Watched};
use super::sync::{self, Said};
use super::zygote::MOST_GROUPS;
use crate::cgroup::Group;
use crate::message::{Ended, Event, Failure, Status};

impl Service {
    /// A child that is being set up has sent a message, or closed its end.
    pub(super) fn child_spoke(&mut self, token: Token) {
        let Some(cell) = self.cells.get_mut(&token) else { return };
        let Phase::Beginning(beginning) = &mut cell.phase else { return };
        match sync::hear(&beginning.sync) {
            Said::Here(sender) => self.child_is_here(token, sender),
            Said::Heard(listener) => {
                if matches!(beginning.answer.heard, Heard::Awaited) {
                    beginning.answer.heard = Heard::By(listener);
                }
            }
            Said::Fault(failure) if cell.pidfd.is_some() => beginning.fault = Some(failure),
            Said::Fault(failure) => self.fail(token, failure),
            Said::Closed => self.child_closed(token),
        }
    }

    /// The child has closed its end: it runs its program, or has ended.
    fn child_closed(&mut self, token: Token) {
        let Some(cell) = self.cells.get_mut(&token) else { return };
        if cell.pidfd.is_none() {
            let step = "begin the child of the zygote".to_owned();
            return self.fail(token, Failure::Step { step, errno: CHILD_LOST });
        }
        let Phase::Beginning(mut beginning) = std::mem::replace(&mut cell.phase, Phase::Running)
        else {
            return;
        };
        self.unwatch(beginning.sync.as_fd());
        if let Some(fault) = beginning.answer.heard.fault() {
            beginning.fault.get_or_insert(fault.into());
            self.kill_cell(token);
        }
        if beginning.fault.is_some() {
            // It is about to end; the answer is sent then.
            return self.put_back(token, beginning);
        }
        let Some(cell) = self.cells.get_mut(&token) else { return };
        if cell.zygote.is_none() {
            return self.tell_started(token, &beginning.answer, None);
        }
        cell.phase = Phase::Importing(beginning.answer);
        if let Some(state) = self.cells.get(&token).and_then(|cell| cell.zygote.as_ref()) {
            self.watch_or_complain(state.control.as_fd(), Watched::Zygote, token);
        }
    }

    fn put_back(&mut self, token: Token, beginning: Beginning) {
        if let Some(cell) = self.cells.get_mut(&token) {
            cell.phase = Phase::Beginning(beginning);
        }
    }

    /// The kernel reports that a process has ended.
    pub(super) fn process_ended(&mut self, token: Token) {
        // Its messages before the end come first.
        while self.has_unheard(token) {
            self.child_spoke(token);
        }
        let Some(cell) = self.cells.get_mut(&token) else { return };
        let Some(pidfd) = &cell.pidfd else { return };
        if let Origin::Forked(forked) = &mut cell.origin {
            let said = forked.said;
            forked.died = Some(Instant::now());
            // Remove the descriptor that is watched: for epoll a copy is another one.
            if let Some(pidfd) = self.cells.get(&token).and_then(|cell| cell.pidfd.as_ref()) {
                self.unwatch(pidfd.as_fd());
            }
            if let Some((status, cpu_us)) = said {
                self.finish(token, status, Some(cpu_us));
            }
            return;
        }
        match process::reap(pidfd.as_fd()) {
            Ok(None) => {}
            Ok(Some(reaped)) => {
                let code = reaped.code;
                let status = if code < 0 { Status::Signal(-code) } else { Status::Exit(code) };
                self.finish(token, status, Some(reaped.cpu_us));
            }
            Err(_) => self.finish(token, Status::Signal(SIGKILL), None),
        }
    }

    fn has_unheard(&self, token: Token) -> bool {
        let Some(Cell { phase: Phase::Beginning(beginning), .. }) = self.cells.get(&token) else {
            return false;
        };
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut watched = [PollFd::new(&beginning.sync, PollFlags::IN)];
        beginning.fault.is_none() && poll(&mut watched, Some(&now)).is_ok_and(|ready| ready > 0)
    }

    /// A zygote reports how a child ended; this takes effect when the kernel reports its death.
    pub(super) fn forked_ended(&mut self, token: Token, status: Status, cpu_us: u64) {
        let Some(Cell { origin: Origin::Forked(forked), .. }) = self.cells.get_mut(&token) else {
            return;
        };
        forked.said = Some((status, cpu_us));
        if forked.died.is_some() {
            self.finish(token, status, Some(cpu_us));
        }
    }

    /// A deadline has passed: a forked child was not set up in time, or its zygote does not report
    /// how it ended; or a preforked child is due, or has expired.
    pub(super) fn too_late(&mut self, token: Token) {
        if self.make_due_spare(token, Instant::now()) || self.end_late_spare(token) {
            return;
        }
        let Some(Cell { origin: Origin::Forked(forked), .. }) = self.cells.get(&token) else {
            return;
        };
        let zygote = forked.zygote;
        if forked.died.is_some() {
            self.finish(token, Status::Signal(SIGKILL), None);
        } else {
            // Fails every child in flight.
            self.fail_for_zygote(token, zygote);
            self.kill_cell(zygote);
        }
    }

    fn fail_for_zygote(&mut self, token: Token, zygote: Token) {
        let Some(cell) = self.cells.get(&zygote) else { return };
        let zygote = cell.id.clone();
        self.fail(token, Failure::ZygoteLost { zygote });
    }

    /// Ends a sandbox that the server does not know yet and that has no process.
    pub(super) fn fail(&mut self, token: Token, failure: Failure) {
        self.landed_unless_adopted(token);
        self.kill_cell(token);
        let Some((_, phase)) = self.dissolve(token) else { return };
        if let Phase::Beginning(Beginning { answer, .. }) | Phase::Importing(answer) = phase {
            self.refuse(answer.sequence, failure);
        }
    }

    fn landed_unless_adopted(&mut self, token: Token) {
        if self.cells.get(&token).is_some_and(|cell| cell.pidfd.is_none()) {
            self.landed(token);
        }
    }

    /// Ends a sandbox whose process is dead.
    fn finish(&mut self, token: Token, status: Status, cpu_us: Option<u64>) {
        let Some(cell) = self.cells.get_mut(&token) else { return };
        let usage = self.groups.usage(&mut cell.group);
        let ended = Ended {
            status,
            oom_kills: usage.oom_kills,
            forks_refused: usage.forks_refused,
            throttled_us: usage.throttled_us,
            memory_peak: usage.memory_peak,
            cpu_us: usage.cpu_us.or(cpu_us),
            wall_us: cell.begun.elapsed().as_micros() as u64,
        };
        let (id, is_zygote) = (cell.id.clone(), cell.zygote.is_some());
        if is_zygote {
            self.orphan_children(token);
        }
        if self.cells.get(&token).is_some_and(|cell| matches!(cell.phase, Phase::Running)) {
            // Before the group is cleared for reuse, so that the waiters do not wait for that.
            self.tell(&Event::Ended { id, ended }, &[]);
        }
        let Some((id, phase)) = self.dissolve(token) else { return };
        match phase {
            Phase::Running => {}
            Phase::Importing(answer) => {
                self.refuse(answer.sequence, Failure::ZygoteLost { zygote: id });
            }
            Phase::Beginning(Beginning { answer, fault, .. }) => {
                let step = "set up the sandbox before the process was killed".to_owned();
                let failure = fault.unwrap_or(Failure::Step { step, errno: CHILD_LOST });
                self.refuse(answer.sequence, failure);
            }
        }
    }

    /// The children of a dead zygote are dead too, and their status is not reported.
    fn orphan_children(&mut self, zygote: Token) {
        if let Some(state) = self.zygote(zygote) {
            let queue = std::mem::take(&mut state.queue);
            let id = self.cells[&zygote].id.clone();
            for (sequence, _) in queue {
                self.refuse(sequence, Failure::ZygoteLost { zygote: id.clone() });
            }
        }
        let own = |token: &Token| self.zygote_of(*token) == Some(zygote);
        let children: Vec<Token> = self.cells.keys().copied().filter(own).collect();
        for child in children {
            if self.cells.get(&child).is_some_and(|cell| cell.pidfd.is_some()) {
                self.finish(child, Status::Signal(SIGKILL), None);
            } else {
                self.fail_for_zygote(child, zygote);
            }
        }
    }

    /// Removes a record: unregisters its descriptors and frees its group and its ids.
    fn dissolve(&mut self, token: Token) -> Option<(SandboxId, Phase)> {
        let Cell { id, group, pidfd, phase, origin, zygote, .. } = self.take(token)?;
        pidfd.iter().for_each(|pidfd| self.unwatch(pidfd.as_fd()));
        if let Phase::Beginning(beginning) = &phase {
            self.unwatch(beginning.sync.as_fd());
        }
        if let Some(mut state) = zygote {
            self.unwatch(state.control.as_fd());
            state.groups.drain(..).for_each(|group| self.groups.discard(&group, None));
        }
        match origin {
            Origin::Cloned { slot } => {
                self.groups.give_back(group);
                self.slots.give_back(&slot);
            }
            Origin::Forked(forked) => {
                self.forget_spare(forked.zygote, token);
                self.return_group(forked.zygote, group);
                if let Some(state) = self.zygote(forked.zygote) {
                    state.give_back(forked.number);
                }
                self.end_if_retired(forked.zygote);
            }
        }
        Some((id, phase))
    }

    /// A zygote had the files that enter its child's group and may have kept them, so the group is
    /// reused only for children of the same zygote.
    pub(super) fn return_group(&mut self, zygote: Token, mut group: Group) {
        let clean = self.groups.clear(&mut group);
        match self.zygote(zygote) {
            Some(state) if clean && state.groups.len() < MOST_GROUPS => state.groups.push(group),
            _ => self.groups.discard(&group, Some(zygote)),
        }
    }

    /// Removes groups in which sandboxes left processes. A zygote that puts processes into its
    /// children's groups as fast as they are killed is an attacker, and is killed.
    pub(super) fn tidy(&mut self, now: Instant) {
        for zygote in self.groups.tidy(now) {
            self.kill_cell(zygote);
        }
    }

    /// Kills the sandbox of this id, started or starting.
    pub(super) fn kill(&mut self, id: &SandboxId) {
        for cell in self.cells.values_mut() {
            if let Some(state) = &mut cell.zygote {
                state.queue.retain(|(_, wanted)| wanted.id() != id);
            }
        }
        let Some(token) = self.find(id) else { return };
        match self.cells.get(&token).and_then(|cell| cell.pidfd.as_ref()) {
            Some(_) => self.kill_cell(token),
            // Its child finds the socket pair closed, and ends.
            None => self.fail(token, Failure::Spec { reason: "it was cancelled".to_owned() }),
        }
    }

    /// Kills everything and waits until it is dead.
    pub(super) fn end_all(&mut self) {
        self.cells.keys().for_each(|token| self.kill_cell(*token));
        // Paused processes cannot die while frozen (cgroup v1).
        self.cells.values().for_each(|cell| self.groups.release(&cell.group));
        for cell in self.cells.values() {
            let Some(pidfd) = &cell.pidfd else { continue };
            let patience = Timespec { tv_sec: 5, tv_nsec: 0 };
            // PDEATHSIG kills the rest when this process ends.
            let _ = poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&patience));
            drop(process::reap(pidfd.as_fd()));
        }
        self.cells.clear();
    }
}

/// ECHILD: the child has ended.
const CHILD_LOST: i32 = rustix::io::Errno::CHILD.raw_os_error();

const SIGKILL: i32 = rustix::process::Signal::KILL.as_raw();
