//! The order in which tasks get a place when there is no room for them at first.
//!
//! One task looks for room, and the others wait for their turns. So they do not take each other's
//! room, and are placed in the order in which they were requested. Where the whole cluster decides
//! which task gets a host, the task that has the turn waits there on behalf of all.
//!
//! Invariant: a task has the turn until it has its place, and not while it starts there.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tokio::sync::{Mutex as AsyncMutex, Notify};

/// The interval after which hosts without room are asked again.
const ASKED_AGAIN: Duration = Duration::from_millis(500);

/// The result of a search for a place.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PlaceSearch<P> {
    /// A place with room that is reserved.
    Place(P),
    /// No host has room.
    NoRoom,
    /// No place yet: a better one than those with room now may be free in a moment.
    Soon,
}

/// A task that is to be placed and started.
#[async_trait]
pub(super) trait Steps: Sync {
    /// A place with room for the task.
    type Place: Send;
    /// The task once it runs.
    type Begun: Send;
    type Error: Send;
    /// The task's request for a host, from the first look until it has one.
    type Asked: Send;

    /// Begins to request a host.
    fn ask(&self) -> Self::Asked;

    /// Looks for room on all hosts.
    async fn look(&self, asked: &mut Self::Asked) -> Result<PlaceSearch<Self::Place>, Self::Error>;

    /// Looks for room on all hosts while the task has its turn: if there is no room, the request
    /// waits for some.
    async fn look_in_turn(
        &self,
        asked: &mut Self::Asked,
        queue: WaitingTasks,
    ) -> Result<PlaceSearch<Self::Place>, Self::Error>;

    /// Waits until the request has been given a host for which it has waited.
    async fn placed(&self, asked: &mut Self::Asked);

    /// Waits for room on this host.
    async fn here(&self) -> Result<Self::Place, Self::Error>;

    /// Starts the task in its place; `None` if the place is gone.
    async fn start(&self, place: Self::Place) -> Result<Option<Self::Begun>, Self::Error>;
}

/// The tasks of a query that wait for room.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitingTasks {
    pub tasks: usize,
    /// The time since when at least one task has been waiting.
    pub since: Instant,
}

/// The turns of the tasks of one query.
#[derive(Debug, Default)]
pub(super) struct TaskTurns {
    turn: AsyncMutex<()>,
    // `None` if no task waits. Held for a count only.
    waiting: Mutex<Option<WaitingTasks>>,
    freed: Arc<Notify>,
}

/// A count of a task that waits, until it is dropped.
struct WaitingCount<'t>(&'t TaskTurns);

impl<'t> WaitingCount<'t> {
    fn new(turns: &'t TaskTurns) -> Self {
        let mut waiting = turns.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.get_or_insert_with(|| WaitingTasks { tasks: 0, since: Instant::now() }).tasks += 1;
        Self(turns)
    }
}

impl Drop for WaitingCount<'_> {
    fn drop(&mut self) {
        let mut waiting = self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        *waiting = waiting
            .map(|waiting| WaitingTasks { tasks: waiting.tasks.saturating_sub(1), ..waiting })
            .filter(|waiting| waiting.tasks > 0);
    }
}

impl TaskTurns {
    /// Returns the number of tasks that wait.
    pub fn waiting(&self) -> usize {
        self.queue().map_or(0, |waiting| waiting.tasks)
    }

    fn queue(&self) -> Option<WaitingTasks> {
        *self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the notification that there may be room where there was none.
    pub fn freed(&self) -> &Arc<Notify> {
        &self.freed
    }

    /// Places a task and starts it, and places it again if its place is gone by then.
    pub async fn begin<T: Steps>(&self, task: &T) -> Result<T::Begun, T::Error> {
        loop {
            let place = self.place(task).await?;
            if let Some(begun) = task.start(place).await? {
                return Ok(begun);
            }
        }
    }

    async fn place<T: Steps>(&self, task: &T) -> Result<T::Place, T::Error> {
        let counted = || WaitingCount::new(self);
        let mut waits = None;
        let mut asked = task.ask();
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            // Before the look, so that no end after it is missed.
            freed.as_mut().enable();
            match task.look(&mut asked).await? {
                PlaceSearch::Place(place) => return Ok(place),
                PlaceSearch::NoRoom => break,
                PlaceSearch::Soon => {}
            }
            waits.get_or_insert_with(counted);
            tokio::select! {
                () = freed => {}
                () = tokio::time::sleep(ASKED_AGAIN) => {}
            }
        }
        let _waits = waits.unwrap_or_else(counted);
        let _turn = self.turn.lock().await;
        let mut here = task.here();
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            let queue = self.queue().unwrap_or(WaitingTasks { tasks: 1, since: Instant::now() });
            let found = task.look_in_turn(&mut asked, queue).await?;
            let may_wait_here = match found {
                PlaceSearch::Place(place) => return Ok(place),
                PlaceSearch::NoRoom => true,
                PlaceSearch::Soon => false,
            };
            tokio::select! {
                place = &mut here, if may_wait_here => return place,
                () = task.placed(&mut asked) => {}
                () = freed => {}
                () = tokio::time::sleep(ASKED_AGAIN) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::future::pending;
    use tokio::task::yield_now;

    use super::*;

    /// Tasks, and hosts that each have room for a number of them.
    #[derive(Default)]
    struct Hosts {
        room: Mutex<Vec<usize>>,
        /// True if better hosts may have room soon.
        soon: Mutex<bool>,
        /// The hosts of the tasks whose starts have begun.
        starts: Mutex<Vec<usize>>,
        /// The number of first starts that fail because their host is lost meanwhile.
        lost: Mutex<usize>,
        /// The place that the cluster has found for the task that waits.
        found: Mutex<Option<usize>>,
        is_found: Notify,
        /// The number of waiting tasks at each look in turn.
        queues: Mutex<Vec<usize>>,
    }

    struct Task<'h> {
        hosts: &'h Hosts,
        starts_at_once: bool,
    }

    #[async_trait]
    impl Steps for Task<'_> {
        type Place = usize;
        type Begun = usize;
        type Error = ();
        type Asked = ();

        fn ask(&self) {}

        async fn look_in_turn(
            &self,
            _: &mut (),
            queue: WaitingTasks,
        ) -> Result<PlaceSearch<usize>, ()> {
            self.hosts.queues.lock().unwrap().push(queue.tasks);
            let found = self.hosts.found.lock().unwrap().take();
            if let Some(host) = found {
                return Ok(PlaceSearch::Place(host));
            }
            self.look(&mut ()).await
        }

        async fn placed(&self, _: &mut ()) {
            self.hosts.is_found.notified().await;
        }

        async fn look(&self, _: &mut ()) -> Result<PlaceSearch<usize>, ()> {
            // As a question to another host.
            yield_now().await;
            if *self.hosts.soon.lock().unwrap() {
                return Ok(PlaceSearch::Soon);
            }
            let mut room = self.hosts.room.lock().unwrap();
            let free = room.iter().position(|room| *room > 0);
            Ok(free.map_or(PlaceSearch::NoRoom, |host| {
                room[host] -= 1;
                PlaceSearch::Place(host)
            }))
        }

        async fn here(&self) -> Result<usize, ()> {
            let soon = *self.hosts.soon.lock().unwrap();
            assert!(!soon, "it waits for a better host");
            pending().await
        }

        async fn start(&self, host: usize) -> Result<Option<usize>, ()> {
            self.hosts.starts.lock().unwrap().push(host);
            let is_lost = {
                let mut lost = self.hosts.lost.lock().unwrap();
                let is_lost = *lost > 0;
                *lost = lost.saturating_sub(1);
                is_lost
            };
            match is_lost || self.starts_at_once {
                true => Ok((!is_lost).then_some(host)),
                false => pending().await,
            }
        }
    }

    /// Polls futures until nothing changes any more.
    async fn settled() {
        for _ in 0..100 {
            yield_now().await;
        }
    }

    #[tokio::test]
    async fn tasks_that_waited_start_at_the_same_time() {
        let hosts = Hosts::default();
        let turns = TaskTurns::default();
        *hosts.room.lock().unwrap() = vec![0, 0, 0];
        let tasks: Vec<_> = (0..3).map(|_| Task { hosts: &hosts, starts_at_once: false }).collect();
        let all = futures::future::join_all(tasks.iter().map(|task| turns.begin(task)));
        let watch = async {
            settled().await;
            assert_eq!(turns.waiting(), 3);
            *hosts.room.lock().unwrap() = vec![1, 1, 1];
            turns.freed().notify_waiters();
            while turns.waiting() > 0 {
                yield_now().await;
            }
            settled().await;
            // No start has ended.
            assert_eq!(*hosts.starts.lock().unwrap(), [0, 1, 2]);
        };
        tokio::select! {
            _ = all => panic!("a start has ended"),
            () = watch => {}
        }
    }

    #[tokio::test]
    async fn tasks_wait_for_a_better_place_outside_the_turn() {
        let hosts = Hosts::default();
        let turns = TaskTurns::default();
        *hosts.soon.lock().unwrap() = true;
        let tasks: Vec<_> = (0..2).map(|_| Task { hosts: &hosts, starts_at_once: true }).collect();
        let all = futures::future::join_all(tasks.iter().map(|task| turns.begin(task)));
        let opens = async {
            settled().await;
            assert_eq!(turns.waiting(), 2);
            assert!(turns.turn.try_lock().is_ok());
            *hosts.room.lock().unwrap() = vec![0, 2];
            *hosts.soon.lock().unwrap() = false;
            turns.freed().notify_waiters();
        };
        let (begun, ()) = tokio::join!(all, opens);
        assert_eq!(begun, [Ok(1), Ok(1)]);
        assert_eq!(turns.waiting(), 0);
    }

    #[tokio::test]
    async fn the_task_that_has_its_turn_waits_for_all_and_is_told_of_its_place() {
        let hosts = Hosts::default();
        let turns = TaskTurns::default();
        let tasks: Vec<_> = (0..3).map(|_| Task { hosts: &hosts, starts_at_once: true }).collect();
        let all = futures::future::join_all(tasks.iter().map(|task| turns.begin(task)));
        let decides = async {
            for place in [5, 6, 7] {
                settled().await;
                *hosts.found.lock().unwrap() = Some(place);
                hosts.is_found.notify_one();
            }
        };
        let (begun, ()) = tokio::join!(all, decides);
        assert_eq!(begun, [Ok(5), Ok(6), Ok(7)]);
        let queues = hosts.queues.lock().unwrap();
        assert!(queues.contains(&3) && queues.last() == Some(&1), "{queues:?}");
        assert_eq!(turns.waiting(), 0);
    }

    #[tokio::test]
    async fn a_task_whose_host_is_lost_before_it_has_started_is_placed_again() {
        let hosts = Hosts::default();
        let turns = TaskTurns::default();
        *hosts.room.lock().unwrap() = vec![1, 0, 1];
        *hosts.lost.lock().unwrap() = 1;
        let task = Task { hosts: &hosts, starts_at_once: true };
        assert_eq!(turns.begin(&task).await, Ok(2));
        assert_eq!(*hosts.starts.lock().unwrap(), [0, 2]);
    }
}
