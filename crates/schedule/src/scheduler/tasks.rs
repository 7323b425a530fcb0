//! The scheduling of tasks of queries. They wait in the queue of calls and gangs, without a
//! deadline, as a query ends with its client.
//!
//! A query keeps room for one task on control's host, which the scheduler does not know of, and so
//! goes on whatever is decided here. Therefore a task takes nothing that is kept for a call or a
//! gang.
//!
//! Invariant: the memory of a task is counted on its host until it has ended.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use snowmelt_types::HostName;

use super::Scheduler;
use super::gangs::line;
use crate::hosts::HostUsage;
use crate::requests::{Decision, HeldTask, RoomReservations, State, TaskDemand, Ticket, Wish};

/// The deadline of tasks, which never expire.
const NEVER: Duration = Duration::MAX;

impl Scheduler {
    /// Starts a task on a host, or returns `None` if there is no room for it now.
    pub fn start_task(
        &mut self,
        task: Arc<TaskDemand>,
        host: &HostName,
        now: Duration,
    ) -> Option<Ticket> {
        let kept = self.keep_room(now);
        self.has_room_for_task(&task, host, (kept, false)).then(|| self.runs_task(task, host, now))
    }

    /// Counts a task that runs on a host, whether or not there is room for it.
    pub fn runs_task(&mut self, task: Arc<TaskDemand>, host: &HostName, now: Duration) -> Ticket {
        let ticket = self.ticket();
        let held = HeldTask { task, since: now, wish: Wish::default(), state: State::Waits };
        self.tasks.insert(ticket, held);
        self.begin_task(ticket, host, now);
        ticket
    }

    /// Adds a task, which waits for one of the hosts of its wish.
    pub fn ask_task(&mut self, task: Arc<TaskDemand>, wish: Wish, now: Duration) -> Ticket {
        let ticket = self.ticket();
        self.queue.push(&task.tenant, &line(ticket), ticket);
        self.deadlines.insert((NEVER, ticket));
        self.tasks.insert(ticket, HeldTask { task, since: now, wish, state: State::Waits });
        self.new.push(ticket);
        ticket
    }

    /// Replaces the hosts that a waiting task would run on.
    pub fn wish(&mut self, ticket: Ticket, wish: Wish) {
        if let Some(held) = self.tasks.get_mut(&ticket).filter(|held| held.is_waiting()) {
            held.wish = wish;
            self.new.push(ticket);
        }
    }

    /// Whether tasks of queries were placed on a host.
    pub fn has_tasks(&self, host: &HostName) -> bool {
        self.hosts.get(host).is_some_and(|host| host.count_of_tasks > 0)
    }

    /// Returns the decision on a task that is possible now. `None` if the task goes on waiting, or
    /// is not known.
    pub(crate) fn look_at_task(&self, ticket: Ticket, kept: RoomReservations) -> Option<Decision> {
        let held = self.tasks.get(&ticket).filter(|held| held.is_waiting())?;
        let kept = (kept, kept.ticket == Some(ticket));
        let mut hosts = held.wish.hosts.iter();
        let host = hosts.find(|host| self.has_room_for_task(&held.task, host, kept))?;
        Some(Decision::Run(ticket, host.clone()))
    }

    /// Whether a host has room for a task beside the room that is kept for others. `kept` says for
    /// whom room is kept, and whether that is this task.
    fn has_room_for_task(
        &self,
        task: &TaskDemand,
        name: &HostName,
        kept: (RoomReservations, bool),
    ) -> bool {
        let (kept, is_for_task) = kept;
        let Some(host) = self.hosts.get(name) else { return false };
        let call = kept.ticket.and_then(|kept| self.calls.get(&kept));
        let is_for_call = call.is_some_and(|held| self.could_start_on(&held.call, name, host));
        let reserved = if is_for_task { 0 } else { host.reserved };
        host.takes_tasks()
            && !is_for_call
            && host.left_for_tasks().saturating_sub(reserved) >= task.memory
    }

    /// Keeps room for the longest waiting task, if its wait is as long as the policy says. The room
    /// is on the host with the most free memory for the task.
    pub(crate) fn keep_room_for_task(&mut self, now: Duration) -> Option<Ticket> {
        let has_waited = |held: &&HeldTask| {
            held.is_waiting() && now.saturating_sub(held.since) >= self.policy.starved_after
        };
        let first =
            self.queue.first().filter(|ticket| self.tasks.get(ticket).filter(has_waited).is_some());
        let mut first: Vec<_> = first.collect();
        first.sort_unstable();
        let (ticket, name, memory) = first.into_iter().find_map(|ticket| {
            let held = self.tasks.get(&ticket)?;
            let memory = held.task.memory;
            let hosts = held.wish.hosts.iter();
            let known = hosts.filter_map(|name| Some((name, self.hosts.get(name)?)));
            let could = known.filter(|(_, it)| it.takes_tasks() && it.most_for_tasks() >= memory);
            let (name, _) = could.min_by_key(|(_, host)| Reverse(host.left_for_tasks()))?;
            Some((ticket, name.clone(), memory))
        })?;
        self.hosts.get_mut(&name)?.reserved = memory;
        self.has_reserved = true;
        Some(ticket)
    }

    /// Counts a task that begins on a host.
    pub(crate) fn begin_task(&mut self, ticket: Ticket, name: &HostName, now: Duration) {
        let Some(held) = self.tasks.get_mut(&ticket) else { return };
        let task = Arc::clone(&held.task);
        self.deadlines.remove(&(NEVER, ticket));
        self.queue.remove(&task.tenant, &line(ticket), ticket);
        held.state = State::RunsOn(name.clone());
        if let Some(host) = self.hosts.get_mut(name) {
            host.add_task(&task, now);
        }
        *self.taken.entry(task.tenant.clone()).or_default() += task.memory;
    }

    /// Removes a task that has ended, or for which nobody waits any more. Returns false if the
    /// ticket is not of a task.
    pub(crate) fn end_task(&mut self, ticket: Ticket, now: Duration) -> bool {
        let Some(HeldTask { task, state, .. }) = self.tasks.remove(&ticket) else { return false };
        match state {
            State::Waits => {
                self.queue.remove(&task.tenant, &line(ticket), ticket);
                self.deadlines.remove(&(NEVER, ticket));
            }
            State::RunsOn(host) => self.leave_host(&task, &host, now),
            State::Lost => {}
        }
        self.is_changed = true;
        true
    }

    /// Takes the refusal of a task by its host. The task waits again where it stood before, and the
    /// host gets no task until its next report.
    pub(crate) fn refuse_task(&mut self, ticket: Ticket, now: Duration) {
        let Some(held) = self.tasks.get_mut(&ticket).filter(|held| !held.is_waiting()) else {
            return;
        };
        let was = std::mem::replace(&mut held.state, State::Waits);
        let task = Arc::clone(&held.task);
        if let State::RunsOn(name) = was {
            self.leave_host(&task, &name, now);
            if let Some(host) = self.hosts.get_mut(&name) {
                host.refuses_tasks = true;
            }
        }
        self.queue.push(&task.tenant, &line(ticket), ticket);
        self.deadlines.insert((NEVER, ticket));
        self.is_changed = true;
    }

    /// The tasks that were placed on a host, also while that host is not known.
    pub(crate) fn tasks_on(&self, host: &HostName) -> impl Iterator<Item = &HeldTask> {
        let is_there =
            move |held: &&HeldTask| matches!(&held.state, State::RunsOn(on) if on == host);
        self.tasks.values().filter(is_there)
    }

    fn leave_host(&mut self, task: &TaskDemand, host: &HostName, now: Duration) {
        if let Some(host) = self.hosts.get_mut(host) {
            host.remove_task(task, now);
        }
        self.gives_back(&task.tenant, task.memory);
    }

    /// Returns how many further hosts the tasks need that have waited since `since` or longer. The
    /// further hosts are assumed to be as large as the largest known one.
    pub(crate) fn lacking_for_tasks(&self, since: Duration) -> u32 {
        let waits = |held: &&HeldTask| {
            // One that a host has just refused has no wish yet.
            let may_move = held.task.only.is_none() && !held.wish.hosts.is_empty();
            held.is_waiting() && may_move && held.wish.since <= since
        };
        let most = self.hosts.values().map(|host| host.most_of_tasks).max().unwrap_or_default();
        let mut free: Vec<u64> = self.hosts.values().map(HostUsage::left_for_new_tasks).collect();
        // Bytes of hosts, of which each task has its part of one that has only such tasks.
        let mut bytes = 0_u64;
        for held in self.tasks.values().filter(waits) {
            let each = held.task.memory.max(1);
            let mut tasks = 1 + u64::from(held.wish.behind);
            for free in &mut free {
                let fits = (*free / each).min(tasks);
                tasks -= fits;
                *free -= fits * each;
            }
            // One that no host holds runs where its query keeps room.
            if let Some(part) = most.checked_div(most / each) {
                bytes = bytes.saturating_add(tasks.saturating_mul(part));
            }
        }
        u32::try_from(bytes.div_ceil(most.max(1))).unwrap_or(u32::MAX)
    }
}
