//! The recent changes of a store in this process, for its watches.
//!
//! Invariant: revisions are retained or dropped as a whole, so a watch gets either every change
//! from its revision on or an error. A slow watch does not delay writers: it reads from this
//! history.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::StreamExt;
use tokio::sync::watch;

use crate::{Error, Result, Revision, Since, StoreEvent, Watch};

/// The size of a history. The newest revision is always retained.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub events: usize,
    pub bytes: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { events: 4096, bytes: 8 << 20 }
    }
}

/// The recent changes.
#[derive(Debug)]
pub(crate) struct History {
    bounds: Bounds,
    retained: Arc<Mutex<Retained>>,
    /// The channel that wakes the watches.
    updates: watch::Sender<()>,
}

#[derive(Debug)]
struct Retained {
    events: VecDeque<StoreEvent>,
    bytes: usize,
    /// The first revision whose events are, or will be, retained.
    oldest: Revision,
    /// The revision of the store.
    latest: Revision,
}

impl History {
    /// Makes an empty history of a store with this revision.
    pub fn new(at: Revision, bounds: Bounds) -> Self {
        let retained =
            Retained { events: VecDeque::new(), bytes: 0, oldest: at.next(), latest: at };
        Self { bounds, retained: Arc::new(Mutex::new(retained)), updates: watch::Sender::new(()) }
    }

    /// Adds the events of the next revision.
    pub fn push(&self, events: Vec<StoreEvent>) {
        let Some(last) = events.last() else { return };
        let mut retained = lock(&self.retained);
        retained.latest = last.revision;
        retained.bytes += events.iter().map(StoreEvent::bytes).sum::<usize>();
        retained.events.extend(events);
        retained.trim(self.bounds);
        drop(retained);
        self.updates.send_replace(());
    }

    /// Drops all events if the store has a revision that is not in the history: another process
    /// has changed it.
    pub fn resync(&self, at: Revision) {
        let mut retained = lock(&self.retained);
        if retained.latest != at {
            *retained =
                Retained { events: VecDeque::new(), bytes: 0, oldest: at.next(), latest: at };
            drop(retained);
            self.updates.send_replace(());
        }
    }

    /// Starts a watch for the events of keys with a prefix.
    pub fn watch(&self, prefix: &str, since: Since) -> Result<Watch> {
        let retained = lock(&self.retained);
        let next = match since {
            Since::Now => retained.latest.next(),
            Since::Revision(revision) => revision,
        };
        retained.reaches(next)?;
        let watcher = Watcher {
            prefix: prefix.to_owned(),
            next,
            ready: VecDeque::new(),
            retained: Arc::clone(&self.retained),
            updates: self.updates.subscribe(),
            failed: false,
        };
        Ok(futures::stream::unfold(watcher, Watcher::step).boxed())
    }
}

impl Retained {
    fn reaches(&self, next: Revision) -> Result<()> {
        if next < self.oldest {
            return Err(Error::Compacted { asked: next, oldest: self.oldest });
        }
        Ok(())
    }

    fn trim(&mut self, bounds: Bounds) {
        let too_much = |retained: &Self| {
            retained.events.len() > bounds.events || retained.bytes > bounds.bytes
        };
        while too_much(self) {
            let Some(first) = self.events.front().map(|event| event.revision) else { return };
            if first == self.latest {
                return;
            }
            while let Some(event) = self.events.pop_front_if(|event| event.revision == first) {
                self.bytes -= event.bytes();
            }
            self.oldest = first.next();
        }
    }

    /// The events from a revision on.
    fn since(&self, next: Revision) -> impl Iterator<Item = &StoreEvent> {
        let begin = self.events.partition_point(|event| event.revision < next);
        self.events.range(begin..)
    }
}

/// The state of a watch.
struct Watcher {
    prefix: String,
    /// The first revision that the watch has not read.
    next: Revision,
    /// The events that were read and not delivered yet.
    ready: VecDeque<StoreEvent>,
    retained: Arc<Mutex<Retained>>,
    updates: watch::Receiver<()>,
    failed: bool,
}

impl Watcher {
    async fn step(mut self) -> Option<(Result<StoreEvent>, Self)> {
        loop {
            if self.failed {
                return None;
            }
            if let Some(event) = self.ready.pop_front() {
                return Some((Ok(event), self));
            }
            // Marked before the read, so that a later change wakes the watch again.
            self.updates.mark_unchanged();
            if let Err(error) = self.read() {
                self.failed = true;
                return Some((Err(error), self));
            }
            if self.ready.is_empty() {
                self.updates.changed().await.ok()?;
            }
        }
    }

    fn read(&mut self) -> Result<()> {
        let retained = lock(&self.retained);
        retained.reaches(self.next)?;
        let own = retained.since(self.next).filter(|event| event.key.starts_with(&self.prefix));
        self.ready.extend(own.cloned());
        self.next = self.next.max(retained.latest.next());
        Ok(())
    }
}

fn lock(retained: &Mutex<Retained>) -> MutexGuard<'_, Retained> {
    retained.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KeyChange;

    fn event(revision: u64, key: &str, bytes: usize) -> StoreEvent {
        let change = KeyChange::Put(vec![0; bytes].into());
        StoreEvent { revision: Revision(revision), key: key.to_owned(), change }
    }

    fn history(events: usize, bytes: usize) -> History {
        History::new(Revision(0), Bounds { events, bytes })
    }

    #[tokio::test]
    async fn a_watch_that_falls_behind_gets_an_error_and_ends() {
        let history = history(2, 1000);
        let mut watch = history.watch("", Since::Now).unwrap();
        (1..=5).for_each(|revision| history.push(vec![event(revision, "k", 1)]));
        let failed = watch.next().await.unwrap().unwrap_err();
        assert!(
            matches!(failed, Error::Compacted { asked: Revision(1), oldest: Revision(4) }),
            "{failed}"
        );
        assert!(watch.next().await.is_none());
        assert!(history.watch("", Since::Revision(Revision(3))).is_err());
        let mut late = history.watch("", Since::Revision(Revision(4))).unwrap();
        assert_eq!(late.next().await.unwrap().unwrap().revision, Revision(4));
    }

    #[tokio::test]
    async fn revisions_are_dropped_as_a_whole_and_the_newest_is_always_retained() {
        let history = history(10, 100);
        history.push(vec![event(1, "a", 30), event(1, "b", 30)]);
        history.push(vec![event(2, "c", 60)]);
        assert!(history.watch("", Since::Revision(Revision(1))).is_err());
        history.push(vec![event(3, "d", 1000)]);
        let mut watch = history.watch("", Since::Revision(Revision(3))).unwrap();
        assert_eq!(watch.next().await.unwrap().unwrap().key, "d");
        assert!(history.watch("", Since::Revision(Revision(2))).is_err());
    }

    #[tokio::test]
    async fn a_watch_ends_with_its_store() {
        let history = history(10, 100);
        let mut watch = history.watch("", Since::Now).unwrap();
        history.push(vec![event(1, "a", 1)]);
        drop(history);
        assert_eq!(watch.next().await.unwrap().unwrap().key, "a");
        assert!(watch.next().await.is_none());
    }
}
