//! Namespaces made ahead: what does not depend on the job is done before there is one.
//!
//! Invariant: a namespace serves one job and is never used again, so nothing of a former tenant
//! can be in it. Dropping one takes its devices away; the kernel takes the rest.

use std::hash::{BuildHasher, RandomState};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

use crate::counters::Counters;
use crate::host::{Host, lock};
use crate::namespace::{Fault, Namespace};
use crate::netlink::Batch;
use crate::{link, remains};

/// What devices of ours in the host's namespace begin with: rules there go by it.
pub const PREFIX: &str = "snm";

/// A namespace with its loopback device up and its end of a pair.
#[derive(Debug)]
pub struct Prepared {
    /// The namespace.
    pub namespace: Namespace,
    /// The name of the pair's end on the host. Both ends are down until a policy grants egress. As long as it is there, something
    /// of the namespace is left.
    pub device: String,
    /// What it took.
    pub counters: Counters,
    host: Arc<Host>,
}

/// A namespace of somebody else's, entered and furnished before there is a job for it. It has no
/// device on the host, so it is gone as soon as it is dropped and its maker has let it go.
#[derive(Debug)]
pub struct Furnished(Namespace);

impl Furnished {
    pub(crate) fn of(namespace: OwnedFd) -> Result<Self, Fault> {
        Namespace::enter(namespace).map(Self)
    }

    /// Whether nobody has used it since: there is no socket, route or neighbour in it.
    pub fn is_untouched(&mut self) -> bool {
        remains::of(&mut self.0).is_ok_and(|found| found.is_nothing())
    }
}

impl Prepared {
    /// Makes one.
    pub fn make(host: &Arc<Host>) -> Result<Self, Fault> {
        Self::furnish(host, Namespace::make()?)
    }

    /// Makes one of a namespace that somebody else has made.
    pub fn of(host: &Arc<Host>, namespace: OwnedFd) -> Result<Self, Fault> {
        Self::furnish(host, Namespace::enter(namespace)?)
    }

    /// Makes one of such a namespace that was furnished ahead.
    pub fn from_furnished(host: &Arc<Host>, furnished: Furnished) -> Result<Self, Fault> {
        Self::furnish(host, furnished.0)
    }

    fn furnish(host: &Arc<Host>, mut namespace: Namespace) -> Result<Self, Fault> {
        let device = fresh_name(namespace.cookie);
        let mut counters = Counters { crossings: 1, ..Counters::default() };
        let mut batch = Batch::new();
        link::add_pair(&mut batch, &device, namespace.as_fd());
        counters.add(&batch);
        host.run(batch).map_err(|failed| (failed.step, failed.source))?;
        let mut batch = Batch::new();
        link::set_up(&mut batch, "set up the loopback device", link::LOOPBACK);
        link::without_localhost(&mut batch);
        counters.add(&batch);
        namespace.route.run(batch).map_err(|failed| (failed.step, failed.source))?;
        namespace.allow_ipv6()?;
        Ok(Self { namespace, device, counters, host: host.clone() })
    }

    /// Takes the overlay away, so that no packet comes or goes from now on, whoever may still be
    /// in the namespace. Asked for by name: it may not have been made.
    pub fn cut(&mut self) {
        let mut batch = Batch::new();
        link::remove(&mut batch, "remove the overlay's device", link::OVERLAY);
        // It was never made, or went with the namespace: both are what is wanted.
        drop(self.namespace.route.run(batch));
        remains::end_connections(&mut self.namespace);
        if let Ok(Some(found)) = self.host.link(&self.device) {
            let mut batch = Batch::new();
            link::set_down(&mut batch, "set the pair down", found.index);
            drop(self.host.run(batch));
        }
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        self.cut();
    }
}

/// Random, because several nodes may share a host, and no name is ever used twice. 15 characters
/// are the most that a device's name has.
fn fresh_name(cookie: u64) -> String {
    let random = RandomState::new().hash_one(cookie);
    format!("{PREFIX}{:012x}", random >> 16)
}

/// A bounded number of prepared namespaces, filled up by a thread of its own.
pub struct Pool {
    shared: Arc<Shared>,
    filler: Option<thread::JoinHandle<()>>,
}

struct Shared {
    host: Arc<Host>,
    most: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    ready: Vec<Prepared>,
    /// A fault that the filler met: it tries again when the next one is taken.
    failed: bool,
    ending: bool,
}

impl Pool {
    /// Begins to fill a pool of at most `most`.
    pub fn start(host: &Arc<Host>, most: usize) -> std::io::Result<Self> {
        let state = Mutex::new(State::default());
        let shared = Arc::new(Shared { host: host.clone(), most, state, changed: Condvar::new() });
        let filling = shared.clone();
        let filler = match most {
            0 => None,
            _ => Some(
                thread::Builder::new().name("network-pool".into()).spawn(move || fill(&filling))?,
            ),
        };
        Ok(Self { shared, filler })
    }

    /// One from the pool, or a fresh one.
    pub fn take(&self) -> Result<Prepared, Fault> {
        let ready = {
            let mut state = lock(&self.shared.state);
            state.failed = false;
            self.shared.changed.notify_all();
            state.ready.pop()
        };
        ready.map_or_else(|| Prepared::make(&self.shared.host), Ok)
    }

    /// How many are ready.
    pub fn ready(&self) -> usize {
        lock(&self.shared.state).ready.len()
    }

    /// Waits until the pool is full or cannot be filled.
    pub fn wait_until_full(&self) {
        let mut state = lock(&self.shared.state);
        while state.ready.len() < self.shared.most && !state.failed {
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        lock(&self.shared.state).ending = true;
        self.shared.changed.notify_all();
        if let Some(filler) = self.filler.take() {
            // It never panics; if it did, there is nothing to fill any more.
            drop(filler.join());
        }
    }
}

fn fill(shared: &Shared) {
    let mut state = lock(&shared.state);
    while !state.ending {
        if state.ready.len() >= shared.most || state.failed {
            state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            continue;
        }
        drop(state);
        let made = Prepared::make(&shared.host);
        state = lock(&shared.state);
        match made {
            Ok(prepared) => state.ready.push(prepared),
            Err((step, error)) => {
                tracing::warn!(step, %error, "a network could not be made ahead");
                state.failed = true;
            }
        }
        shared.changed.notify_all();
    }
}
