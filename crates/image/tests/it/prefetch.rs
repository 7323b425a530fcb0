//! Sequential readers: no reader waits for blocks that only others need, and the next blocks are
//! requested in advance.

use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, StreamExt};
use snowmelt_image::Result;
use snowmelt_image::block::OciDigest;
use snowmelt_image::profile::StartProfile;
use snowmelt_image::read::{BlobReader, BlockCache, BlockSource, BlockStore, Pieces};
use tokio::sync::Semaphore;

use super::lazy_mounts::{archive, image, noise};
use super::sources::{Fault, MemorySource};

const BLOCK: u64 = 65536;
const SIZE: u64 = 6 << 20;
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

/// Two stripes of runs of two blocks; answers of the second one need a permit each.
struct TwoStripes {
    inner: Arc<MemorySource>,
    gate: Arc<Semaphore>,
    /// Runs of each stripe that were asked for.
    asked: Arc<Mutex<[Vec<u64>; 2]>>,
}

const RUN: u64 = 2 * BLOCK;

#[async_trait]
impl BlockSource for TwoStripes {
    async fn fetch(&self, blob: &OciDigest, range: Range<u64>) -> Result<Bytes> {
        let run = range.start / RUN;
        // The table follows the blocks.
        if range.start < SIZE {
            self.asked.lock().unwrap()[(run % 2) as usize].push(run);
            if run % 2 == 1 {
                self.gate.acquire().await.unwrap().forget();
            }
        }
        self.inner.fetch(blob, range).await
    }

    fn stripe(&self, _: &OciDigest, byte: u64) -> usize {
        (byte / RUN % 2) as usize
    }
}

struct Setup {
    reader: Arc<BlobReader>,
    blocks: Arc<BlockStore>,
    cache: Arc<BlockCache>,
    source: Arc<MemorySource>,
    gate: Arc<Semaphore>,
    _folder: tempfile::TempDir,
}

fn setup(permits: usize) -> Setup {
    let scratch = tempfile::tempdir().unwrap();
    std::fs::write(scratch.path().join("a"), noise(1, SIZE as usize)).unwrap();
    let (image, source) = image(&[archive(scratch.path())]);
    let source = Arc::new(source);
    let gate = Arc::new(Semaphore::new(permits));
    let gated = Gated { inner: Arc::clone(&source), gate: Arc::clone(&gate) };
    let folder = tempfile::tempdir().unwrap();
    let cache = Arc::new(BlockCache::open(folder.path(), 1 << 30).unwrap());
    let blocks = Arc::new(BlockStore::new(Arc::new(gated), Some(Arc::clone(&cache))));
    let reader = BlobReader::new(Arc::clone(&blocks), image.layers[0].clone()).unwrap();
    let reader = Arc::new(reader);
    Setup { reader, blocks, cache, source, gate, _folder: folder }
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
fn who_reads_a_prefetched_block_does_not_wait_for_those_behind_it() {
    let setup = setup(0);
    runtime().block_on(async {
        let prefetched = setup.reader.prefetch(0..20);
        tokio::pin!(prefetched);
        // Of the answer only the first block arrives.
        tokio::select! {
            done = &mut prefetched => panic!("{done:?}"),
            () = read(&setup, 0) => {}
        }
        setup.gate.add_permits(1);
        tokio::time::timeout(LIMIT, prefetched).await.expect("timeout").unwrap();
        let requests = setup.blocks.counts().requests;
        read(&setup, 19).await;
        assert_eq!(setup.blocks.counts().requests, requests, "all of it is there");
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
    assert!(bytes < SIZE + 4 * BLOCK, "no byte is requested twice: {bytes}");
}

/// The profile of a start that reads these blocks.
fn start_of(setup: &Setup, blocks: impl IntoIterator<Item = u32>) -> StartProfile {
    let root = setup.reader.summary().root;
    StartProfile { blocks: blocks.into_iter().map(|block| (root, block)).collect() }
}

/// The blocks that the source was asked for, in order.
fn requested(setup: &Setup) -> Vec<u64> {
    let blocks = |range: Range<u64>| range.start / BLOCK..range.end.div_ceil(BLOCK);
    // The table follows the blocks.
    let of_blocks = ranges(setup).into_iter().filter(|range| range.start < SIZE);
    let mut blocks: Vec<u64> = of_blocks.flat_map(blocks).collect();
    blocks.sort_unstable();
    blocks.dedup();
    blocks
}

#[test]
fn what_follows_the_blocks_of_a_start_is_not_read_ahead() {
    let setup = setup(1000);
    let start = start_of(&setup, 0..24);
    runtime().block_on(async {
        start.prefetch(&[Arc::clone(&setup.reader)], 4).await.unwrap();
        for block in 0..24 {
            read(&setup, block).await;
        }
        tokio::task::yield_now().await;
        let asked = requested(&setup);
        assert!(asked.iter().all(|block| *block <= 24), "a start reads 0 to 23: {asked:?}");
        // Who goes on behind them reads more than a start.
        for block in 24..28 {
            read(&setup, block).await;
        }
        assert!(requested(&setup).contains(&32), "{:?}", requested(&setup));
    });
}

#[test]
fn blocks_of_a_start_that_do_not_exist_are_skipped() {
    let setup = setup(1000);
    let start = start_of(&setup, [1, u32::MAX - 1]);
    runtime().block_on(start.prefetch(&[Arc::clone(&setup.reader)], 4)).unwrap();
    assert_eq!(requested(&setup), [1]);
}

#[test]
fn blocks_of_a_start_that_were_evicted_are_read_ahead_again() {
    let setup = setup(1000);
    let start = start_of(&setup, 0..24);
    runtime().block_on(async {
        start.prefetch(&[Arc::clone(&setup.reader)], 4).await.unwrap();
        setup.cache.empty();
        setup.source.requested.lock().unwrap().clear();
        for block in 0..8 {
            read(&setup, block).await;
        }
        let requests = ranges(&setup).len();
        assert!(requests < 8, "{requests} for 8 blocks");
    });
}

#[test]
fn without_the_blocks_of_a_start_readers_read_ahead() {
    let setup = setup(1000);
    let start = start_of(&setup, 0..24);
    runtime().block_on(async {
        setup.reader.table().await.unwrap();
        *setup.source.faults.lock().unwrap() = vec![Fault::Fail; 100];
        start.prefetch(&[Arc::clone(&setup.reader)], 4).await.unwrap_err();
        setup.source.faults.lock().unwrap().clear();
        for block in 0..4 {
            read(&setup, block).await;
        }
        assert!(requested(&setup).contains(&8), "{:?}", requested(&setup));
    });
}

#[test]
fn a_stripe_that_is_late_does_not_keep_the_other_from_being_requested() {
    let scratch = tempfile::tempdir().unwrap();
    std::fs::write(scratch.path().join("a"), noise(1, SIZE as usize)).unwrap();
    let (image, inner) = image(&[archive(scratch.path())]);
    let gate = Arc::new(Semaphore::new(2));
    let asked = Arc::<Mutex<[Vec<u64>; 2]>>::default();
    let source =
        TwoStripes { inner: Arc::new(inner), gate: Arc::clone(&gate), asked: Arc::clone(&asked) };
    let folder = tempfile::tempdir().unwrap();
    let cache = Arc::new(BlockCache::open(folder.path(), 1 << 30).unwrap());
    let blocks = Arc::new(BlockStore::new(Arc::new(source), Some(cache)));
    let reader = Arc::new(BlobReader::new(blocks, image.layers[0].clone()).unwrap());
    runtime().block_on(async {
        let all = Arc::clone(&reader);
        let reading = tokio::spawn(async move {
            for block in 0..SIZE / BLOCK {
                all.read(block * BLOCK..block * BLOCK + 1).await.unwrap();
            }
        });
        // The reader waits for the third run of the second stripe: run 5 of all. Of the 16 blocks
        // behind it those of the first stripe are requested.
        let waiting = async {
            while !asked.lock().unwrap()[0].contains(&10) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(LIMIT, waiting).await.expect("the first stripe is requested");
        let second = asked.lock().unwrap()[1].clone();
        assert!(second.len() <= 4, "two arrived, and two are under way: {second:?}");
        gate.add_permits((SIZE / RUN) as usize);
        tokio::time::timeout(LIMIT, reading).await.expect("timeout").unwrap();
    });
    let mut asked = asked.lock().unwrap().clone();
    for (stripe, asked) in asked.iter_mut().enumerate() {
        asked.sort_unstable();
        // Of the first one each block is asked for: the reader is not known to be sequential yet.
        if asked.starts_with(&[0, 0]) {
            asked.remove(0);
        }
        let expected: Vec<u64> = (0..SIZE / RUN).filter(|run| run % 2 == stripe as u64).collect();
        assert_eq!(*asked, expected, "each run is asked for once");
    }
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

/// A reader looks for a block, and then claims it: meanwhile another one may have fetched it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn readers_at_the_same_time_fetch_each_block_once() {
    let scratch = tempfile::tempdir().unwrap();
    std::fs::write(scratch.path().join("a"), noise(1, 1 << 20)).unwrap();
    let (image, source) = image(&[archive(scratch.path())]);
    for round in 0..500 {
        let folder = tempfile::tempdir().unwrap();
        let cache = Arc::new(BlockCache::open(folder.path(), 1 << 30).unwrap());
        let source = Arc::new(source.again());
        let blocks = Arc::new(BlockStore::new(Arc::clone(&source) as _, Some(cache)));
        let layer = Arc::new(BlobReader::new(blocks, image.layers[0].clone()).unwrap());
        let count = layer.raw_size().div_ceil(BLOCK);
        let reading = (0..4).map(|reader| {
            let layer = Arc::clone(&layer);
            tokio::spawn(async move {
                for block in 0..count {
                    match reader {
                        0 => layer.prefetch(block as usize..block as usize + 1).await.unwrap(),
                        _ => drop(layer.read(block * BLOCK..block * BLOCK + 1).await.unwrap()),
                    }
                }
            })
        });
        for read in futures::future::join_all(reading).await {
            read.unwrap();
        }
        let fetched = source.bytes.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(fetched, image.layers[0].size, "round {round}");
    }
}
