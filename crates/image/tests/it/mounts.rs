//! Converts layers to an image on regular files, and mounts it with the kernel.

use std::fs;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use snowmelt_image::Image;
use snowmelt_image::block::{BlobSummary, BlobWriter, BlockSize, BlockTable, decode};
use snowmelt_image::layer::{Layer, LayerLimits, read_layer};
use snowmelt_image::read::{BlobReader, BlockSource, BlockStore};
use snowmelt_image::tree::Tree;
use snowmelt_kernel::mount;
use tempfile::TempDir;

/// Whether this user may mount; prints a message if not.
pub fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("skipped: only root can mount");
    }
    root
}

/// A scratch folder, and an empty folder in it whose files become an image; `None` without the
/// right to mount.
pub fn scratch() -> Option<(TempDir, PathBuf)> {
    if !is_root() {
        return None;
    }
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path().join("root");
    fs::create_dir(&root).unwrap();
    Some((scratch, root))
}

/// A detached mount, unmounted when this value is dropped.
pub struct Mounted(OwnedFd);

impl Mounted {
    /// Mounts the metadata part and the raw bytes of the layers, given as files.
    pub fn new(metadata: &Path, devices: &[PathBuf]) -> Self {
        let mut options = vec![("source", metadata.to_str().unwrap())];
        options.extend(devices.iter().map(|path| ("device", path.to_str().unwrap())));
        Self(mount::fresh("erofs", &options, mount::inert()).unwrap())
    }

    /// The path of its root.
    pub fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}/.", self.0.as_raw_fd()).into()
    }
}

/// A converted layer and its blob.
pub fn convert(stream: impl Read, block_size: BlockSize) -> (Layer, Vec<u8>) {
    let writer = BlobWriter::new(Vec::new(), Path::new("memory"), block_size);
    read_layer(stream, LayerLimits::default(), writer).unwrap()
}

/// All raw bytes of a blob.
pub fn raw(layer: &Layer, blob: &[u8]) -> Vec<u8> {
    let table =
        BlockTable::decode(&blob[layer.blob.table_offset as usize..], &layer.blob.root).unwrap();
    let block = |index: usize| {
        let at = table.stored(index..index + 1);
        let stored = &blob[at.start as usize..at.end as usize];
        decode(stored, &table.entries()[index], table.raw_of(index)).unwrap()
    };
    (0..table.entries().len()).flat_map(block).collect()
}

/// Layers, lowest first, as a mounted image with its files in `folder`.
pub fn mount_layers(layers: &[Vec<u8>], folder: &Path) -> Mounted {
    let mut tree = Tree::default();
    let mut devices = Vec::new();
    let mut sizes = Vec::new();
    for (index, stream) in layers.iter().enumerate() {
        let (layer, blob) = convert(&stream[..], BlockSize::MIN);
        tree.apply(&layer.entries).unwrap();
        let path = folder.join(format!("layer{index}"));
        fs::write(&path, raw(&layer, &blob)).unwrap();
        sizes.push(layer.blob.raw_size);
        devices.push(path);
    }
    let metadata = folder.join("metadata");
    fs::write(&metadata, snowmelt_image::erofs::write(&tree, &sizes).unwrap()).unwrap();
    Mounted::new(&metadata, &devices)
}

/// Reads the raw bytes of all blobs of an image to files, the metadata part first.
pub fn unpack_blobs(
    image: &Image,
    source: impl BlockSource + 'static,
    folder: &Path,
) -> Vec<PathBuf> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let blocks = Arc::new(BlockStore::new(Arc::new(source), None));
    let unpack = |(index, summary): (usize, &BlobSummary)| {
        let reader = BlobReader::new(Arc::clone(&blocks), summary.clone()).unwrap();
        let path = folder.join(format!("raw{index}"));
        fs::write(&path, runtime.block_on(reader.read(0..summary.raw_size)).unwrap()).unwrap();
        path
    };
    image.blobs().enumerate().map(unpack).collect()
}
