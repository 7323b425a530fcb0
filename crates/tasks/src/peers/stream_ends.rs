//! The ends of the streams of gangs on this host, kept until the workers start that get them.
//!
//! Invariant: a gang that is over has no ends here, and the copying of its streams' bytes ends.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::{CancellationToken, DropGuard};

/// The streams of a task, each with the task at its other end.
pub(crate) type Streams = Vec<(u32, OwnedFd)>;

/// The ends of the streams of the gangs of all queries on a host.
#[derive(Debug, Default)]
pub(crate) struct StreamStore {
    queries: Mutex<HashMap<String, Arc<StreamEnds>>>,
}

/// The ends of the streams of the gangs of one query on a host.
#[derive(Debug, Default)]
pub(crate) struct StreamEnds {
    gangs: Mutex<HashMap<u64, Ends>>,
}

/// The right to have gangs of a query. Dropping it ends all gangs of the query here.
#[derive(Debug)]
pub(crate) struct KeptEnds {
    store: Arc<StreamStore>,
    query: String,
    ends: Arc<StreamEnds>,
}

#[derive(Debug)]
struct Ends {
    /// The tasks on this host that have not started, with their streams.
    tasks: HashMap<u32, Streams>,
    over: DropGuard,
}

impl StreamStore {
    /// Begins to keep ends of a query.
    pub fn keep(self: &Arc<Self>, query: &str) -> KeptEnds {
        let ends = Arc::new(StreamEnds::default());
        self.lock().insert(query.to_owned(), Arc::clone(&ends));
        KeptEnds { store: Arc::clone(self), query: query.to_owned(), ends }
    }

    /// Returns the ends of a query.
    pub fn of(&self, query: &str) -> Option<Arc<StreamEnds>> {
        self.lock().get(query).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<StreamEnds>>> {
        self.queries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StreamEnds {
    /// Begins a gang that has these tasks here.
    pub fn begin(&self, gang: u64, tasks: impl IntoIterator<Item = u32>) {
        let tasks = tasks.into_iter().map(|task| (task, Streams::new())).collect();
        let over = CancellationToken::new().drop_guard();
        self.lock().insert(gang, Ends { tasks, over });
    }

    /// Adds the end of a stream to a task, with the task at the other end. Returns a token that is
    /// cancelled when the gang is over; `None` if the task does not wait for this stream.
    pub fn add(&self, gang: u64, task: u32, other: u32, end: OwnedFd) -> Option<CancellationToken> {
        let mut gangs = self.lock();
        let Ends { tasks, over } = gangs.get_mut(&gang)?;
        let streams = tasks.get_mut(&task)?;
        if streams.iter().any(|(known, _)| *known == other) {
            return None;
        }
        streams.push((other, end));
        Some(over.token().clone())
    }

    /// Takes the streams of a task, which starts now.
    pub fn take(&self, gang: u64, task: u32) -> Streams {
        let mut gangs = self.lock();
        gangs.get_mut(&gang).and_then(|ends| ends.tasks.remove(&task)).unwrap_or_default()
    }

    /// Ends a gang that is over.
    pub fn end(&self, gang: u64) {
        // Closed outside the lock.
        let ends = self.lock().remove(&gang);
        drop(ends);
    }

    /// Ends all gangs.
    pub fn end_all(&self) {
        let all = std::mem::take(&mut *self.lock());
        drop(all);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Ends>> {
        self.gangs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeptEnds {
    /// Returns all ends of the query on this host.
    pub fn all(&self) -> &StreamEnds {
        &self.ends
    }
}

impl Drop for KeptEnds {
    fn drop(&mut self) {
        self.store
            .lock()
            .retain(|name, ends| *name != self.query || !Arc::ptr_eq(ends, &self.ends));
        self.ends.end_all();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    fn end() -> OwnedFd {
        UnixStream::pair().unwrap().0.into()
    }

    #[test]
    fn a_task_gets_each_of_its_streams_once() {
        let store = Arc::new(StreamStore::default());
        let kept = store.keep("q");
        kept.all().begin(1, [5, 6]);
        let ends = store.of("q").unwrap();
        assert!(ends.add(1, 5, 7, end()).is_some() && ends.add(1, 5, 8, end()).is_some());
        // Another one from the same task, for a task that is elsewhere, and of another gang.
        assert!(ends.add(1, 5, 7, end()).is_none() && ends.add(1, 9, 7, end()).is_none());
        assert!(ends.add(2, 5, 7, end()).is_none());
        let taken: Vec<u32> = ends.take(1, 5).into_iter().map(|(task, _)| task).collect();
        assert_eq!(taken, [7, 8]);
        assert!(ends.take(1, 5).is_empty() && ends.add(1, 5, 4, end()).is_none());
    }

    #[test]
    fn a_gang_that_is_over_ends_what_copies_its_bytes() {
        let store = Arc::new(StreamStore::default());
        let kept = store.keep("q");
        kept.all().begin(1, [5]);
        kept.all().begin(2, [6]);
        let [first, second] =
            [(1, 5), (2, 6)].map(|(gang, task)| kept.all().add(gang, task, 9, end()).unwrap());
        kept.all().end(1);
        assert!(first.is_cancelled() && !second.is_cancelled());
        drop(kept);
        assert!(second.is_cancelled() && store.of("q").is_none());
    }
}
