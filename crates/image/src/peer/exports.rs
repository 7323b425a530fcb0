//! The serving side: blocks of the images that this host has a place for, to its children.
//!
//! Invariants: a block is sent once it is whole and verified; a block that is not here is read from
//! this host's own source once, for all who want it. Only images that were added are served.
//! Connections, answers at the same time, and what an answer holds in memory (one block) are
//! limited, and a reader that does not read is dropped.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::TryStreamExt;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, sleep_until, timeout};

use super::host::PeerLink;
use super::protocol::{PeerRefusal, RangeRequest, write_at_work, write_piece, write_refusal};
use super::transfer_rates::Bucket;
use super::upstreams::{MAX_IMAGES, lock};
use crate::Error;
use crate::block::OciDigest;
use crate::read::{BlobReader, deadline};

/// The most connections at the same time: several of each child, and of hosts that were children
/// before.
const CONNECTIONS: usize = 32;

/// The most answers at the same time, each with a block in memory.
const ANSWERS: usize = 16;

/// How long a child may take to read a block.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// The time without a request after which a connection is closed.
const IDLE: Duration = Duration::from_secs(60);

/// How long a child waits for an image whose place here is new: hosts are told their places at the
/// same time, and prepare other things as well.
const PLACEMENT_TIMEOUT: Duration = Duration::from_secs(20);

/// How often a child that waits is told that this host is at work.
const AT_WORK: Duration = Duration::from_secs(1);

/// The images that other hosts may read from this one.
pub struct Exports {
    images: Mutex<HashMap<OciDigest, Arc<Exported>>>,
    /// The number of uses of images so far.
    uses: AtomicU64,
    added: Notify,
    connections: Semaphore,
    answers: Semaphore,
    placed_within: Duration,
    /// The share of the link that children may have; all of the link if absent.
    share: Option<Mutex<Bucket>>,
}

/// The amount of an image that is on this host, in stored (compressed) bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportProgress {
    /// Bytes of the image in the cache.
    pub here: u64,
    /// Bytes of all blobs of the image.
    pub of: u64,
}

struct Exported {
    /// The number of the image's last use.
    used: AtomicU64,
    blobs: HashMap<OciDigest, Arc<BlobReader>>,
    /// Bytes of the image that were sent to children.
    sent: AtomicU64,
}

impl Default for Exports {
    fn default() -> Self {
        Self::new(PLACEMENT_TIMEOUT, None)
    }
}

impl Exports {
    /// Makes exports without images, which send at most `share` bytes a second; `None`: without a
    /// limit.
    pub fn limited(share: Option<u64>) -> Self {
        Self::new(PLACEMENT_TIMEOUT, share)
    }

    /// Makes exports without images, whose requests wait this long for an image that is not there
    /// yet.
    pub fn waiting_for(placed_within: Duration) -> Self {
        Self::new(placed_within, None)
    }

    fn new(placed_within: Duration, share: Option<u64>) -> Self {
        Self {
            images: Mutex::default(),
            uses: AtomicU64::new(0),
            added: Notify::new(),
            connections: Semaphore::new(CONNECTIONS),
            answers: Semaphore::new(ANSWERS),
            placed_within,
            share: share.map(|rate| Mutex::new(Bucket::new(rate))),
        }
    }

    /// Lets other hosts read the blobs of an image, unless they do already. Of too many images, the
    /// one that was used longest ago is not served any more.
    pub fn add(&self, image: &OciDigest, readers: impl IntoIterator<Item = Arc<BlobReader>>) {
        let named = |reader: Arc<BlobReader>| (reader.summary().digest.clone(), reader);
        let new = || {
            let blobs = readers.into_iter().map(named).collect();
            let used = AtomicU64::new(self.next_use());
            Arc::new(Exported { used, blobs, sent: AtomicU64::new(0) })
        };
        let mut images = self.images();
        images.entry(image.clone()).or_insert_with(new);
        if images.len() > MAX_IMAGES {
            let used = |(_, it): &(&OciDigest, &Arc<Exported>)| it.used.load(Ordering::Relaxed);
            let oldest = images.iter().min_by_key(used).map(|(image, _)| image.clone());
            oldest.map(|image| images.remove(&image));
        }
        drop(images);
        self.added.notify_waiters();
    }

    fn next_use(&self) -> u64 {
        self.uses.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns whether other hosts may read an image.
    pub fn has(&self, image: &OciDigest) -> bool {
        self.images().contains_key(image)
    }

    /// Returns how much of an image is on this host. `None` if other hosts may not read the image,
    /// or if none of it has been read since the start of the process: until then it is not known
    /// which blocks are here.
    pub fn progress(&self, image: &OciDigest) -> Option<ExportProgress> {
        let exported = self.images().get(image).cloned()?;
        let of = exported.blobs.values().map(|blob| blob.summary().size).sum();
        let here: Vec<u64> =
            exported.blobs.values().filter_map(|blob| blob.stored_bytes()).collect();
        (!here.is_empty()).then(|| ExportProgress { here: here.iter().sum(), of })
    }

    /// Returns the bytes of each image that children have read.
    pub fn sent(&self) -> HashMap<OciDigest, u64> {
        let images = self.images();
        let sent = |(image, it): (&OciDigest, &Arc<Exported>)| {
            (image.clone(), it.sent.load(Ordering::Relaxed))
        };
        images.iter().map(sent).collect()
    }

    /// Answers the requests on a connection until it ends.
    pub async fn serve(&self, mut link: impl PeerLink) {
        // A child that gets no connection reads from the registry.
        let Ok(_connection) = self.connections.try_acquire() else {
            return tracing::warn!("more connections of other hosts than are served");
        };
        if let Err(error) = self.answer_all(&mut link).await {
            tracing::debug!(%error, "a connection of another host ended");
        }
    }

    async fn answer_all(&self, link: &mut impl PeerLink) -> io::Result<()> {
        while let Some(request) = timeout(IDLE, RangeRequest::read(link)).await?? {
            self.answer(link, &request).await?;
        }
        Ok(())
    }

    async fn answer(&self, link: &mut impl PeerLink, request: &RangeRequest) -> io::Result<()> {
        if request.length().is_none() {
            return refuse(link, PeerRefusal::Range).await;
        }
        // Before any wait: two hosts that waited for each other's stripes would wait until both
        // give up.
        if request.if_here && !self.has_range(request) {
            return refuse(link, PeerRefusal::Absent).await;
        }
        let within = request.within.min(deadline::READ_TIMEOUT);
        let Some(exported) = at_work(link, self.placed(&request.image, within)).await? else {
            return refuse(link, PeerRefusal::Missing).await;
        };
        exported.used.store(self.next_use(), Ordering::Relaxed);
        let Some(reader) = exported.blobs.get(&request.blob) else {
            return refuse(link, PeerRefusal::Missing).await;
        };
        // After the image is found, so that requests for images without a place take no slot while
        // they wait.
        let _answer = at_work(link, self.answers.acquire()).await?.map_err(io::Error::other)?;
        // The child waits so long for each piece.
        let end = || Instant::now() + within;
        let stored = deadline::until(end(), reader.stored(request.range.clone()));
        let mut pieces = match at_work(link, stored).await? {
            Ok(pieces) => pieces,
            Err(error) => return refuse(link, refusal(&error)).await,
        };
        loop {
            match at_work(link, deadline::until(end(), pieces.try_next())).await? {
                Ok(Some(piece)) => {
                    // Before each piece, so that the share of several children is divided piece by
                    // piece.
                    at_work(link, self.wait_for_share(piece.len())).await?;
                    timeout(READ_TIMEOUT, write_piece(link, &piece)).await??;
                    exported.sent.fetch_add(piece.len() as u64, Ordering::Relaxed);
                }
                Ok(None) => return Ok(()),
                Err(error) => return refuse(link, refusal(&error)).await,
            }
        }
    }

    /// Waits until `bytes` more are within the share of children.
    async fn wait_for_share(&self, bytes: usize) {
        let Some(share) = &self.share else { return };
        let until = lock(share).take(bytes as u64, Instant::now());
        sleep_until(until).await;
    }

    /// Returns whether the whole range of a request is here.
    fn has_range(&self, request: &RangeRequest) -> bool {
        let exported = self.images().get(&request.image).cloned();
        let reader = exported.and_then(|exported| exported.blobs.get(&request.blob).cloned());
        reader.is_some_and(|reader| reader.has_stored(&request.range))
    }

    /// Returns an image, as soon as this host has a place for it.
    async fn placed(&self, image: &OciDigest, within: Duration) -> Option<Arc<Exported>> {
        let found = async {
            loop {
                let added = self.added.notified();
                tokio::pin!(added);
                // Registered before the look, so that none is missed in between.
                added.as_mut().enable();
                let exported = self.images().get(image).cloned();
                match exported {
                    Some(exported) => return exported,
                    None => added.await,
                }
            }
        };
        timeout(self.placed_within.min(within), found).await.ok()
    }

    fn images(&self) -> MutexGuard<'_, HashMap<OciDigest, Arc<Exported>>> {
        self.images.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for the outcome of some work, and tells the child meanwhile that the work goes on.
async fn at_work<T>(link: &mut impl PeerLink, work: impl Future<Output = T>) -> io::Result<T> {
    tokio::pin!(work);
    loop {
        match timeout(AT_WORK, &mut work).await {
            Ok(done) => return Ok(done),
            Err(_) => timeout(READ_TIMEOUT, write_at_work(link)).await??,
        }
    }
}

async fn refuse(link: &mut impl PeerLink, refusal: PeerRefusal) -> io::Result<()> {
    timeout(READ_TIMEOUT, write_refusal(link, &refusal)).await?
}

fn refusal(error: &Error) -> PeerRefusal {
    match error {
        Error::Missing { .. } => PeerRefusal::Missing,
        Error::Refused { .. } => PeerRefusal::Range,
        error => PeerRefusal::Unavailable(error.to_string()),
    }
}
