//! An image is mounted with its manifest only; a read fetches the blocks that contain the data.
//! Needs root and /dev/fuse.

use std::fs;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use snowmelt_image::block::{BlobWriter, BlockSize, OciDigest};
use snowmelt_image::manifest::{Descriptor, OCI_CONFIG};
use snowmelt_image::mount::{Form, LazyMount};
use snowmelt_image::profile::StartProfile;
use snowmelt_image::read::{BlockCache, BlockSource, BlockStore};
use snowmelt_image::tree::Tree;
use snowmelt_image::{Error, Image};

use super::compare::describe;
use super::mounts::{convert, is_root};
use super::sources::{Fault, MemorySource};

const BLOCK: BlockSize = BlockSize::MIN;

/// Incompressible bytes, different for each seed.
pub fn noise(seed: u8, bytes: usize) -> Vec<u8> {
    let mut content = vec![0; bytes];
    blake3::Hasher::new_derive_key(&format!("noise {seed}")).finalize_xof().fill(&mut content);
    content
}

pub fn archive(root: &Path) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    builder.append_dir_all(".", root).unwrap();
    builder.into_inner().unwrap()
}

/// An image of these layers, and a source with its blobs.
pub fn image(layers: &[Vec<u8>]) -> (Image, MemorySource) {
    let mut tree = Tree::default();
    let mut summaries = Vec::new();
    let mut blobs = Vec::new();
    for stream in layers {
        let (layer, blob) = convert(&stream[..], BLOCK);
        tree.apply(&layer.entries).unwrap();
        summaries.push(layer.blob);
        blobs.push(blob);
    }
    let sizes: Vec<u64> = summaries.iter().map(|blob| blob.raw_size).collect();
    let mut writer = BlobWriter::new(Vec::new(), Path::new("memory"), BLOCK);
    writer.append(&snowmelt_image::erofs::write(&tree, &sizes).unwrap()).unwrap();
    let (metadata, blob) = writer.finish().unwrap();
    blobs.push(blob);
    let config = Descriptor::new(OCI_CONFIG, OciDigest::of(b"{}"), 2);
    let image = Image { metadata, layers: summaries, config, original: None };
    (Image::decode(&image.encode().unwrap()).unwrap(), MemorySource::of(blobs))
}

/// Both methods to mount an image.
pub const FORMS: [Form; 2] = [Form::Erofs, Form::Fuse];

pub struct Setup {
    pub mount: LazyMount,
    pub source: Arc<MemorySource>,
    blocks: Arc<BlockStore>,
    pub runtime: tokio::runtime::Runtime,
}

impl Setup {
    fn new(image: &Image, source: MemorySource, cache: Option<Arc<BlockCache>>) -> Self {
        Self::of(Form::Erofs, image, source, cache)
    }

    pub fn of(
        form: Form,
        image: &Image,
        source: MemorySource,
        cache: Option<Arc<BlockCache>>,
    ) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let source = Arc::new(source);
        let shared: Arc<dyn BlockSource> = Arc::clone(&source) as _;
        let blocks = Arc::new(BlockStore::new(shared, cache));
        let mount = LazyMount::new(image, &blocks, runtime.handle(), form).unwrap();
        Self { mount, source, blocks, runtime }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        format!("/proc/self/fd/{}/{name}", self.mount.root().as_raw_fd()).into()
    }
}

#[test]
fn a_read_fetches_only_the_needed_blocks() {
    if is_root() {
        FORMS.into_iter().for_each(a_read_fetches_only_the_needed_blocks_by);
    }
}

fn a_read_fetches_only_the_needed_blocks_by(form: Form) {
    let scratch = tempfile::tempdir().unwrap();
    for (seed, name) in [(1, "a"), (2, "b"), (3, "c")] {
        fs::write(scratch.path().join(name), noise(seed, 1 << 20)).unwrap();
    }
    fs::write(scratch.path().join("small"), "text").unwrap();
    let lower = archive(scratch.path());
    let upper = tempfile::tempdir().unwrap();
    fs::write(upper.path().join("other"), noise(4, 1 << 20)).unwrap();
    let (image, source) = image(&[lower, archive(upper.path())]);
    let setup = Setup::of(form, &image, source, None);

    assert!(setup.mount.layers().iter().all(|layer| layer.touched().is_empty()));
    assert_eq!(fs::read_to_string(setup.path("small")).unwrap(), "text");
    assert!(setup.mount.layers()[0].touched().len() <= 2);
    assert!(setup.mount.layers()[1].touched().is_empty());

    assert!(fs::read(setup.path("b")).unwrap() == noise(2, 1 << 20));
    let touched = setup.mount.layers()[0].touched().len();
    // 16 blocks if the file starts at a block boundary, at most one more at each end.
    assert!((16..=20).contains(&touched), "{touched}");
    assert!(setup.mount.layers()[1].touched().is_empty(), "no block of the other layer");
    let fetched = setup.blocks.counts().fetched_bytes;
    assert!(fetched < (1 << 20) * 3 / 2, "{fetched}");

    let before = setup.source.requested.lock().unwrap().len();
    assert!(fs::read(setup.path("b")).unwrap() == noise(2, 1 << 20));
    assert_eq!(setup.source.requested.lock().unwrap().len(), before, "it is in the page cache");
}

#[test]
fn a_mount_shows_the_original_files() {
    if is_root() {
        FORMS.into_iter().for_each(a_mount_shows_the_original_files_by);
    }
}

fn a_mount_shows_the_original_files_by(form: Form) {
    let scratch = tempfile::tempdir().unwrap();
    for (index, size) in [0, 1, 4096, 70_000, 300_000].into_iter().enumerate() {
        fs::create_dir_all(scratch.path().join(format!("d{index}"))).unwrap();
        fs::write(scratch.path().join(format!("d{index}/f")), noise(index as u8, size)).unwrap();
    }
    let (image, source) = image(&[archive(scratch.path())]);
    let setup = Setup::of(form, &image, source, None);
    let content = |root: &Path| -> Vec<(String, String)> {
        let last = |line: String| line.split("as=").nth(1).unwrap_or_default().to_owned();
        describe(root).into_iter().map(|(name, line)| (name, last(line))).collect()
    };
    assert_eq!(content(&setup.path(".")), content(scratch.path()));
}

#[test]
fn damaged_and_truncated_answers_are_fetched_again() {
    if is_root() {
        FORMS.into_iter().for_each(damaged_and_truncated_answers_are_fetched_again_by);
    }
}

fn damaged_and_truncated_answers_are_fetched_again_by(form: Form) {
    let scratch = tempfile::tempdir().unwrap();
    fs::write(scratch.path().join("a"), noise(1, 300_000)).unwrap();
    let (image, source) = image(&[archive(scratch.path())]);
    let setup = Setup::of(form, &image, source, None);
    assert_eq!(fs::metadata(setup.path("a")).unwrap().len(), 300_000);
    // First the layer's table, then one of its blocks.
    *setup.source.faults.lock().unwrap() = vec![Fault::Cut, Fault::Flip];
    let mut byte = [0];
    let file = fs::File::open(setup.path("a")).unwrap();
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut byte, 0).unwrap();
    assert_eq!(setup.blocks.counts().damaged, 2);
    *setup.source.faults.lock().unwrap() = vec![Fault::Cut, Fault::Flip];
    assert!(fs::read(setup.path("a")).unwrap() == noise(1, 300_000));
    assert_eq!(setup.blocks.counts().damaged, 4);
}

#[test]
fn a_failed_mount_reports_the_cause_of_the_failed_read() {
    if !is_root() {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    fs::write(scratch.path().join("a"), noise(1, 300_000)).unwrap();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (image, source) = image(&[archive(scratch.path())]);
    let mount = |source: MemorySource| {
        let blocks = Arc::new(BlockStore::new(Arc::new(source), None));
        LazyMount::new(&image, &blocks, runtime.handle(), Form::Erofs).err()
    };
    let gone = mount(MemorySource::default()).unwrap();
    assert!(matches!(gone, Error::Missing { .. }), "{gone}");
    let failing = mount(source.again().faults(&[Fault::Fail; 64])).unwrap();
    assert!(matches!(failing, Error::Unreachable { .. }), "{failing}");
    // The table, or a block with an undamaged table.
    for sound in [0, 1] {
        let damaged = source.again().faults(&[Fault::Flip; 64]);
        damaged.faults.lock().unwrap().extend((0..sound).map(|_| Fault::None));
        let damaged = mount(damaged).unwrap();
        assert!(matches!(damaged, Error::Damaged { .. }), "{damaged}");
    }
    assert!(mount(source).is_none());
}

#[test]
fn a_read_failure_is_reported_once_and_only_if_recent() {
    if is_root() {
        FORMS.into_iter().for_each(a_read_failure_is_reported_by);
    }
}

fn a_read_failure_is_reported_by(form: Form) {
    let scratch = tempfile::tempdir().unwrap();
    fs::write(scratch.path().join("a"), noise(1, 300_000)).unwrap();
    let (image, source) = image(&[archive(scratch.path())]);
    let setup = Setup::of(form, &image, source, None);
    let began = std::time::Instant::now();
    assert!(setup.mount.take_read_failure(began).is_none());
    *setup.source.faults.lock().unwrap() = vec![Fault::Fail; 1000];
    fs::read(setup.path("a")).unwrap_err();
    setup.source.faults.lock().unwrap().clear();
    assert!(setup.mount.take_read_failure(std::time::Instant::now()).is_none(), "it was earlier");
    let why = setup.mount.take_read_failure(began).unwrap();
    assert!(matches!(why, Error::Unreachable { .. }), "{why}");
}

#[test]
fn an_unreachable_source_is_an_error() {
    if is_root() {
        FORMS.into_iter().for_each(an_unreachable_source_is_an_error_by);
    }
}

fn an_unreachable_source_is_an_error_by(form: Form) {
    let scratch = tempfile::tempdir().unwrap();
    fs::write(scratch.path().join("a"), noise(1, 300_000)).unwrap();
    let (image, source) = image(&[archive(scratch.path())]);
    let setup = Setup::of(form, &image, source, None);
    *setup.source.faults.lock().unwrap() = vec![Fault::Fail; 1000];
    let error = fs::read(setup.path("a")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()));
    setup.source.faults.lock().unwrap().clear();
    assert!(fs::read(setup.path("a")).unwrap() == noise(1, 300_000), "and it recovers");
}

/// A mount's thread exits, and releases its cache, some time after the mount is dropped.
fn open(folder: &Path) -> BlockCache {
    let began = std::time::Instant::now();
    loop {
        match BlockCache::open(folder, 1 << 30) {
            Err(error) if began.elapsed().as_secs() > 60 => panic!("{error}"),
            Err(_) => std::thread::sleep(std::time::Duration::from_millis(10)),
            Ok(cache) => return cache,
        }
    }
}

#[test]
fn the_cache_serves_the_next_mount() {
    if !is_root() {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    fs::write(scratch.path().join("a"), noise(1, 300_000)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (image, first) = image(&[archive(scratch.path())]);
    let second = MemorySource::of(first.blobs.iter().map(|(_, blob)| blob.to_vec()).collect());
    for (source, fetches) in [(first, true), (second, false)] {
        let setup = Setup::new(&image, source, Some(Arc::new(open(folder.path()))));
        assert!(fs::read(setup.path("a")).unwrap() == noise(1, 300_000));
        // The tables are fetched each time, blocks only once.
        let counts = setup.blocks.counts();
        assert_eq!(counts.fetched_bytes > 300_000, fetches, "{counts:?}");
        assert!(counts.cached > 0 || fetches, "{counts:?}");
    }
}

#[test]
fn a_flipped_bit_anywhere_is_detected() {
    let scratch = tempfile::tempdir().unwrap();
    fs::write(scratch.path().join("a"), noise(1, 200_000)).unwrap();
    fs::write(scratch.path().join("zeros"), vec![0; 200_000]).unwrap();
    let (image, whole) = image(&[archive(scratch.path())]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let damages = |source: MemorySource| {
        let source: Arc<dyn BlockSource> = Arc::new(source);
        runtime.block_on(snowmelt_image::verify_image(&image, &source)).unwrap().damages
    };
    let total: usize = whole.blobs.iter().map(|(_, blob)| blob.len()).sum();
    for bit in (0..total * 8).step_by(total * 8 / 97).chain([total * 8 - 1]) {
        let mut at = bit / 8;
        let mut source = MemorySource::default();
        for (name, blob) in &whole.blobs {
            let mut blob = blob.to_vec();
            if at < blob.len() {
                blob[at] ^= 1 << (bit % 8);
            }
            at = at.wrapping_sub(blob.len());
            source.blobs.push((name.clone(), blob.into()));
        }
        assert_eq!(damages(source).len(), 1, "bit {bit} of {total} bytes");
    }
    assert_eq!(damages(whole), []);
}

#[test]
fn a_prefetched_start_needs_no_request() {
    if !is_root() {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    for (seed, name) in [(1, "a"), (2, "b")] {
        fs::write(scratch.path().join(name), noise(seed, 400_000)).unwrap();
    }
    let (image, first) = image(&[archive(scratch.path())]);
    let second = MemorySource::of(first.blobs.iter().map(|(_, blob)| blob.to_vec()).collect());
    let readers = |setup: &Setup| {
        let layers = setup.mount.layers().iter().cloned();
        std::iter::once(Arc::clone(setup.mount.metadata())).chain(layers).collect::<Vec<_>>()
    };
    let one = Setup::new(&image, first, None);
    assert!(fs::read(one.path("b")).unwrap() == noise(2, 400_000));
    let profile = StartProfile::record(&readers(&one));
    assert_eq!(
        profile.blocks[0],
        (image.metadata.root, 0),
        "the kernel reads the superblock first"
    );
    assert!(profile.blocks.len() < 12, "{profile:?}");

    let folder = tempfile::tempdir().unwrap();
    let cache = Arc::new(BlockCache::open(folder.path(), 1 << 30).unwrap());
    let two = Setup::new(&image, second, Some(cache));
    two.runtime.block_on(profile.prefetch(&readers(&two), 4)).unwrap();
    let before = two.blocks.counts().requests;
    assert!(fs::read(two.path("b")).unwrap() == noise(2, 400_000));
    assert_eq!(two.blocks.counts().requests, before);
}
