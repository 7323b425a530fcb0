//! The host that a root asks before the registry: the root of another stripe, which has blocks of
//! this one if it used the image before.
//!
//! Invariant: the host is asked only for what it has, so that two roots never wait for each other.
//! A host that has nothing is left alone for a while: each question costs a way there and back.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::host::PeerState;

/// The number of questions in a row without an answer after which the host is left alone.
const MAX_MISSES: u32 = 4;
/// How long the host is left alone then.
const PAUSE: Duration = Duration::from_secs(2);

/// The host to ask beside the parent, if there is one, and how often it had no answer.
#[derive(Default)]
pub(super) struct Beside(Mutex<State>);

#[derive(Default)]
struct State {
    peer: Option<Arc<PeerState>>,
    misses: u32,
    quiet_until: Option<Instant>,
}

impl Beside {
    /// Asks this host from now on.
    pub fn set(&self, peer: Option<Arc<PeerState>>) {
        *self.state() = State { peer, ..State::default() };
    }

    /// Returns the host, if it is to be asked now.
    pub fn to_ask(&self) -> Option<Arc<PeerState>> {
        let state = self.state();
        let may_ask = state.quiet_until.is_none_or(|until| Instant::now() >= until);
        state.peer.clone().filter(|peer| may_ask && peer.is_usable())
    }

    /// Notes whether the host had what it was asked for.
    pub fn had(&self, it: bool) {
        let mut state = self.state();
        state.misses = if it { 0 } else { state.misses + 1 };
        state.quiet_until = (state.misses >= MAX_MISSES).then(|| {
            state.misses = 0;
            Instant::now() + PAUSE
        });
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
