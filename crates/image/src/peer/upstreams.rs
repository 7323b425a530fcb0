//! Which host the blobs of each image are read from, and how many bytes came from where.
//!
//! Invariant: an image has at most one parent at a time; a blob of several images is read from the
//! parent of the one that was placed last.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::host::{Connect, Failure, Patience, Peer, PeerHost};
use super::protocol::Refusal;
use crate::block::OciDigest;

/// The last ranges whose senders are remembered: more than can wait for their verification.
const REMEMBERED: usize = 256;

/// Bytes of an image between this host and others, since the start of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flow {
    /// Bytes from parents.
    pub from_parents: u64,
    /// Bytes from the registry.
    pub from_registry: u64,
    /// Bytes to children.
    pub to_children: u64,
    /// Requests to parents that failed, so that the registry was asked for the rest.
    pub failures: u64,
    /// Wrong blocks that parents sent.
    pub wrong_blocks: u64,
}

/// The parents of this host, for each image that it has a place for.
pub struct Upstreams {
    pub(super) connect: Arc<dyn Connect>,
    pub(super) patience: Patience,
    routes: Mutex<Routes>,
    senders: Mutex<VecDeque<Sent>>,
}

#[derive(Default)]
struct Routes {
    hosts: HashMap<PeerHost, Arc<Peer>>,
    images: HashMap<OciDigest, Arc<Route>>,
    /// By blob.
    blobs: HashMap<OciDigest, Arc<Route>>,
}

/// Who sent a range, to be named if it turns out to be wrong.
struct Sent {
    blob: OciDigest,
    range: Range<u64>,
    /// None for the registry.
    peer: Option<(Arc<Route>, Arc<Peer>)>,
}

/// Where the blobs of an image are read from.
pub(super) struct Route {
    pub image: OciDigest,
    parent: Mutex<Parent>,
    pub from_parents: AtomicU64,
    pub from_registry: AtomicU64,
    failures: AtomicU64,
    wrong_blocks: AtomicU64,
}

#[derive(Default)]
struct Parent {
    peer: Option<Arc<Peer>>,
    /// It said that it does not have the image, and is not asked for it any more.
    lacks: bool,
}

impl Upstreams {
    /// Without images: everything is read from the registry.
    pub fn new(connect: Arc<dyn Connect>, patience: Patience) -> Self {
        Self { connect, patience, routes: Mutex::default(), senders: Mutex::default() }
    }

    /// Reads the blobs of an image from this host from now on; `None` for the registry.
    pub fn place(
        &self,
        image: &OciDigest,
        blobs: impl IntoIterator<Item = OciDigest>,
        parent: Option<PeerHost>,
    ) {
        let mut routes = self.routes();
        let peer = parent.map(|host| {
            let known = routes.hosts.entry(host.clone());
            Arc::clone(known.or_insert_with(|| Arc::new(Peer::new(host))))
        });
        let new = || Arc::new(Route::new(image));
        let route = Arc::clone(routes.images.entry(image.clone()).or_insert_with(new));
        *route.parent() = Parent { peer, lacks: false };
        for blob in blobs {
            routes.blobs.insert(blob, Arc::clone(&route));
        }
    }

    /// The bytes of each image so far, without those to children.
    pub fn flows(&self) -> Vec<(OciDigest, Flow)> {
        let routes = self.routes();
        routes.images.iter().map(|(image, route)| (image.clone(), route.flow())).collect()
    }

    pub(super) fn route(&self, blob: &OciDigest) -> Option<Arc<Route>> {
        self.routes().blobs.get(blob).cloned()
    }

    /// Remembers who sent a range.
    pub(super) fn remember(&self, blob: &OciDigest, range: Range<u64>, sender: Sender) {
        let peer = match sender {
            Sender::Peer(route, peer) => Some((route, peer)),
            Sender::Registry => None,
        };
        let mut senders = self.senders();
        if senders.len() == REMEMBERED {
            senders.pop_front();
        }
        senders.push_back(Sent { blob: blob.clone(), range, peer });
    }

    /// Expels the host that sent this byte last, if a host did.
    pub(super) fn found_damaged(&self, blob: &OciDigest, byte: u64) {
        let senders = self.senders();
        let sent = senders.iter().rev().find(|it| it.blob == *blob && it.range.contains(&byte));
        let Some((route, peer)) = sent.and_then(|it| it.peer.clone()) else { return };
        drop(senders);
        route.wrong_blocks.fetch_add(1, Ordering::Relaxed);
        let first = peer.expel();
        let (host, image) = (&peer.host, &route.image);
        if first {
            tracing::error!(%host, %image, %blob, "a host sent a wrong block and is not asked again");
        }
    }

    fn routes(&self) -> MutexGuard<'_, Routes> {
        self.routes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn senders(&self) -> MutexGuard<'_, VecDeque<Sent>> {
        self.senders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who sends a range.
pub(super) enum Sender {
    Peer(Arc<Route>, Arc<Peer>),
    Registry,
}

impl Route {
    fn new(image: &OciDigest) -> Self {
        Self {
            image: image.clone(),
            parent: Mutex::default(),
            from_parents: AtomicU64::new(0),
            from_registry: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            wrong_blocks: AtomicU64::new(0),
        }
    }

    /// The host to ask now.
    pub fn usable_parent(&self) -> Option<Arc<Peer>> {
        let parent = self.parent();
        parent.peer.clone().filter(|peer| !parent.lacks && peer.is_usable())
    }

    /// Counts a failure of its parent, which is left alone for a time if it may fail again.
    pub fn failed(&self, peer: &Peer, failure: &Failure, rest: Duration) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        let (host, image) = (&peer.host, &self.image);
        tracing::warn!(%host, %image, %failure, "blocks are read from the registry instead of a host");
        match failure {
            Failure::Refused(Refusal::Missing) => {
                let mut parent = self.parent();
                let is_it = parent.peer.as_ref().is_some_and(|it| it.host == peer.host);
                parent.lacks |= is_it;
            }
            Failure::Refused(_) => {}
            Failure::Broken(_) | Failure::Late | Failure::Slow => peer.rest(rest),
        }
    }

    fn flow(&self) -> Flow {
        Flow {
            from_parents: self.from_parents.load(Ordering::Relaxed),
            from_registry: self.from_registry.load(Ordering::Relaxed),
            to_children: 0,
            failures: self.failures.load(Ordering::Relaxed),
            wrong_blocks: self.wrong_blocks.load(Ordering::Relaxed),
        }
    }

    fn parent(&self) -> MutexGuard<'_, Parent> {
        self.parent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
