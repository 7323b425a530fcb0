//! The block cache, and everything else that writes, with `kill -9` and full disks.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use snowmelt_image::block::{BlockDigest, BlockEntry, BlockSize};
use snowmelt_image::build::{LayerFolder, Recipe, build};
use snowmelt_image::read::{BlobReader, BlockCache, BlockSource, BlockStore};
use snowmelt_image::source::{FolderOrigin, OciLayout};
use snowmelt_image::{Error, Options, convert};
use snowmelt_kernel::mount;

use super::lazy_mounts::{archive, image, noise};
use super::mounts::{is_root, scratch};

const BLOCK_BYTES: usize = 5000;
const BLOCKS: u32 = 64;
/// Less than all blocks, so that some are evicted.
const CAPACITY: u64 = 40 * BLOCK_BYTES as u64;

fn block(number: u32) -> (BlockEntry, Vec<u8>) {
    let mut stored = vec![0; BLOCK_BYTES];
    blake3::Hasher::new().update(&number.to_le_bytes()).finalize_xof().fill(&mut stored);
    (BlockEntry { stored: BLOCK_BYTES as u32, digest: BlockDigest::of(&stored) }, stored)
}

/// The process that the next test kills. Does nothing without the folder variable.
#[test]
fn writer_to_be_killed() {
    let Some(folder) = std::env::var_os("SNOWMELT_TEST_CACHE") else { return };
    let cache = BlockCache::open(Path::new(&folder), CAPACITY).unwrap();
    let tenant = cache.of_tenant("tenant");
    for number in (0..BLOCKS).cycle() {
        let (entry, stored) = block(number);
        cache.put(&entry, &stored).unwrap();
        tenant.put(&entry, &stored).unwrap();
        println!("put {number}");
    }
}

#[test]
fn a_killed_writer_leaves_only_complete_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let mut served = 0;
    for lines in 1..40 {
        let mut writer = Command::new(std::env::current_exe().unwrap());
        writer.args(["--exact", "cache::writer_to_be_killed", "--nocapture"]);
        writer.env("SNOWMELT_TEST_CACHE", folder.path()).stdout(Stdio::piped());
        let mut writer = writer.spawn().unwrap();
        let told = BufReader::new(writer.stdout.take().unwrap()).lines();
        let puts = told.filter(|line| line.as_ref().unwrap().contains("put ")).take(lines * 3);
        assert_eq!(puts.count(), lines * 3, "the writer exited");
        writer.kill().unwrap();
        writer.wait().unwrap();

        let cache = BlockCache::open(folder.path(), CAPACITY).unwrap();
        assert!(cache.bytes() <= CAPACITY);
        assert_eq!(fs::read_dir(folder.path().join("tmp")).unwrap().count(), 0);
        for part in [&cache, &cache.of_tenant("tenant")] {
            for number in 0..BLOCKS {
                let (entry, stored) = block(number);
                if let Some(found) = part.get(&entry) {
                    assert!(found == stored);
                    served += 1;
                }
            }
        }
        assert_eq!(cache.damaged(), 0, "no incomplete block has a final name");
    }
    assert!(served > 500, "{served}");
}

/// A small file system in memory with a detached mount.
pub struct Disk(OwnedFd);

impl Disk {
    pub fn new(bytes: u64) -> Self {
        let size = bytes.to_string();
        Self(
            mount::fresh("tmpfs", &[("size", &size)], mount::Attributes::MOUNT_ATTR_NOSUID)
                .unwrap(),
        )
    }

    pub fn path(&self, name: &str) -> PathBuf {
        format!("/proc/self/fd/{}/{name}", self.0.as_raw_fd()).into()
    }

    /// Uses up the remaining space.
    pub fn fill(&self) -> PathBuf {
        let path = self.path("filler");
        let mut file = fs::File::create(&path).unwrap();
        while std::io::Write::write_all(&mut file, &[1; 512]).is_ok() {}
        path
    }

    /// Waits until half of the space is free. A child that another test has just forked inherits
    /// open files until its exec, which keeps the space of removed files in use.
    pub fn wait_for_room(&self) {
        let deadline = Instant::now() + Duration::from_secs(30);
        let has_room = || {
            let found = rustix::fs::fstatvfs(&self.0).unwrap();
            found.f_bavail >= found.f_blocks / 2
        };
        while !has_room() {
            assert!(Instant::now() < deadline, "the space is still in use");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

#[test]
fn reads_continue_when_the_disk_of_the_cache_is_full() {
    if !is_root() {
        return;
    }
    let content = noise(1, 3 << 20);
    let scratch = tempfile::tempdir().unwrap();
    fs::write(scratch.path().join("a"), &content).unwrap();
    let (image, source) = image(&[archive(scratch.path())]);
    let source: Arc<dyn BlockSource> = Arc::new(source);
    let disk = Disk::new(1 << 20);
    let cache = Arc::new(BlockCache::open(&disk.path("cache"), 1 << 30).unwrap());
    let runtime = runtime();
    let raw_size = image.layers[0].raw_size;
    let read_from = |start: u64| {
        let blocks = Arc::new(BlockStore::new(Arc::clone(&source), Some(Arc::clone(&cache))));
        let reader = BlobReader::new(Arc::clone(&blocks), image.layers[0].clone()).unwrap();
        let found = runtime.block_on(reader.read(start..raw_size)).unwrap();
        (found, blocks.counts())
    };
    let (whole, _) = read_from(0);
    assert!(whole.windows(64).any(|window| window == &content[..64]));
    let read = || {
        let (found, _) = read_from(0);
        assert!(found == whole);
        // Recently read blocks are cached as far as there is space.
        let (last, counts) = read_from(raw_size - 1);
        assert!(last == whole[whole.len() - 1..]);
        counts
    };
    let counts = read();
    assert!(
        (1..=1 << 20).contains(&cache.bytes()),
        "its own blocks were evicted: {}",
        cache.bytes()
    );
    assert_eq!((counts.damaged, counts.cached), (0, 1));
    // Files of other writers take all of the space.
    let filler = disk.fill();
    read();
    fs::remove_file(&filler).unwrap();
    assert_eq!(read().cached, 1, "it stores blocks again");
    assert_eq!(cache.damaged(), 0);
}

#[test]
fn a_damaged_block_is_dropped_and_fetched_again() {
    let scratch = tempfile::tempdir().unwrap();
    fs::write(scratch.path().join("a"), noise(1, 60_000)).unwrap();
    let (image, source) = image(&[archive(scratch.path())]);
    let source: Arc<dyn BlockSource> = Arc::new(source);
    let folder = tempfile::tempdir().unwrap();
    let cache = Arc::new(BlockCache::open(folder.path(), 1 << 30).unwrap());
    let runtime = runtime();
    let read = || {
        let blocks = Arc::new(BlockStore::new(Arc::clone(&source), Some(Arc::clone(&cache))));
        let reader = BlobReader::new(Arc::clone(&blocks), image.layers[0].clone()).unwrap();
        (runtime.block_on(reader.read(0..u64::MAX)).unwrap(), blocks.counts())
    };
    let (whole, _) = read();
    let shelves = fs::read_dir(folder.path()).unwrap().map(|shelf| shelf.unwrap().path());
    let blocks = shelves.filter(|path| path.is_dir()).flat_map(|path| fs::read_dir(path).unwrap());
    let path = blocks.last().unwrap().unwrap().path();
    let stored = fs::read(&path).unwrap();
    for damage in [&stored[..100], &[], &[&[stored[0] ^ 1], &stored[1..]].concat()] {
        fs::write(&path, damage).unwrap();
        let (again, counts) = read();
        assert!(again == whole);
        assert!(counts.requests == 2 && counts.damaged > 0, "the table and the block: {counts:?}");
        assert!(fs::read(&path).unwrap() == stored, "it is repaired");
    }
}

#[test]
fn a_full_disk_is_reported_and_leaves_no_incomplete_file() {
    let Some((scratch, folder)) = scratch() else { return };
    fs::write(folder.join("a"), noise(1, 3 << 20)).unwrap();
    let origin = FolderOrigin::open(&folder).unwrap();
    let options = Options { block_size: BlockSize::MIN, ..Options::default() };

    let disk = Disk::new(1 << 20);
    let layout = OciLayout::create(&disk.path("store")).unwrap();
    let files = |name: &str| fs::read_dir(disk.path(name)).map_or(0, |files| files.count());
    let empty = || {
        let folders = ["blobs/sha256", ".snowmelt/tmp", ".snowmelt/layers", ".snowmelt/sources"];
        folders.iter().all(|folder| files(&format!("store/{folder}")) == 0)
    };
    let error = convert(&origin, &layout, options).unwrap_err();
    assert!(error.is_disk_full() && empty(), "{error:?}");
    let parts = vec![LayerFolder::content(&folder, "/app").unwrap()];
    let recipe = Recipe { parts, ..Recipe::default() };
    let error = build(&recipe, &layout, options).unwrap_err();
    assert!(error.is_disk_full() && empty(), "{error:?}");

    // A complete file of an image that does not fit.
    let (image, source) = image(&[archive(&folder)]);
    let blocks = Arc::new(BlockStore::new(Arc::new(source), None));
    let reader = BlobReader::new(blocks, image.layers[0].clone()).unwrap();
    let error = runtime().block_on(reader.complete(&disk.path("raw"))).unwrap_err();
    assert!(error.is_disk_full(), "{error:?}");
    assert_eq!(files("raw"), 0);
    disk.wait_for_room();

    // There is no space to write a name: the existing one is kept.
    let small = scratch.path().join("small");
    fs::create_dir(&small).unwrap();
    fs::write(small.join("a"), "small").unwrap();
    let converted = convert(&FolderOrigin::open(&small).unwrap(), &layout, options).unwrap();
    layout.tag("one", &converted.manifest).unwrap();
    let filler = disk.fill();
    let error = layout.tag("two", &converted.manifest).unwrap_err();
    assert!(error.is_disk_full(), "{error:?}");
    assert!(matches!(layout.find(Some("two")), Err(Error::Missing { .. })));
    assert_eq!(layout.find(Some("one")).unwrap().digest, converted.manifest.digest);
    fs::remove_file(filler).unwrap();
    disk.wait_for_room();
    layout.tag("two", &converted.manifest).unwrap();
    assert!(BlockCache::open(&disk.path("cache"), 1 << 30).is_ok());
}
