//! Fetching and writing images on a full disk that gets a little more space each time.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::Arc;

use snowmelt_image::block::{BlockSize, OciDigest};
use snowmelt_image::read::{BlobReader, BlockSource, LocalSource, RawFiles};
use snowmelt_image::source::{Access, FolderOrigin, OciLayout, Reference};
use snowmelt_image::{Error, Options, Result, convert, exchange, verify_image};
use snowmelt_types::{Code, Report};
use tokio::runtime::Runtime;

use super::cache::Disk;
use super::lazy_mounts::noise;
use super::mounts::{is_root, scratch};
use super::raw_files::some;
use super::registry::serve;

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn files(folder: PathBuf) -> Vec<PathBuf> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// Tries with `step` more bytes each time until there is enough space, and checks what several of
/// the failures leave behind.
fn squeeze<T>(
    disk: &Disk,
    step: u64,
    mut attempt: impl FnMut() -> Result<T>,
    look: impl Fn(),
) -> T {
    let filler = File::options().write(true).open(disk.fill()).unwrap();
    for failures in 0.. {
        match attempt() {
            Ok(done) => {
                assert!(failures > 3, "{failures}");
                return done;
            }
            Err(error) => {
                let report = error.report();
                assert_eq!(report.code, Code::DISK_FULL.code, "{error:?}");
                assert!(report.message.contains("No space left"), "{}", report.message);
                look();
            }
        }
        let size = filler.metadata().unwrap().len();
        filler.set_len(size.checked_sub(step).expect("an empty disk has room")).unwrap();
    }
    unreachable!()
}

#[test]
fn a_pull_to_a_full_disk_fails_until_there_is_space() {
    let Some((scratch, folder)) = scratch() else { return };
    let served = serve(scratch.path(), "");
    fs::write(folder.join("a"), noise(1, 60_000)).unwrap();
    let from = OciLayout::create(&scratch.path().join("from")).unwrap();
    let options = Options { block_size: BlockSize::MIN, ..Options::default() };
    let made = convert(&FolderOrigin::open(&folder).unwrap(), &from, options).unwrap();
    let name: Reference = format!("{}/team/app:blocks", served.address).parse().unwrap();
    let runtime = runtime();
    let quiet = |_: usize, _: usize, _: u64| ();
    runtime.block_on(exchange::push(&from, &made.image, &name, &Access::own(), &quiet)).unwrap();

    let disk = Disk::new(1 << 20);
    let to = OciLayout::create(&disk.path("store")).unwrap();
    let pull = || runtime.block_on(exchange::pull(&name, &to, &Access::own(), &quiet));
    let pulled = squeeze(&disk, 4096, pull, || {
        assert!(files(disk.path("store/.snowmelt/tmp")).is_empty());
        for blob in files(disk.path("store/blobs/sha256")) {
            let digest = OciDigest::of(&fs::read(&blob).unwrap());
            assert!(blob.ends_with(digest.hex()), "existing blobs are complete: {blob:?}");
        }
        assert!(!to.blob_path(&made.manifest.digest).exists(), "the manifest is written last");
        assert!(to.list().unwrap().is_empty());
        let found = to.find(Some("app"));
        assert!(matches!(found, Err(Error::Missing { .. })), "{found:?}");
    });
    fs::remove_file(disk.path("filler")).unwrap();
    disk.wait_for_room();
    to.tag("app", &pulled.manifest).unwrap();
    assert_eq!(to.find(Some("app")).unwrap().digest, made.manifest.digest);
    let source: Arc<dyn BlockSource> = Arc::new(LocalSource::new(to.folder()));
    let verified = runtime.block_on(verify_image(&pulled.image, &source)).unwrap();
    assert!(verified.damages.is_empty() && verified.bytes > 60_000, "{verified:?}");
}

#[test]
fn raw_files_on_a_full_disk_are_complete_or_missing() {
    if !is_root() {
        return;
    }
    let (image, readers) = some(1);
    let disk = Disk::new(8 << 20);
    let folder = disk.path("raw");
    fs::create_dir(&folder).unwrap();
    let made = RawFiles::new(&folder, 1 << 30);
    let runtime = runtime();
    let whole = |blob: &Arc<BlobReader>| {
        let bytes = runtime.block_on(blob.read(0..blob.raw_size())).unwrap();
        (folder.join(format!("{}.raw", blob.summary().root)), bytes)
    };
    let expected: BTreeMap<PathBuf, Vec<u8>> = readers.iter().map(whole).collect();
    let is_whole = |path: &PathBuf| expected.get(path) == fs::read(path).ok().as_ref();
    let make = || runtime.block_on(made.make(&image, &readers));
    let held = squeeze(&disk, 512 << 10, make, || {
        assert!(made.of(&image).is_none());
        // The lock was released by each failure.
        let mut found = files(folder.clone()).into_iter();
        assert!(found.all(|path| path.ends_with("lock") || is_whole(&path)));
    });
    let held = held.expect("there is space within the limit");
    assert!(held.paths.iter().all(is_whole));
    assert_eq!(held.paths.len(), expected.len());
    assert_eq!(files(folder.clone()).len(), expected.len() + 1, "the files and the lock");
}
