//! Adjacent blocks of one request, returned as they arrive: the reader of the first does not wait
//! for the last.
//!
//! Invariant: blocks that no reader waits for are received by a separate task, which owns their
//! claim. Another reader of such a block waits for it instead of fetching it again.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::TryStreamExt;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use super::BlockStore;
use super::claims::BlockClaim;
use crate::block::{BlockTable, OciDigest, verify};
use crate::read::Pieces;
use crate::read::sources::deadline;
use crate::{Error, Result};

/// The timeout of a response, so that no reader waits for ever.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A response of which some blocks have not arrived yet.
struct Response {
    blob: OciDigest,
    pieces: Pieces,
    /// The received bytes of the next block.
    bytes: BytesMut,
    table: Arc<BlockTable>,
    left: Range<usize>,
    deadline: Instant,
}

impl BlockStore {
    /// Fetches the stored bytes of the blocks `wanted`, verified and cached; the extension, the
    /// claimed blocks up to `end`, is received by a separate task and cached. Does not retry:
    /// `None` if the response was cut off or damaged before all wanted blocks arrived.
    pub(super) async fn fetch_streamed(
        self: &Arc<Self>,
        blob: &OciDigest,
        table: &Arc<BlockTable>,
        wanted: Range<usize>,
        end: usize,
        claim: BlockClaim,
    ) -> Result<Option<Vec<Bytes>>> {
        let left = wanted.start..end;
        self.requests.fetch_add(1, Ordering::Relaxed);
        let pieces = self.source.stream(blob, table.stored(left.clone())).await?;
        let mut response = Response::new(blob, pieces, Arc::clone(table), left);
        let mut blocks = Vec::with_capacity(wanted.len());
        for _ in wanted {
            match response.next(self).await {
                Ok(block) => blocks.push(block),
                Err(error) => {
                    tracing::debug!(%blob, %error, "a response was incomplete");
                    return Ok(None);
                }
            }
        }
        // The claim goes with the task: until it ends, other readers of these blocks wait instead
        // of asking again.
        tokio::spawn(response.receive_rest(Arc::clone(self), claim));
        Ok(Some(blocks))
    }

    /// Fetches adjacent claimed blocks to the disk cache. Each block is released as soon as it is
    /// there: a reader that waits for one block, such as another host, does not wait for all.
    pub(super) async fn fetch_each(
        self: &Arc<Self>,
        blob: &OciDigest,
        table: &Arc<BlockTable>,
        wanted: Range<usize>,
        claim: &mut BlockClaim,
    ) -> Result<()> {
        let mut left = wanted;
        self.requests.fetch_add(1, Ordering::Relaxed);
        let failed = |error: &Error| self.has_failed(blob, error);
        let pieces = self.source.stream(blob, table.stored(left.clone())).await;
        let pieces = pieces.inspect_err(failed)?;
        let mut response = Response::new(blob, pieces, Arc::clone(table), left.clone());
        while !left.is_empty() {
            if let Err(error) = response.next(self).await {
                tracing::debug!(%blob, %error, "a response was incomplete");
                let rest = self.fetch_stored(blob, table, left).await;
                return rest.map(drop).inspect_err(failed);
            }
            // After the block is in the cache, where the waiting readers look.
            claim.release(&table.entries()[left.start].digest);
            left.start += 1;
        }
        Ok(())
    }

    /// Fetches claimed blocks to the disk cache, in a separate task, when it is their turn.
    pub(super) fn stream_ahead(
        self: &Arc<Self>,
        blob: &OciDigest,
        table: &Arc<BlockTable>,
        left: Range<usize>,
        claim: BlockClaim,
        turn: Option<Arc<Semaphore>>,
    ) {
        let blocks = Arc::clone(self);
        let blob = blob.clone();
        let table = Arc::clone(table);
        tokio::spawn(async move {
            let _turn = match turn {
                Some(turn) => turn.acquire_owned().await.ok(),
                None => None,
            };
            blocks.requests.fetch_add(1, Ordering::Relaxed);
            match blocks.source.stream(&blob, table.stored(left.clone())).await {
                Ok(pieces) => {
                    let response = Response::new(&blob, pieces, table, left);
                    response.receive_rest(Arc::clone(&blocks), claim).await;
                }
                // Waiting readers are notified when the claim is dropped.
                Err(error) => {
                    blocks.has_failed(&blob, &error);
                    tracing::debug!(%blob, %error, "cannot read blocks ahead");
                }
            }
        });
    }
}

impl Response {
    fn new(blob: &OciDigest, pieces: Pieces, table: Arc<BlockTable>, left: Range<usize>) -> Self {
        let time = deadline::left().map_or(TIMEOUT, |left| left.min(TIMEOUT));
        let blob = blob.clone();
        let bytes = BytesMut::new();
        let deadline = Instant::now() + time;
        Self { blob, pieces, bytes, table, left, deadline }
    }

    /// Returns the next block.
    async fn next(&mut self, blocks: &BlockStore) -> Result<Bytes> {
        let index = self.left.start;
        let entry = &self.table.entries()[index];
        // Also if the block turns out to be damaged: the next one begins behind it.
        self.left.start += 1;
        let wanted = entry.stored as usize;
        while self.bytes.len() < wanted {
            let piece = timeout_at(self.deadline, self.pieces.try_next()).await;
            let late = |_| Error::unreachable("a block", "the response takes too long");
            let Some(piece) = piece.map_err(late)?? else {
                return Err(Error::damaged("a block", "the response is incomplete"));
            };
            blocks.fetched_bytes.fetch_add(piece.len() as u64, Ordering::Relaxed);
            self.bytes.extend_from_slice(&piece);
        }
        let stored = self.bytes.split_to(wanted).freeze();
        verify(&stored, entry).inspect_err(|_| {
            blocks.source.found_damaged(&self.blob, &self.table.stored(index..index + 1));
        })?;
        blocks.keep(entry, &stored);
        Ok(stored)
    }

    async fn receive_rest(mut self, blocks: Arc<BlockStore>, mut claim: BlockClaim) {
        while !self.left.is_empty() {
            let digest = self.table.entries()[self.left.start].digest;
            match self.next(&blocks).await {
                Ok(_) => {}
                // Its readers request it again.
                Err(Error::Damaged { .. }) => {}
                Err(error) => {
                    tracing::debug!(%error, "cannot receive prefetched blocks");
                    return;
                }
            }
            // A damaged block too: its readers are to ask for it again now.
            claim.release(&digest);
        }
    }
}
