//! The hosts of tasks of queries, in the queue of calls and bursts.
//!
//! Invariant: a task is counted on its host until it is over or dropped. Dropping one that waits
//! leaves the queue.

use std::future::pending;
use std::sync::Arc;

use async_trait::async_trait;
use snowmelt_schedule::{TaskDemand, Ticket, Wish};
use snowmelt_tasks::peers::{TaskPlace, TaskWish};
use snowmelt_types::HostName;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use super::{Decided, Placements, room};

/// A task of a query. Dropping it gives back the room and the place in the queue that it has.
#[derive(Debug)]
pub(crate) struct PlacedTask {
    placements: Placements,
    task: Arc<TaskDemand>,
    held: TaskHold,
}

#[derive(Debug)]
enum TaskHold {
    Nothing,
    Waits(Ticket, oneshot::Receiver<Decided>),
    /// The task waited and a host was found, which the query has not been told yet.
    Found(Ticket, HostName),
    On(Ticket),
}

impl Placements {
    /// Makes a task that is to have a host; `None` where all tasks run on control's own host.
    pub fn task(&self, task: TaskDemand) -> Option<PlacedTask> {
        if self.is_alone() {
            return None;
        }
        self.meet_new_hosts();
        Some(self.with(Arc::new(task), TaskHold::Nothing))
    }

    /// Has tasks run on their hosts, all of them or none.
    ///
    /// # Errors
    /// The host that has no room for its tasks.
    pub fn tasks(&self, tasks: Vec<(TaskDemand, HostName)>) -> Result<Vec<PlacedTask>, HostName> {
        if self.is_alone() {
            return Ok(Vec::new());
        }
        self.meet_new_hosts();
        let now = self.now();
        let mut placed = Vec::new();
        let mut refused = None;
        {
            let mut state = self.lock();
            for (task, host) in tasks {
                let task = Arc::new(task);
                let Some(ticket) = state.scheduler.start_task(Arc::clone(&task), &host, now) else {
                    refused = Some(host);
                    break;
                };
                placed.push(self.with(task, TaskHold::On(ticket)));
            }
        }
        // Those before it are given back outside the lock.
        refused.map_or(Ok(placed), Err)
    }

    /// Counts what a query has on a host beside its tasks. It takes no room of the host.
    pub fn uses(&self, task: TaskDemand, host: &HostName) -> PlacedTask {
        let task = Arc::new(task);
        let now = self.now();
        let ticket = self.lock().scheduler.runs_task(Arc::clone(&task), host, now);
        self.with(task, TaskHold::On(ticket))
    }

    /// Returns whether tasks of queries were placed on a host.
    pub fn has_tasks(&self, host: &HostName) -> bool {
        self.lock().scheduler.has_tasks(host)
    }

    fn with(&self, task: Arc<TaskDemand>, held: TaskHold) -> PlacedTask {
        PlacedTask { placements: self.clone(), task, held }
    }
}

impl PlacedTask {
    /// Takes a decision of the scheduler that has come meanwhile.
    fn hear(&mut self) {
        if let TaskHold::Waits(ticket, decided) = &mut self.held {
            let ticket = *ticket;
            match decided.try_recv() {
                Ok(decision) => self.decided(ticket, Some(decision)),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Closed) => self.decided(ticket, None),
            }
        }
    }

    fn decided(&mut self, ticket: Ticket, decision: Option<Decided>) {
        match decision {
            Some(Decided::On(host)) => self.held = TaskHold::Found(ticket, host.name.clone()),
            // Its host has just left: it asks again.
            _ => {
                self.held = TaskHold::Nothing;
                self.placements.is_over(ticket, None);
            }
        }
    }

    /// Waits for a host, in its place in the queue if it has one.
    fn queue(&mut self, TaskWish { hosts, behind, waited }: TaskWish) {
        let local = self.placements.inner.hosts.local();
        // Others than those that control places may have given room back on its own host.
        let facts = local.facts();
        let now = self.placements.now();
        let wish = Wish { hosts, behind, since: now.saturating_sub(waited) };
        let mut state = self.placements.lock();
        state.scheduler.report(&local.name, room(&facts));
        if let TaskHold::Waits(ticket, _) = &self.held {
            state.scheduler.wish(*ticket, wish);
        } else {
            let (sender, decided) = oneshot::channel();
            let ticket = state.scheduler.ask_task(Arc::clone(&self.task), wish, now);
            state.waiting.insert(ticket, sender);
            self.held = TaskHold::Waits(ticket, decided);
        }
        state.decide(now);
    }
}

#[async_trait]
impl TaskPlace for PlacedTask {
    fn take(&mut self, host: &HostName) -> bool {
        self.leave();
        let task = Arc::clone(&self.task);
        let now = self.placements.now();
        let ticket = self.placements.lock().scheduler.start_task(task, host, now);
        self.held = ticket.map_or(TaskHold::Nothing, TaskHold::On);
        ticket.is_some()
    }

    fn wait(&mut self, wish: TaskWish) -> Option<HostName> {
        if matches!(self.held, TaskHold::On(_)) {
            self.leave();
        }
        self.hear();
        if !matches!(self.held, TaskHold::Found(..)) {
            self.queue(wish);
            self.hear();
        }
        let TaskHold::Found(ticket, host) = &self.held else { return None };
        let ticket = *ticket;
        let host = host.clone();
        self.held = TaskHold::On(ticket);
        Some(host)
    }

    async fn placed(&mut self) {
        match &mut self.held {
            TaskHold::Waits(ticket, decided) => {
                let ticket = *ticket;
                let decision = decided.await.ok();
                self.decided(ticket, decision);
            }
            TaskHold::Found(..) => {}
            TaskHold::Nothing | TaskHold::On(_) => pending().await,
        }
    }

    fn refused(&mut self) {
        let TaskHold::On(ticket) = self.held else { return };
        let (sender, decided) = oneshot::channel();
        self.held = TaskHold::Waits(ticket, decided);
        let now = self.placements.now();
        let mut state = self.placements.lock();
        state.waiting.insert(ticket, sender);
        state.scheduler.refused(ticket, now);
        state.decide(now);
    }

    fn leave(&mut self) {
        match std::mem::replace(&mut self.held, TaskHold::Nothing) {
            TaskHold::Nothing => {}
            TaskHold::Waits(ticket, _) | TaskHold::Found(ticket, _) | TaskHold::On(ticket) => {
                self.placements.is_over(ticket, None);
            }
        }
    }
}

impl Drop for PlacedTask {
    fn drop(&mut self) {
        self.leave();
    }
}
