//! The hosts from which the blobs of each image are read, and the bytes that came from each place.
//!
//! Blocks of an image belong to stripes by their place in their blob, in runs of [`RUN_BYTES`]:
//! each stripe spreads through another tree of the same hosts.
//!
//! Invariant: an image has at most one parent for each stripe at a time; a blob of several images
//! is read from the parents of the one that was placed last. All hosts divide a blob alike.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::host::{Connect, Patience, PeerFailure, PeerHost, PeerState};
use super::protocol::PeerRefusal;
use super::stripe_root::Beside;
use super::transfer_rates::{LinkRate, Meter, is_slow};
use crate::block::OciDigest;

/// The number of the last ranges whose senders are remembered: more than can wait for their
/// verification.
const REMEMBERED: usize = 256;

/// Blocks that begin in the same part of a blob of this size are of one stripe: a request for
/// several of them costs about as much as for one.
pub(super) const RUN_BYTES: u64 = 1 << 20;

/// The most images that are read from other hosts, or served to them: the one that was placed or
/// used longest ago is forgotten. It is read from the registry then.
pub(super) const MAX_IMAGES: usize = 1000;

/// The most hosts that are known: more than in a large cluster. If there are more, the hosts are
/// forgotten from which no image is read.
const MAX_HOSTS: usize = 4096;

/// Bytes of an image between this host and others, since the start of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flow {
    /// Bytes that came from parents.
    pub from_parents: u64,
    /// Bytes that came from the registry.
    pub from_registry: u64,
    /// Bytes that were sent to children.
    pub to_children: u64,
    /// The number of requests to parents that failed, so that the registry was asked for the rest.
    pub failures: u64,
    /// The number of wrong blocks that parents sent.
    pub wrong_blocks: u64,
}

/// The parents of this host, for each image that it has a place for.
pub struct Upstreams {
    pub(super) connect: Arc<dyn Connect>,
    pub(super) patience: Patience,
    routes: Mutex<Routes>,
    senders: Mutex<VecDeque<SentRange>>,
    link: Mutex<LinkRate>,
    registry: Arc<Mutex<Meter>>,
}

#[derive(Default)]
struct Routes {
    hosts: HashMap<PeerHost, Arc<PeerState>>,
    images: HashMap<OciDigest, Arc<BlobRoute>>,
    /// The routes of images, by the digests of their blobs.
    blobs: HashMap<OciDigest, Arc<BlobRoute>>,
    /// The number of placements so far.
    placements: u64,
}

/// The sender of a range, to be named if the range turns out to be wrong.
struct SentRange {
    blob: OciDigest,
    range: Range<u64>,
    /// The host that sent the bytes, with the route; `None` for the registry.
    peer: Option<(Arc<BlobRoute>, Arc<PeerState>)>,
}

/// The places from which the blobs of an image are read.
pub(super) struct BlobRoute {
    pub image: OciDigest,
    /// The number of the image's last placement.
    placed: AtomicU64,
    /// The parents of this host, by stripe.
    parents: Mutex<Vec<Parent>>,
    pub beside: Beside,
    pub from_parents: AtomicU64,
    pub from_registry: AtomicU64,
    failures: AtomicU64,
    wrong_blocks: AtomicU64,
}

#[derive(Default)]
struct Parent {
    /// The parent; `None` for the registry.
    peer: Option<Arc<PeerState>>,
    /// True if the parent said that it does not have the image. It is not asked for the image any
    /// more.
    lacks: bool,
}

impl Upstreams {
    /// Makes upstreams without images: everything is read from the registry.
    pub fn new(connect: Arc<dyn Connect>, patience: Patience) -> Self {
        let routes = Mutex::default();
        let senders = Mutex::default();
        let link = Mutex::default();
        let registry = Arc::default();
        Self { connect, patience, routes, senders, link, registry }
    }

    /// Reads the blobs of an image from these hosts from now on, each stripe from one; `None` for
    /// the registry.
    pub fn place(
        &self,
        image: &OciDigest,
        blobs: impl IntoIterator<Item = OciDigest>,
        parents: impl IntoIterator<Item = Option<PeerHost>>,
    ) {
        let mut routes = self.routes();
        let mut known = |host: PeerHost| {
            let known = routes.hosts.entry(host.clone());
            Arc::clone(known.or_insert_with(|| Arc::new(PeerState::new(host))))
        };
        let parents = parents.into_iter().map(|host| host.map(&mut known));
        let parents = parents.map(|peer| Parent { peer, lacks: false }).collect();
        let new = || Arc::new(BlobRoute::new(image));
        let route = Arc::clone(routes.images.entry(image.clone()).or_insert_with(new));
        *route.parents() = parents;
        routes.placements += 1;
        route.placed.store(routes.placements, Ordering::Relaxed);
        for blob in blobs {
            routes.blobs.insert(blob, Arc::clone(&route));
        }
        routes.limit();
    }

    /// Asks this host for blocks of an image before the registry, if it has them: it is the root of
    /// another stripe. Call it after [`Self::place`].
    pub fn place_beside(&self, image: &OciDigest, host: Option<PeerHost>) {
        let mut routes = self.routes();
        let Some(route) = routes.images.get(image).cloned() else { return };
        let peer = host.map(|host| {
            let known = routes.hosts.entry(host.clone());
            Arc::clone(known.or_insert_with(|| Arc::new(PeerState::new(host))))
        });
        route.beside.set(peer);
    }

    /// Returns the bytes of each image so far, without those to children.
    pub fn flows(&self) -> Vec<(OciDigest, Flow)> {
        let routes = self.routes();
        routes.images.iter().map(|(image, route)| (image.clone(), route.flow())).collect()
    }

    pub(super) fn route(&self, blob: &OciDigest) -> Option<Arc<BlobRoute>> {
        self.routes().blobs.get(blob).cloned()
    }

    /// Counts bytes from anywhere for the rate of the link.
    pub(super) fn received(&self, bytes: usize) {
        lock(&self.link).add(bytes as u64, Instant::now());
    }

    /// Returns the meter of how fast the registry sends.
    pub(super) fn registry(&self) -> &Arc<Mutex<Meter>> {
        &self.registry
    }

    /// Returns whether a parent gives less than half of its share of the rate of this host's link,
    /// and another source is better, as far as is known.
    pub(super) fn is_slow(&self, route: &BlobRoute, peer: &PeerState) -> bool {
        let proven = self.patience.proven;
        let Some(rate) = peer.rate(proven) else { return false };
        let Some(best) = lock(&self.link).best(Instant::now()) else { return false };
        let share = best / route.parents().len().max(1) as f64;
        let registry = lock(&self.registry).rate(proven);
        let other = route.other_parent(peer).and_then(|other| other.rate(proven));
        // A registry that was not asked yet may be better.
        is_slow(rate, share, registry.map(|registry| registry.max(other.unwrap_or_default())))
    }

    /// Remembers who sent a range.
    pub(super) fn remember(&self, blob: &OciDigest, range: Range<u64>, sender: RangeSender) {
        let peer = match sender {
            RangeSender::Peer(route, peer) => Some((route, peer)),
            RangeSender::Registry => None,
        };
        let mut senders = self.senders();
        if senders.len() == REMEMBERED {
            senders.pop_front();
        }
        senders.push_back(SentRange { blob: blob.clone(), range, peer });
    }

    /// Expels the host that sent this byte last, if a host did.
    pub(super) fn found_damaged(&self, blob: &OciDigest, byte: u64) {
        let senders = self.senders();
        let sent = senders
            .iter()
            .rev()
            .find(|sender| sender.blob == *blob && sender.range.contains(&byte));
        let Some((route, peer)) = sent.and_then(|sent| sent.peer.clone()) else { return };
        // No lock is held while the caller's own code gets the news.
        drop(senders);
        self.expel(&route, &peer);
    }

    /// Counts a failure of a route's parent, and expels one whose bytes arrive damaged.
    pub(super) fn failed(&self, route: &BlobRoute, peer: &PeerState, failure: &PeerFailure) {
        route.failed(peer, failure, self.patience.rest);
        if matches!(failure, PeerFailure::Damaged) {
            self.expel(route, peer);
        }
    }

    fn expel(&self, route: &BlobRoute, peer: &PeerState) {
        route.wrong_blocks.fetch_add(1, Ordering::Relaxed);
        let host = &peer.host;
        let image = &route.image;
        if peer.expel() {
            self.connect.expelled(host);
            tracing::error!(%host, %image, "a host sent a wrong block and is not asked again");
        }
    }

    fn routes(&self) -> MutexGuard<'_, Routes> {
        self.routes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn senders(&self) -> MutexGuard<'_, VecDeque<SentRange>> {
        self.senders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Routes {
    /// Forgets the oldest entries beyond the limits. Hosts that sent wrong blocks are kept.
    fn limit(&mut self) {
        if self.images.len() > MAX_IMAGES {
            let placed = |route: &&Arc<BlobRoute>| route.placed.load(Ordering::Relaxed);
            let oldest = self.images.values().min_by_key(placed).map(|image| image.image.clone());
            if let Some(image) = oldest {
                self.images.remove(&image);
                self.blobs.retain(|_, route| route.image != image);
            }
        }
        if self.hosts.len() > MAX_HOSTS {
            // An expelled host would be asked again if it were forgotten.
            self.hosts.retain(|_, peer| Arc::strong_count(peer) > 1 || peer.is_expelled());
        }
    }
}

/// The sender of a range.
pub(super) enum RangeSender {
    Peer(Arc<BlobRoute>, Arc<PeerState>),
    Registry,
}

impl BlobRoute {
    fn new(image: &OciDigest) -> Self {
        Self {
            image: image.clone(),
            placed: AtomicU64::new(0),
            parents: Mutex::default(),
            beside: Beside::default(),
            from_parents: AtomicU64::new(0),
            from_registry: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            wrong_blocks: AtomicU64::new(0),
        }
    }

    /// Returns the stripe of the block that begins at a byte of a blob. All blocks are of one
    /// stripe where all come from the same place.
    pub fn stripe(&self, blob: &OciDigest, byte: u64) -> usize {
        let parents = self.parents();
        let host = |parent: &Parent| parent.peer.as_ref().map(|peer| peer.host.clone());
        match parents.split_first() {
            Some((first, rest)) if rest.iter().any(|other| host(other) != host(first)) => {
                // Small blobs are of different stripes as well.
                let shift = blob.as_str().bytes().last().unwrap_or_default();
                let stripe = (byte / RUN_BYTES + u64::from(shift)) % parents.len() as u64;
                stripe as usize
            }
            _ => 0,
        }
    }

    /// Returns a host to ask instead of one that failed: a host from which another stripe is read.
    pub fn other_parent(&self, failed: &PeerState) -> Option<Arc<PeerState>> {
        let parents = self.parents();
        let mut usable = parents.iter().filter_map(Parent::usable);
        usable.find(|peer| peer.host != failed.host)
    }

    /// Returns whether a parent can be asked now.
    pub fn may_ask(&self, peer: &PeerState) -> bool {
        self.parents().iter().filter_map(Parent::usable).any(|usable| usable.host == peer.host)
    }

    /// Returns the host from which a stripe is read, whether it can be asked now or not; `None` for
    /// the registry.
    pub fn parent(&self, stripe: usize) -> Option<Arc<PeerState>> {
        self.parents().get(stripe).and_then(|parent| parent.peer.clone())
    }

    /// Counts a failure of the route's parent, which is left alone for a time if it may fail again.
    fn failed(&self, peer: &PeerState, failure: &PeerFailure, rest: Duration) {
        // No failure: the host was asked only for what it has.
        if matches!(failure, PeerFailure::Refused(PeerRefusal::Absent)) {
            return;
        }
        self.failures.fetch_add(1, Ordering::Relaxed);
        let host = &peer.host;
        let image = &self.image;
        tracing::warn!(%host, %image, %failure, "blocks are read from elsewhere instead of a host");
        match failure {
            PeerFailure::Refused(PeerRefusal::Missing) => {
                for parent in self.parents().iter_mut() {
                    let is_it = parent.peer.as_ref().is_some_and(|own| own.host == peer.host);
                    parent.lacks |= is_it;
                }
            }
            // It works, and may have other ranges; only this one is read elsewhere.
            PeerFailure::Refused(_) => {}
            PeerFailure::Slow => peer.rest_slow(rest),
            PeerFailure::Broken(_) | PeerFailure::Damaged | PeerFailure::Late => peer.rest(rest),
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

    fn parents(&self) -> MutexGuard<'_, Vec<Parent>> {
        self.parents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Parent {
    fn usable(&self) -> Option<Arc<PeerState>> {
        self.peer.clone().filter(|peer| !self.lacks && peer.is_usable())
    }
}

/// Locks measurements, also after a panic of another holder: they stay useful whatever became of
/// those who measured.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
