//! Sequential readers: no reader waits for blocks that only others need, and the next blocks are
//! requested in advance.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, StreamExt};
use snowmelt_image::Result;
use snowmelt_image::block::OciDigest;
use snowmelt_image::read::{BlobReader, BlockCache, BlockSource, Blocks, Pieces};
use tokio::sync::Semaphore;

use super::lazy::{archive, image, noise};
use super::sources::MemorySource;

const BLOCK: u64 = 65536;
/// Fails a test that hangs.
const LIMIT: Duration = Duration::from_secs(120);

/// Sends the first piece of each answer immediately, and each further one when it gets a permit.
struct Gated {
    inner: Arc<MemorySource>,
    gate: Arc<Semaphore>,
}

#[async_trait]
impl BlockSource for Gated {
    async fn fetch(&self, blob: &OciDigest, range: Range<u64>) -> Result<Bytes> {
        self.inner.fetch(blob, range).await
    }

    async fn stream(&self, blob: &OciDigest, range: Range<u64>) -> Result<Pieces> {
        let bytes = self.inner.fetch(blob, range).await?;
        let first = bytes.slice(..bytes.len().min(BLOCK as usize));
        let rest = bytes.slice(first.len()..);
        let gate = Arc::clone(&self.gate);
        let rest = stream::once(async move {
            let opened = gate.acquire().await;
            drop(opened);
            Ok(rest)
        });
        Ok(stream::once(async { Ok(first) }).chain(rest).boxed())
    }
}

struct Setup {
    reader: BlobReader,
    blocks: Arc<Blocks>,
    source: Arc<MemorySource>,
    gate: Arc<Semaphore>,
    _folder: tempfile::TempDir,
}

fn setup(permits: usize) -> Setup {
    let scratch = tempfile::tempdir().unwrap();
    std::fs::write(scratch.path().join("a"), noise(1, 6 << 20)).unwrap();
    let (image, source) = image(&[archive(scratch.path())]);
    let (source, gate) = (Arc::new(source), Arc::new(Semaphore::new(permits)));
    let gated = Gated { inner: Arc::clone(&source), gate: Arc::clone(&gate) };
    let folder = tempfile::tempdir().unwrap();
    let cache = Arc::new(BlockCache::open(folder.path(), 1 << 30).unwrap());
    let blocks = Arc::new(Blocks::new(Arc::new(gated), Some(cache)));
    let reader = BlobReader::new(Arc::clone(&blocks), image.layers[0].clone()).unwrap();
    Setup { reader, blocks, source, gate, _folder: folder }
}

async fn read(setup: &Setup, block: u64) {
    let read = setup.reader.read(block * BLOCK..block * BLOCK + 1);
    tokio::time::timeout(LIMIT, read).await.expect("timeout").unwrap();
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn a_reader_does_not_wait_for_prefetched_blocks() {
    let setup = setup(0);
    runtime().block_on(async {
        // Each request but the first is extended by more blocks, of which only the first arrives.
        read(&setup, 0).await;
        read(&setup, 1).await;
        let requests = setup.blocks.counts().requests;
        setup.gate.add_permits(1);
        read(&setup, 2).await;
        read(&setup, 3).await;
        assert_eq!(setup.blocks.counts().requests, requests, "it was in flight");
        assert_eq!(setup.blocks.counts().damaged, 0);
    });
}

#[test]
fn the_next_blocks_of_a_sequential_reader_are_requested_early() {
    let setup = setup(1000);
    runtime().block_on(async {
        for block in 0..80 {
            // Only once the reader is known to be sequential; the first reads may be random.
            if block > 16 {
                wait_until_requested(&setup, block).await;
            }
            read(&setup, block).await;
        }
    });
    let bytes: u64 = ranges(&setup).iter().map(|range| range.end - range.start).sum();
    assert!(bytes < (6 << 20) + 4 * BLOCK, "no byte is requested twice: {bytes}");
}

async fn wait_until_requested(setup: &Setup, block: u64) {
    let is_in = |range: &Range<u64>| range.start <= block * BLOCK && block * BLOCK < range.end;
    for _ in 0..10_000 {
        if ranges(setup).iter().any(is_in) {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("{block} was not requested: {:?}", ranges(setup));
}

fn ranges(setup: &Setup) -> Vec<Range<u64>> {
    setup.source.requested.lock().unwrap().iter().map(|(_, range)| range.clone()).collect()
}
