//! A killed server is replaced without failures of readers, for both mount methods.

use std::fs;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use snowmelt_image::Image;
use snowmelt_image::block::OciDigest;
use snowmelt_image::mount::{Form, ImageReaders, LazyMount};
use snowmelt_image::read::{BlockSource, BlockStore};
use snowmelt_kernel::packet;
use tokio::runtime::Runtime;

use super::lazy_mounts::{FORMS, archive, image, noise};
use super::mounts::scratch;
use super::sources::MemorySource;

const BYTES: usize = 6 << 20;
const FOLDER: &str = "SNOWMELT_TEST_SERVE";
const FORM: &str = "SNOWMELT_TEST_FORM";

/// Both processes create the same image.
fn made(folder: &Path) -> (Image, MemorySource) {
    image(&[archive(&folder.join("root"))])
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// The process that the next test kills. Does nothing without the folder variable.
#[test]
fn server_to_be_killed() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let form = FORMS[std::env::var(FORM).unwrap().parse::<usize>().unwrap()];
    let (image, source) = made(&folder);
    let blocks = Arc::new(BlockStore::new(Arc::new(source), None));
    let runtime = runtime();
    let mount = LazyMount::new(&image, &blocks, runtime.handle(), form).unwrap();
    let socket = packet::connect(&folder.join("socket")).unwrap();
    packet::send(&socket, b"here", &[mount.root(), mount.device()]).unwrap();
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}

fn server(folder: &Path, form: usize) -> (Child, OwnedFd, OwnedFd) {
    let _ = fs::remove_file(folder.join("socket"));
    let listener = packet::listen(&folder.join("socket")).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "takeover::server_to_be_killed", "--nocapture"]);
    command.env(FOLDER, folder).env(FORM, form.to_string());
    let child = command.spawn().unwrap();
    let client = packet::accept(&listener).unwrap();
    let mut fds = packet::receive(&client, &mut [0; 16]).unwrap().fds.into_iter();
    (child, fds.next().unwrap(), fds.next().unwrap())
}

#[test]
fn a_killed_server_is_replaced_without_failed_reads() {
    let Some((scratch, root)) = scratch() else { return };
    fs::create_dir_all(root.join("deep/er")).unwrap();
    fs::write(root.join("deep/er/file"), noise(1, BYTES)).unwrap();
    fs::write(root.join("other"), noise(2, 5000)).unwrap();
    let (image, source) = made(scratch.path());
    let blocks = Arc::new(BlockStore::new(Arc::new(source), None));
    let runtime = runtime();
    for (number, form) in FORMS.into_iter().enumerate() {
        // Before the first lookup, during a lookup, and during reads.
        for read_before in [None, Some(0), Some(100_000), Some(3 << 20)] {
            check(scratch.path(), number, form, &image, &blocks, &runtime, read_before);
        }
    }
}

fn check(
    folder: &Path,
    number: usize,
    form: Form,
    image: &Image,
    blocks: &Arc<BlockStore>,
    runtime: &Runtime,
    read_before: Option<usize>,
) {
    let (mut child, root, device) = server(folder, number);
    let path = |name: &str| PathBuf::from(format!("/proc/self/fd/{}/{name}", root.as_raw_fd()));
    let file = path("deep/er/file");
    let other = path("other");
    let mut begun = vec![0; read_before.unwrap_or(0)];
    let opened = read_before.map(|_| fs::File::open(&file).unwrap());
    if let Some(opened) = &opened {
        opened.read_exact_at(&mut begun, 0).unwrap();
    }
    let reader = std::thread::spawn(move || (fs::read(&file).unwrap(), opened));
    if read_before != Some(0) {
        child.kill().unwrap();
    }
    let reading = std::thread::spawn(move || fs::read(&other).unwrap());
    let _ = child.kill();
    child.wait().unwrap();
    let copy = root.try_clone().unwrap();
    let readers = ImageReaders::new(image, blocks).unwrap();
    let next = LazyMount::take_over(readers, runtime.handle(), form, copy, device).unwrap();
    let (found, opened) = reader.join().unwrap();
    assert!(found == noise(1, BYTES) && found.starts_with(&begun), "{form:?} {read_before:?}");
    assert!(reading.join().unwrap() == noise(2, 5000));
    drop((opened, next));
}

/// Announces each request, and never answers it.
struct Silent;

#[async_trait]
impl BlockSource for Silent {
    async fn fetch(&self, _: &OciDigest, _: Range<u64>) -> snowmelt_image::Result<Bytes> {
        println!("asked");
        std::future::pending().await
    }
}

/// The process that the next test kills. Does nothing without the folder variable.
#[test]
fn mounting_server_to_be_killed() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let (image, _) = made(&folder);
    let runtime = runtime();
    let form = Form::Erofs;
    // Two, because a mounting thread must not hold the other's connection open.
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let blocks = Arc::new(BlockStore::new(Arc::new(Silent), None));
            let image = &image;
            let runtime = runtime.handle();
            scope.spawn(move || LazyMount::new(image, &blocks, runtime, form));
        }
    });
}

#[test]
fn a_server_killed_while_mounting_exits() {
    let Some((scratch, root)) = scratch() else { return };
    fs::write(root.join("file"), noise(1, 5000)).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    let name = "takeover::mounting_server_to_be_killed";
    command.args(["--exact", name, "--nocapture"]).env(FOLDER, scratch.path());
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let said = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(said.filter(|line| line.contains("asked")).take(2).count(), 2);
    child.kill().unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "it waits for its own answer");
        std::thread::sleep(Duration::from_millis(5));
    }
}
