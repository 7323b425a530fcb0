//! The attempts of one query on a host that runs tasks for a control on another host.
//!
//! An attempt is started over a connection of its own, and given up over the connection of the
//! session: the two messages may arrive in any order. Invariant: an attempt that was given up is
//! never kept.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

/// The attempts of a query, by number; `S` is what a running attempt holds.
#[derive(Debug)]
pub(super) struct Tasks<S> {
    state: Mutex<HashMap<u64, HostedTask<S>>>,
}

#[derive(Debug)]
enum HostedTask<S> {
    /// The attempt is being started. The token is cancelled if nobody waits for the start any more.
    Starting(CancellationToken),
    Runs(S),
    /// The attempt was given up before it ran.
    Abandoned,
}

impl<S> Default for Tasks<S> {
    fn default() -> Self {
        Self { state: Mutex::default() }
    }
}

impl<S> Tasks<S> {
    /// Begins the start of an attempt. Returns a token that ends the start; `None` if the attempt
    /// was given up.
    pub fn begin(&self, attempt: u64) -> Option<CancellationToken> {
        match self.lock().entry(attempt) {
            Entry::Vacant(place) => {
                let token = CancellationToken::new();
                place.insert(HostedTask::Starting(token.clone()));
                Some(token)
            }
            Entry::Occupied(_) => None,
        }
    }

    /// Notes that an attempt runs. False if it was given up.
    pub fn runs(&self, attempt: u64, holds: S) -> bool {
        let mut state = self.lock();
        let may_run = matches!(state.get(&attempt), Some(HostedTask::Starting(_)));
        if may_run {
            state.insert(attempt, HostedTask::Runs(holds));
        }
        may_run
    }

    /// Notes that an attempt did not start.
    pub fn failed(&self, attempt: u64) {
        let mut state = self.lock();
        if matches!(state.get(&attempt), Some(HostedTask::Starting(_))) {
            state.remove(&attempt);
        }
    }

    /// Takes an attempt that runs.
    pub fn end(&self, attempt: u64) -> Option<S> {
        let mut state = self.lock();
        match state.remove(&attempt)? {
            HostedTask::Runs(holds) => Some(holds),
            other => {
                state.insert(attempt, other);
                None
            }
        }
    }

    /// Gives up an attempt for which nobody waits any more. What the attempt holds is dropped.
    pub fn abandon(&self, attempt: u64) {
        let before = self.lock().insert(attempt, HostedTask::Abandoned);
        if let Some(HostedTask::Starting(token)) = before {
            token.cancel();
        }
    }

    /// Drops everything that running attempts hold.
    pub fn clear(&self) {
        let all = std::mem::take(&mut *self.lock());
        drop(all);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, HostedTask<S>>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_that_is_given_up_does_not_stay_whenever_that_is_heard() {
        // Before its start.
        let tasks = Tasks::default();
        tasks.abandon(1);
        assert!(tasks.begin(1).is_none());
        // While it starts.
        let token = tasks.begin(2).unwrap();
        assert!(!token.is_cancelled());
        tasks.abandon(2);
        assert!(token.is_cancelled() && !tasks.runs(2, "two"));
        // When it runs already.
        tasks.begin(3).unwrap();
        assert!(tasks.runs(3, "three"));
        tasks.abandon(3);
        assert_eq!([1, 2, 3].map(|attempt| tasks.end(attempt)), [None; 3]);
    }

    #[test]
    fn an_attempt_that_runs_is_ended_once() {
        let tasks = Tasks::default();
        assert!(tasks.begin(1).is_some() && tasks.end(1).is_none());
        assert!(tasks.runs(1, "one"));
        assert_eq!((tasks.end(1), tasks.end(1)), (Some("one"), None));
        tasks.begin(2).unwrap();
        tasks.failed(2);
        assert!(tasks.begin(2).is_some(), "nothing is left of one that did not start");
    }
}
