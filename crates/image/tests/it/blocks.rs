//! Blocks of a layer: prefetched for sequential reads, verified, and fetched once for all readers.

use std::fs;
use std::sync::Arc;

use snowmelt_image::Error;
use snowmelt_image::read::{BlockCache, BlockSource, BlockStore};

use super::lazy_mounts::{archive, image, noise};
use super::sources::MemorySource;

#[test]
fn sequential_reads_are_prefetched_without_duplicates() {
    let scratch = tempfile::tempdir().unwrap();
    fs::write(scratch.path().join("a"), noise(1, 4 << 20)).unwrap();
    let (image, source) = image(&[archive(scratch.path())]);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let source = Arc::new(source);
    let folder = tempfile::tempdir().unwrap();
    let cache = Arc::new(BlockCache::open(folder.path(), 1 << 30).unwrap());
    let shared: Arc<dyn BlockSource> = Arc::clone(&source) as _;
    let blocks = Arc::new(BlockStore::new(shared, Some(cache)));
    let layer = image.layers[0].clone();
    let reader = snowmelt_image::read::BlobReader::new(Arc::clone(&blocks), layer).unwrap();
    let size = reader.raw_size();
    let whole = noise(1, 4 << 20);
    runtime.block_on(async {
        // A single block in the middle causes no prefetch.
        reader.read(40 * 65536..40 * 65536 + 1).await.unwrap();
        assert!(blocks.counts().fetched_bytes < 3 * 65536);
        let mut content = Vec::new();
        while (content.len() as u64) < size {
            let at = content.len() as u64;
            content.extend(reader.read(at..size.min(at + 65536)).await.unwrap());
        }
        assert!(content.windows(whole.len()).step_by(512).any(|part| part == whole));
    });
    // The table, the block in the middle, and runs of up to nine blocks.
    let counts = blocks.counts();
    assert!(counts.requests <= 2 + 4 + size.div_ceil(9 * 65536), "{counts:?}");
    assert!(counts.fetched_bytes < size + 65536, "{counts:?}");
    assert_eq!(reader.touched().len() as u64, size.div_ceil(65536), "all were read");
}

#[test]
fn a_damaged_prefetched_block_does_not_fail_a_read() {
    let scratch = tempfile::tempdir().unwrap();
    fs::write(scratch.path().join("a"), noise(1, 1 << 20)).unwrap();
    let (image, whole) = image(&[archive(scratch.path())]);
    let layer = image.layers[0].clone();
    let mut source = MemorySource::default();
    for (name, blob) in &whole.blobs {
        let mut blob = blob.to_vec();
        if *name == layer.digest {
            blob[5 * 65536 + 9] ^= 1;
        }
        source.blobs.push((name.clone(), blob.into()));
    }
    let folder = tempfile::tempdir().unwrap();
    let cache = Arc::new(BlockCache::open(folder.path(), 1 << 30).unwrap());
    let blocks = Arc::new(BlockStore::new(Arc::new(source), Some(cache)));
    let reader = snowmelt_image::read::BlobReader::new(blocks, layer).unwrap();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        for block in (0..16).filter(|block| *block != 5) {
            reader.read(block * 65536..block * 65536 + 1).await.unwrap();
        }
        let error = reader.read(5 * 65536..5 * 65536 + 1).await.unwrap_err();
        assert!(matches!(error, Error::Damaged { .. }), "{error}");
    });
}

#[test]
fn concurrent_readers_of_a_block_share_one_request() {
    let scratch = tempfile::tempdir().unwrap();
    fs::write(scratch.path().join("a"), noise(1, 60_000)).unwrap();
    let (image, source) = image(&[archive(scratch.path())]);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let source = Arc::new(source);
    let shared: Arc<dyn BlockSource> = Arc::clone(&source) as _;
    let blocks = Arc::new(BlockStore::new(shared, None));
    let reader = snowmelt_image::read::BlobReader::new(blocks, image.layers[0].clone()).unwrap();
    runtime.block_on(async {
        let reads = (0..50u64).map(|at| reader.read(at * 100..at * 100 + 10));
        for (at, read) in (0usize..).zip(futures::future::join_all(reads).await) {
            assert!(read.unwrap() == noise(1, 60_000)[at * 100..at * 100 + 10]);
        }
    });
    // The table and the block.
    assert_eq!(source.requested.lock().unwrap().len(), 2);
}
