//! The source of blocks that asks another host first, then the host of another stripe for what it
//! has, and then the registry.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::TryStreamExt;
use futures::stream::{self, StreamExt};
use tokio::time::Instant;

use super::host::{PeerAnswer, PeerFailure, PeerState};
use super::protocol::{MAX_RANGE, RangeRequest};
use super::transfer_rates::Meter;
use super::upstreams::{BlobRoute, RangeSender, Upstreams, lock};
use crate::Result;
use crate::block::OciDigest;
use crate::read::{BlockSource, Pieces, deadline};

/// Reads from the parents of [`Upstreams`], and from `origin` what no parent sends.
pub struct PeerSource {
    shared: Arc<SourceOrigins>,
}

struct SourceOrigins {
    origin: Arc<dyn BlockSource>,
    upstreams: Arc<Upstreams>,
}

/// A range of which a host has sent the beginning.
struct BegunRange {
    shared: Arc<SourceOrigins>,
    route: Arc<BlobRoute>,
    blob: OciDigest,
    /// The range of the blob that has not arrived.
    left: Range<u64>,
    from: From,
}

enum From {
    Peer(Box<PeerAnswer>, Arc<PeerState>),
    Origin(Pieces, Busy),
    /// All bytes of the range have arrived.
    Over,
}

/// A guard for the time in which the registry sends: the time ends when it is dropped.
struct Busy(Arc<Mutex<Meter>>);

impl Busy {
    fn begin(upstreams: &Upstreams) -> Self {
        let meter = Arc::clone(upstreams.registry());
        lock(&meter).begin(Instant::now());
        Self(meter)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        lock(&self.0).end(Instant::now());
    }
}

impl PeerSource {
    /// Makes the source; `origin` is the registry of the blobs, with retries.
    pub fn new(origin: Arc<dyn BlockSource>, upstreams: Arc<Upstreams>) -> Self {
        Self { shared: Arc::new(SourceOrigins { origin, upstreams }) }
    }
}

#[async_trait]
impl BlockSource for PeerSource {
    async fn fetch(&self, blob: &OciDigest, range: Range<u64>) -> Result<Bytes> {
        whole(range.end - range.start, self.stream(blob, range).await?).await
    }

    async fn stream(&self, blob: &OciDigest, range: Range<u64>) -> Result<Pieces> {
        let shared = &self.shared;
        let Some(route) = shared.upstreams.route(blob) else {
            return shared.origin.stream(blob, range).await;
        };
        let from = match shared.ask_parent(&route, blob, &range).await {
            Some(from) => from,
            None => shared.ask_origin(blob, &range).await?,
        };
        let shared = Arc::clone(shared);
        let blob = blob.clone();
        let begun = BegunRange { shared, route, blob, left: range, from };
        Ok(stream::try_unfold(begun, BegunRange::next).boxed())
    }

    fn stripe(&self, blob: &OciDigest, byte: u64) -> usize {
        self.shared.upstreams.route(blob).map_or(0, |route| route.stripe(blob, byte))
    }

    fn found_damaged(&self, blob: &OciDigest, range: &Range<u64>) {
        self.shared.upstreams.found_damaged(blob, range.start);
    }
}

/// Collects all bytes of an answer that has about `length` of them.
pub(super) async fn whole(length: u64, mut pieces: Pieces) -> Result<Bytes> {
    let mut bytes = BytesMut::with_capacity(length.min(MAX_RANGE) as usize);
    while let Some(piece) = pieces.try_next().await? {
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes.freeze())
}

/// Returns how long another host is waited for: as much of the time that a read has left that the
/// registry can be asked in the rest. The host waits for its own parent in the same way, so the
/// root of a deep tree gives up first, and each host below it has time for the registry.
pub(super) fn within(most: Duration) -> Duration {
    deadline::left().map_or(most, |left| most.min((left * 2 / 3).max(deadline::LEAST)))
}

impl SourceOrigins {
    /// Requests the beginning of a range from the parent of its stripe, or from the other parent if
    /// that fails; `None` if no parent sends it.
    async fn ask_parent(
        &self,
        route: &Arc<BlobRoute>,
        blob: &OciDigest,
        range: &Range<u64>,
    ) -> Option<From> {
        let Some(parent) = route.parent(route.stripe(blob, range.start)) else {
            return self.ask_beside(route, blob, range).await;
        };
        // A read without time left must not make the parent fetch what this host cannot wait for.
        let if_here = deadline::is_over();
        if route.may_ask(&parent)
            && let Some(from) = self.ask(route, &parent, blob, range.clone(), if_here).await
        {
            return Some(from);
        }
        self.ask_other(route, &parent, blob, range).await
    }

    /// Asks the root of another stripe, from a root, if it has the range: it may have used the
    /// image before.
    async fn ask_beside(
        &self,
        route: &Arc<BlobRoute>,
        blob: &OciDigest,
        range: &Range<u64>,
    ) -> Option<From> {
        let other = route.beside.to_ask()?;
        let found = self.ask(route, &other, blob, range.clone(), true).await;
        route.beside.had(found.is_some());
        found
    }

    /// Asks a host of another stripe for a range that it has already: if it had to wait for the
    /// range, it could wait for this host.
    async fn ask_other(
        &self,
        route: &Arc<BlobRoute>,
        failed: &PeerState,
        blob: &OciDigest,
        range: &Range<u64>,
    ) -> Option<From> {
        let other = route.other_parent(failed)?;
        self.ask(route, &other, blob, range.clone(), true).await
    }

    async fn ask(
        &self,
        route: &Arc<BlobRoute>,
        peer: &Arc<PeerState>,
        blob: &OciDigest,
        range: Range<u64>,
        if_here: bool,
    ) -> Option<From> {
        let image = route.image.clone();
        let blob = blob.clone();
        let upstreams = &self.upstreams;
        let within = within(upstreams.patience.work);
        let request = RangeRequest { image, blob, range, if_here, within };
        // A longer one is refused anyway.
        request.length()?;
        match peer.ask(&*upstreams.connect, &request, upstreams.patience).await {
            Ok(answer) => {
                let sender = RangeSender::Peer(Arc::clone(route), Arc::clone(peer));
                // Before the first byte is used: the verification that names a culprit comes later,
                // in another layer.
                upstreams.remember(&request.blob, request.range, sender);
                Some(From::Peer(Box::new(answer), Arc::clone(peer)))
            }
            Err(failure) => {
                upstreams.failed(route, peer, &failure);
                None
            }
        }
    }

    /// Returns the next bytes of a host, if it is not too slow.
    async fn next_of(
        &self,
        route: &BlobRoute,
        answer: &mut PeerAnswer,
        peer: &PeerState,
    ) -> Result<Bytes, PeerFailure> {
        // Between two pieces: the piece that is on its way is worth more than a new request.
        if self.upstreams.is_slow(route, peer) {
            return Err(PeerFailure::Slow);
        }
        answer.next().await
    }

    /// Reads the rest of a range of which a host has sent the beginning.
    async fn instead_of(
        &self,
        failed: &PeerState,
        failure: &PeerFailure,
        route: &Arc<BlobRoute>,
        blob: &OciDigest,
        left: &Range<u64>,
    ) -> Result<From> {
        self.upstreams.failed(route, failed, failure);
        match self.ask_other(route, failed, blob, left).await {
            Some(from) => Ok(from),
            None => self.ask_origin(blob, left).await,
        }
    }

    async fn ask_origin(&self, blob: &OciDigest, range: &Range<u64>) -> Result<From> {
        // Before the request: the wait for the first byte counts, as it does for the reader.
        let busy = Busy::begin(&self.upstreams);
        let pieces = self.origin.stream(blob, range.clone()).await?;
        self.upstreams.remember(blob, range.clone(), RangeSender::Registry);
        Ok(From::Origin(pieces, busy))
    }
}

impl BegunRange {
    async fn next(mut self) -> Result<Option<(Bytes, Self)>> {
        if self.left.is_empty() {
            return Ok(None);
        }
        loop {
            let bytes = match &mut self.from {
                From::Origin(pieces, busy) => match pieces.try_next().await? {
                    Some(bytes) => {
                        let count = bytes.len() as u64;
                        lock(&busy.0).add(count, Instant::now());
                        self.route.from_registry.fetch_add(count, Ordering::Relaxed);
                        bytes
                    }
                    None => return Ok(None),
                },
                From::Over => return Ok(None),
                From::Peer(answer, peer) => {
                    match self.shared.next_of(&self.route, answer, peer).await {
                        Ok(bytes) => {
                            let count = bytes.len() as u64;
                            self.route.from_parents.fetch_add(count, Ordering::Relaxed);
                            bytes
                        }
                        // In the middle: another one goes on where the host stopped.
                        Err(failure) => {
                            let failed = Arc::clone(peer);
                            let shared = &self.shared;
                            let route = &self.route;
                            let blob = &self.blob;
                            let left = &self.left;
                            let other = shared.instead_of(&failed, &failure, route, blob, left);
                            self.from = other.await?;
                            continue;
                        }
                    }
                }
            };
            // From wherever they came: the rate of the link is what all sources give together.
            self.shared.upstreams.received(bytes.len());
            self.left.start += bytes.len() as u64;
            return Ok(Some((bytes, self.kept())));
        }
    }

    /// Gives the connection of a complete answer back, before the reader asks for more.
    fn kept(mut self) -> Self {
        let is_over = matches!(&self.from, From::Peer(answer, _) if answer.is_over());
        if is_over && let From::Peer(answer, _) = std::mem::replace(&mut self.from, From::Over) {
            answer.keep();
        }
        self
    }
}
