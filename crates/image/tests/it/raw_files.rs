//! Complete images as raw files: complete or missing, within their size limit, and mounted without
//! a server.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use snowmelt_image::Image;
use snowmelt_image::mount::mount_files;
use snowmelt_image::read::{BlobReader, BlockStore, LockedFiles, RawFiles};

use super::lazy_mounts::{archive, image, noise};
use super::mounts::is_root;
use super::sources::MemorySource;

const ROOM: u64 = 1 << 30;

fn readers(image: &Image, source: MemorySource) -> Vec<Arc<BlobReader>> {
    let blocks = Arc::new(BlockStore::new(Arc::new(source), None));
    let reader = |blob: &_| BlobReader::new(Arc::clone(&blocks), Clone::clone(blob)).unwrap();
    image.blobs().map(|blob| Arc::new(reader(blob))).collect()
}

fn make(files: &RawFiles, image: &Image, readers: &[Arc<BlobReader>]) -> Option<LockedFiles> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(files.make(image, readers)).unwrap()
}

/// An image with a file of random bytes and a file of zeros. No two seeds share a part: their
/// metadata parts would be equal if the files were created within the same second.
pub fn some(seed: u8) -> (Image, Vec<Arc<BlobReader>>) {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("a");
    fs::write(&path, noise(seed, 300_000)).unwrap();
    let time = UNIX_EPOCH + Duration::from_secs(seed.into());
    File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
    fs::write(root.path().join("zeros"), vec![0; 9 << 20]).unwrap();
    let (image, source) = image(&[archive(root.path())]);
    let readers = readers(&image, source);
    (image, readers)
}

#[test]
fn a_complete_image_is_mounted_without_a_server() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let files = RawFiles::new(&folder.path().join("raw"), ROOM);
    let (image, readers) = some(1);
    assert!(files.of(&image).is_none());
    let held = make(&files, &image, &readers).unwrap();
    drop(readers);
    let root = mount_files(&held.paths[0], &held.paths[1..]).unwrap();
    let path = |name| format!("/proc/self/fd/{}/{name}", root.as_raw_fd());
    assert!(fs::read(path("a")).unwrap() == noise(1, 300_000));
    assert!(fs::read(path("zeros")).unwrap() == vec![0; 9 << 20]);
    let blocks = fs::metadata(&held.paths[1]).unwrap().blocks();
    assert!(blocks * 512 < 6 << 20, "zeros are holes: {blocks}");
    // A mounted file remains readable after its name is removed.
    held.paths.iter().for_each(|path| fs::remove_file(path).unwrap());
    assert!(fs::read(path("a")).unwrap() == noise(1, 300_000));
}

#[test]
fn changed_files_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let files = RawFiles::new(folder.path(), ROOM);
    let (image, readers) = some(1);
    type Change = fn(&Path);
    let changes: [Change; 4] = [
        |path| {
            fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
            let file = File::options().write(true).open(path).unwrap();
            file.write_all_at(b"x", 5000).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o400)).unwrap();
        },
        |path| fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap(),
        |path| {
            let whole = File::open(path).unwrap().metadata().unwrap();
            let bytes = fs::read(path).unwrap();
            fs::remove_file(path).unwrap();
            fs::write(path, &bytes[..bytes.len() - 1]).unwrap();
            fs::set_permissions(path, whole.permissions()).unwrap();
            let file = File::open(path).unwrap();
            file.set_modified(whole.modified().unwrap()).unwrap();
        },
        |path| fs::remove_file(path).unwrap(),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let held = make(&files, &image, &readers).unwrap();
        let path = held.paths[1].clone();
        drop(held);
        assert!(files.of(&image).is_some());
        change(&path);
        assert!(files.of(&image).is_none(), "{number}");
        assert!(!path.exists(), "{number}");
    }
}

#[test]
fn unmounted_files_are_evicted_and_pruned() {
    let folder = tempfile::tempdir().unwrap();
    let count = || fs::read_dir(folder.path()).unwrap().count() - 1;
    let (one, of_one) = some(1);
    let size: u64 = of_one.iter().map(|reader| reader.raw_size()).sum();
    let files = RawFiles::new(folder.path(), 2 * size);
    let held = make(&files, &one, &of_one).unwrap();
    let (two, of_two) = some(2);
    assert!(make(&files, &two, &of_two).is_some());
    assert_eq!(count(), 4);
    let files = RawFiles::new(folder.path(), size);
    let (three, of_three) = some(3);
    assert!(make(&files, &three, &of_three).is_none(), "the first is mounted");
    assert!(files.of(&one).is_some() && files.of(&two).is_none());
    drop(held);
    assert!(make(&files, &three, &of_three).is_some());
    assert!(files.of(&one).is_none());
    assert!(make(&RawFiles::new(folder.path(), 0), &one, &of_one).is_none());

    let held = make(&files, &three, &of_three).unwrap();
    let dry = files.prune(true).unwrap();
    assert_eq!((dry, files.prune(false).unwrap().blobs), (Default::default(), 0));
    drop(held);
    assert_eq!(files.prune(true).unwrap().blobs, count() as u64);
    assert!(files.prune(false).unwrap().bytes > 300_000);
    assert_eq!(count(), 0);
    assert_eq!(RawFiles::new(Path::new("/nowhere"), 0).prune(false).unwrap().blobs, 0);
}

/// The process that the next test kills. Does nothing without the folder variable.
#[test]
fn writer_to_be_killed() {
    let Some(folder) = std::env::var_os("SNOWMELT_TEST_RAW").map(PathBuf::from) else { return };
    let made: Vec<_> = (1..5).map(some).collect();
    let files = RawFiles::new(&folder, ROOM);
    println!("begin");
    for (image, readers) in made.iter().cycle() {
        make(&files, image, readers).unwrap();
        println!("made");
        files.prune(false).unwrap();
    }
}

#[test]
fn a_killed_writer_leaves_only_complete_files() {
    let scratch = tempfile::tempdir().unwrap();
    let expected: Vec<_> = (1..5).map(some).collect();
    let files = RawFiles::new(scratch.path(), ROOM);
    for round in 0..6 {
        let mut writer = Command::new(std::env::current_exe().unwrap());
        writer.args(["--exact", "raw_files::writer_to_be_killed", "--nocapture"]);
        let mut writer =
            writer.env("SNOWMELT_TEST_RAW", scratch.path()).stdout(Stdio::piped()).spawn().unwrap();
        let told = BufReader::new(writer.stdout.take().unwrap()).lines().map(Result::unwrap);
        let told = told.filter(|line| line.contains("begin") || line.contains("made"));
        assert_eq!(told.take(1 + round % 3).count(), 1 + round % 3);
        std::thread::sleep(Duration::from_micros(round as u64 * 1500));
        writer.kill().unwrap();
        writer.wait().unwrap();
        // Files under final names are complete, and the next writer removes the others.
        for (image, readers) in &expected {
            let held = make(&files, image, readers).unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            for (path, reader) in held.paths.iter().zip(readers) {
                let whole = runtime.block_on(reader.read(0..reader.raw_size())).unwrap();
                assert!(fs::read(path).unwrap() == whole, "round {round}");
            }
        }
        let left = fs::read_dir(scratch.path()).unwrap().map(|entry| entry.unwrap().path());
        let other = left.filter(|path| path.extension().is_none_or(|ending| ending != "raw"));
        assert_eq!(other.collect::<Vec<_>>(), [scratch.path().join("lock")], "round {round}");
    }
}
