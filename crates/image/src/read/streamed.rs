//! Adjacent blocks that one request fetches and that are handed out as they arrive: the reader of
//! the first does not wait for the last.
//!
//! Invariant: blocks whose reader is gone are received by a task of their own, which holds their
//! claim. Another reader that needs one waits for it instead of fetching it again.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::TryStreamExt;
use tokio::time::{Instant, timeout_at};

use super::flight::Claim;
use super::{Blocks, Pieces};
use crate::block::{OciDigest, Table, verify};
use crate::{Error, Result};

/// An answer that takes longer is aborted, so that no reader waits for ever.
const WITHIN: Duration = Duration::from_secs(30);

/// An answer of which some blocks are still to come.
struct Coming {
    pieces: Pieces,
    /// Bytes that came, of the next block.
    bytes: BytesMut,
    table: Arc<Table>,
    left: Range<usize>,
    deadline: Instant,
}

impl Blocks {
    /// The stored bytes of the blocks `wanted`, verified and kept; those up to `behind`, which are
    /// claimed, follow to the disk by themselves. Nothing is asked for again: none if the answer was
    /// cut or damaged before the wanted ones were there.
    pub(super) async fn fetch_streamed(
        self: &Arc<Self>,
        blob: &OciDigest,
        table: &Arc<Table>,
        wanted: Range<usize>,
        (behind, claim): (usize, Claim),
    ) -> Result<Option<Vec<Bytes>>> {
        let left = wanted.start..behind;
        self.requests.fetch_add(1, Ordering::Relaxed);
        let pieces = self.source.stream(blob, table.stored(left.clone())).await?;
        let mut coming = Coming::new(pieces, Arc::clone(table), left);
        let mut blocks = Vec::with_capacity(wanted.len());
        for _ in wanted {
            match coming.next(self).await {
                Ok(block) => blocks.push(block),
                Err(error) => {
                    tracing::debug!(%blob, %error, "an answer is lost where it was cut");
                    return Ok(None);
                }
            }
        }
        tokio::spawn(coming.go_on(Arc::clone(self), claim));
        Ok(Some(blocks))
    }

    /// Brings blocks that are claimed to the disk, in a task of its own.
    pub(super) fn stream_ahead(
        self: &Arc<Self>,
        blob: &OciDigest,
        table: &Arc<Table>,
        left: Range<usize>,
        claim: Claim,
    ) {
        let (blocks, blob, table) = (Arc::clone(self), blob.clone(), Arc::clone(table));
        tokio::spawn(async move {
            blocks.requests.fetch_add(1, Ordering::Relaxed);
            match blocks.source.stream(&blob, table.stored(left.clone())).await {
                Ok(pieces) => {
                    let coming = Coming::new(pieces, table, left);
                    coming.go_on(Arc::clone(&blocks), claim).await;
                }
                // Their readers are notified.
                Err(error) => tracing::debug!(%blob, %error, "blocks are not read ahead"),
            }
        });
    }
}

impl Coming {
    fn new(pieces: Pieces, table: Arc<Table>, left: Range<usize>) -> Self {
        Self { pieces, bytes: BytesMut::new(), table, left, deadline: Instant::now() + WITHIN }
    }

    /// The next block.
    async fn next(&mut self, blocks: &Blocks) -> Result<Bytes> {
        let entry = &self.table.entries()[self.left.start];
        self.left.start += 1;
        let wanted = entry.stored as usize;
        while self.bytes.len() < wanted {
            let piece = timeout_at(self.deadline, self.pieces.try_next()).await;
            let late = |_| Error::unreachable("a block", "its answer takes too long");
            let Some(piece) = piece.map_err(late)?? else {
                return Err(Error::damaged("a block", "its answer is cut"));
            };
            blocks.fetched_bytes.fetch_add(piece.len() as u64, Ordering::Relaxed);
            self.bytes.extend_from_slice(&piece);
        }
        let stored = self.bytes.split_to(wanted).freeze();
        verify(&stored, entry)?;
        blocks.keep(entry, &stored);
        Ok(stored)
    }

    async fn go_on(mut self, blocks: Arc<Blocks>, mut claim: Claim) {
        while !self.left.is_empty() {
            let digest = self.table.entries()[self.left.start].digest;
            match self.next(&blocks).await {
                Ok(_) => {}
                // Its readers request it again.
                Err(Error::Damaged { .. }) => {}
                Err(error) => {
                    tracing::debug!(%error, "blocks that nobody waits for are left");
                    return;
                }
            }
            claim.landed(&digest);
        }
    }
}
