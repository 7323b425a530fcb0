//! The end of a sandbox, and of the lane.

use std::os::fd::AsFd;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use snowmelt_kernel::process;
use snowmelt_types::SandboxId;

use super::record::{ProcessOrigin, SandboxRecord, StartPhase, Starting};
use super::{EventSubject, Service};
use crate::cgroup::SandboxGroup;
use crate::message::{EndStatus, SandboxEnd, SpawnerEvent, StartFailure};
use crate::spawner::child::notifier::NotifierListener;
use crate::spawner::child::sync::{self, ChildMessage};
use crate::spawner::zygote::MAX_GROUPS;
use crate::spawner::zygote::protocol::SandboxToken;

impl Service {
    /// Handles a message of a child that is being set up, or the end of its socket.
    pub(super) fn on_child_message(&mut self, token: SandboxToken) {
        let Some(record) = self.records.get_mut(&token) else { return };
        let StartPhase::Starting(starting) = &mut record.phase else { return };
        match sync::receive(&starting.sync) {
            ChildMessage::Here(sender) => self.child_is_here(token, sender),
            ChildMessage::Listener(listener) => {
                if matches!(starting.answer.listener, NotifierListener::Pending) {
                    starting.answer.listener = NotifierListener::Received(listener);
                }
            }
            // Its process is known, and is about to end: the failure is reported with its end, when
            // its group is empty.
            ChildMessage::Fault(failure) if record.pidfd.is_some() => {
                starting.fault = Some(failure);
            }
            ChildMessage::Fault(failure) => self.fail(token, failure),
            ChildMessage::Closed => self.child_closed(token),
        }
    }

    /// Handles that a child has closed its end of the socket: it runs its program, or has ended.
    fn child_closed(&mut self, token: SandboxToken) {
        let Some(record) = self.records.get_mut(&token) else { return };
        if record.pidfd.is_none() {
            let step = "begin the child of the zygote".to_owned();
            return self.fail(token, StartFailure::Step { step, errno: CHILD_LOST });
        }
        let StartPhase::Starting(mut starting) =
            // Taken out for good, or put back below when the start has failed.
            std::mem::replace(&mut record.phase, StartPhase::Running)
        else {
            return;
        };
        self.unwatch(starting.sync.as_fd());
        // Without its listener nobody would hold the program to its addresses, so it must not run.
        if let Some(fault) = starting.answer.listener.fault() {
            starting.fault.get_or_insert(fault.into());
            self.kill_sandbox(token);
        }
        if starting.fault.is_some() {
            // It is about to end; the answer is sent then.
            return self.put_back(token, starting);
        }
        let Some(record) = self.records.get_mut(&token) else { return };
        if record.zygote.is_none() {
            return self.send_started(token, &starting.answer, None);
        }
        // The zygote's control socket is read from now on: what it sent before its set-up was over
        // waits there.
        record.phase = StartPhase::Importing(starting.answer);
        if let Some(state) = self.records.get(&token).and_then(|record| record.zygote.as_ref()) {
            self.watch_or_complain(state.control.as_fd(), EventSubject::Zygote, token);
        }
    }

    fn put_back(&mut self, token: SandboxToken, starting: Starting) {
        if let Some(record) = self.records.get_mut(&token) {
            record.phase = StartPhase::Starting(starting);
        }
    }

    /// Handles the kernel's report that a process has ended.
    pub(super) fn process_ended(&mut self, token: SandboxToken) {
        // Its messages before the end come first.
        while self.has_unread(token) {
            self.on_child_message(token);
        }
        let Some(record) = self.records.get_mut(&token) else { return };
        let Some(pidfd) = &record.pidfd else { return };
        if let ProcessOrigin::Forked(forked) = &mut record.origin {
            let reported = forked.reported;
            forked.died = Some(Instant::now());
            // Remove the descriptor that is watched: for epoll a copy is another one.
            if let Some(pidfd) = self.records.get(&token).and_then(|record| record.pidfd.as_ref()) {
                self.unwatch(pidfd.as_fd());
            }
            // The zygote has reaped its child and reported it before; otherwise the report, or the
            // deadline, finishes it.
            if let Some((status, cpu_us)) = reported {
                self.finish(token, status, Some(cpu_us));
            }
            return;
        }
        match process::reap(pidfd.as_fd()) {
            Ok(None) => {}
            Ok(Some(reaped)) => {
                let code = reaped.code;
                let status =
                    if code < 0 { EndStatus::Signal(-code) } else { EndStatus::Exit(code) };
                self.finish(token, status, Some(reaped.cpu_us));
            }
            Err(_) => self.finish(token, EndStatus::Signal(SIGKILL), None),
        }
    }

    fn has_unread(&self, token: SandboxToken) -> bool {
        let Some(SandboxRecord { phase: StartPhase::Starting(starting), .. }) =
            self.records.get(&token)
        else {
            return false;
        };
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut watched = [PollFd::new(&starting.sync, PollFlags::IN)];
        // A fault is the last message of a child, and the end of the socket stays readable for
        // ever.
        starting.fault.is_none() && poll(&mut watched, Some(&now)).is_ok_and(|ready| ready > 0)
    }

    /// Takes a zygote's report of how a child ended. It takes effect when the kernel reports the
    /// child's death.
    pub(super) fn forked_ended(&mut self, token: SandboxToken, status: EndStatus, cpu_us: u64) {
        let Some(SandboxRecord { origin: ProcessOrigin::Forked(forked), .. }) =
            self.records.get_mut(&token)
        else {
            return;
        };
        forked.reported = Some((status, cpu_us));
        // A zygote may report a child that lives: its record stays until the kernel says the same.
        if forked.died.is_some() {
            self.finish(token, status, Some(cpu_us));
        }
    }

    /// Handles a deadline that has passed: a forked child was not set up in time, or its zygote
    /// does not report how it ended; or a preforked child is due, or has expired.
    pub(super) fn on_deadline(&mut self, token: SandboxToken) {
        if self.make_due_preforked(token, Instant::now()) || self.end_expired_preforked(token) {
            return;
        }
        let Some(SandboxRecord { origin: ProcessOrigin::Forked(forked), .. }) =
            self.records.get(&token)
        else {
            return;
        };
        let zygote = forked.zygote;
        if forked.died.is_some() {
            self.finish(token, EndStatus::Signal(SIGKILL), None);
        } else {
            // Fails every child in flight.
            self.fail_for_zygote(token, zygote);
            self.kill_sandbox(zygote);
        }
    }

    fn fail_for_zygote(&mut self, token: SandboxToken, zygote: SandboxToken) {
        let Some(record) = self.records.get(&zygote) else { return };
        let zygote = record.id.clone();
        self.fail(token, StartFailure::ZygoteLost { zygote });
    }

    /// Ends a sandbox that the server does not know yet, and kills its process if that is known.
    pub(super) fn fail(&mut self, token: SandboxToken, failure: StartFailure) {
        self.kill_sandbox(token);
        let Some((_, phase)) = self.dissolve(token) else { return };
        if let StartPhase::Starting(Starting { answer, .. }) | StartPhase::Importing(answer) = phase
        {
            self.refuse(answer.sequence, failure);
        }
    }

    /// Ends a sandbox whose process is dead.
    fn finish(&mut self, token: SandboxToken, status: EndStatus, cpu_us: Option<u64>) {
        let Some(record) = self.records.get_mut(&token) else { return };
        // Before the group is reset or removed, which takes its counts away.
        let usage = self.groups.usage(&mut record.group);
        let ended = SandboxEnd {
            status,
            oom_kills: usage.oom_kills,
            forks_refused: usage.forks_refused,
            throttled_us: usage.throttled_us,
            memory_peak: usage.memory_peak,
            cpu_us: usage.cpu_us.or(cpu_us),
            wall_us: record.started_at.elapsed().as_micros() as u64,
        };
        let id = record.id.clone();
        let is_zygote = record.zygote.is_some();
        if is_zygote {
            // Before the zygote's own record goes: a child finds its zygote by that record.
            self.end_orphans(token);
        }
        if self
            .records
            .get(&token)
            .is_some_and(|record| matches!(record.phase, StartPhase::Running))
        {
            // Before the group is cleared for reuse, so that the waiters do not wait for that.
            self.send_event(&SpawnerEvent::Ended { id, ended }, &[]);
        }
        let Some((id, phase)) = self.dissolve(token) else { return };
        match phase {
            StartPhase::Running => {}
            StartPhase::Importing(answer) => {
                self.refuse(answer.sequence, StartFailure::ZygoteLost { zygote: id });
            }
            StartPhase::Starting(Starting { answer, fault, .. }) => {
                let step = "set up the sandbox before the process was killed".to_owned();
                let failure = fault.unwrap_or(StartFailure::Step { step, errno: CHILD_LOST });
                self.refuse(answer.sequence, failure);
            }
        }
    }

    /// Ends the children of a dead zygote. They are dead too, and their status is not reported.
    fn end_orphans(&mut self, zygote: SandboxToken) {
        if let Some(state) = self.zygote(zygote) {
            let queue = std::mem::take(&mut state.queue);
            let id = self.records[&zygote].id.clone();
            for (sequence, _) in queue {
                self.refuse(sequence, StartFailure::ZygoteLost { zygote: id.clone() });
            }
        }
        let own = |token: &SandboxToken| self.zygote_of(*token) == Some(zygote);
        let children: Vec<SandboxToken> = self.records.keys().copied().filter(own).collect();
        for child in children {
            if self.records.get(&child).is_some_and(|record| record.pidfd.is_some()) {
                self.finish(child, EndStatus::Signal(SIGKILL), None);
            } else {
                self.fail_for_zygote(child, zygote);
            }
        }
    }

    /// Removes a record: unregisters its descriptors and frees its group and its ids.
    fn dissolve(&mut self, token: SandboxToken) -> Option<(SandboxId, StartPhase)> {
        let SandboxRecord { id, group, pidfd, phase, origin, zygote, .. } = self.take(token)?;
        // Before the descriptors are closed: the set has to be told by their numbers.
        pidfd.iter().for_each(|pidfd| self.unwatch(pidfd.as_fd()));
        if let StartPhase::Starting(starting) = &phase {
            self.unwatch(starting.sync.as_fd());
        }
        if let Some(mut state) = zygote {
            self.unwatch(state.control.as_fd());
            // Groups of a dead zygote are not reused: a process of it may still have the files that
            // enter them.
            state.groups.drain(..).for_each(|group| self.groups.discard(&group, None));
        }
        match origin {
            ProcessOrigin::Cloned { slot } => {
                self.groups.give_back(group);
                self.slots.give_back(&slot);
            }
            ProcessOrigin::Forked(forked) => {
                self.forget_preforked(forked.zygote, token);
                // Here, where every child ends: the step that failed may be before or after the one
                // by which its process is known, and a place that is not given back is lost for the
                // life of the zygote. After the line above: the next in the queue must not get this
                // child.
                if forked.in_flight {
                    self.free_place(forked.zygote);
                }
                self.return_group(forked.zygote, group);
                if let Some(state) = self.zygote(forked.zygote) {
                    state.give_back(forked.number);
                }
                // Last: only when the number is given back has the zygote no child.
                self.end_if_retired(forked.zygote);
            }
        }
        Some((id, phase))
    }

    /// Takes back the group of a zygote's child. The zygote had the files that enter the group and
    /// may have kept them, so the group is reused only for children of the same zygote.
    pub(super) fn return_group(&mut self, zygote: SandboxToken, mut group: SandboxGroup) {
        let clean = self.groups.reset(&mut group);
        match self.zygote(zygote) {
            Some(state) if clean && state.groups.len() < MAX_GROUPS => state.groups.push(group),
            _ => self.groups.discard(&group, Some(zygote)),
        }
    }

    /// Removes groups in which sandboxes left processes. A zygote that puts processes into its
    /// children's groups as fast as they are killed is an attacker, and is killed.
    pub(super) fn tidy(&mut self, now: Instant) {
        for zygote in self.groups.tidy(now) {
            self.kill_sandbox(zygote);
        }
    }

    /// Kills the sandbox of this id, started or starting.
    pub(super) fn kill(&mut self, id: &SandboxId) {
        let cancelled = || StartFailure::Spec { reason: "it was cancelled".to_owned() };
        let mut withdrawn = Vec::new();
        for state in self.records.values_mut().filter_map(|record| record.zygote.as_mut()) {
            state.queue.retain(|(sequence, wanted)| {
                let stays = wanted.id() != id;
                withdrawn.extend((!stays).then_some(*sequence));
                stays
            });
        }
        // Answered although nobody waits: until the answer the server counts this lane as busy with
        // the request.
        withdrawn.into_iter().for_each(|sequence| self.refuse(sequence, cancelled()));
        let Some(token) = self.find(id) else { return };
        match self.records.get(&token).and_then(|record| record.pidfd.as_ref()) {
            Some(_) => self.kill_sandbox(token),
            // Its child finds the socket pair closed, and ends.
            None => self.fail(token, cancelled()),
        }
    }

    /// Kills everything and waits until it is dead.
    pub(super) fn end_all(&mut self) {
        // All are killed before the first is waited for, so that they die at the same time.
        self.records.keys().for_each(|token| self.kill_sandbox(*token));
        // Paused processes cannot die while frozen (cgroup v1).
        self.records.values().for_each(|record| self.groups.release(&record.group));
        for record in self.records.values() {
            let Some(pidfd) = &record.pidfd else { continue };
            let timeout = Timespec { tv_sec: 5, tv_nsec: 0 };
            // PDEATHSIG kills the rest when this process ends.
            let _ = poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&timeout));
            drop(process::reap(pidfd.as_fd()));
        }
        self.records.clear();
    }
}

/// The error number for a child that has ended.
const CHILD_LOST: i32 = rustix::io::Errno::CHILD.raw_os_error();

const SIGKILL: i32 = rustix::process::Signal::KILL.as_raw();
