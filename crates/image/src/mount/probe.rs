//! Checks whether this machine supports a mount method, by mounting an empty image.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use rustix::fs::AtFlags;

use super::{Form, LazyMount};
use crate::block::{BlobWriter, BlockSize, OciDigest};
use crate::filesystem::erofs;
use crate::filesystem::tree::Tree;
use crate::manifest::{Descriptor, OCI_CONFIG};
use crate::read::{BlockSource, BlockStore};
use crate::{Error, Image, Result};

/// Mounts an empty image, accesses it and unmounts it. An error names the step that the machine
/// does not support. Must not be called on a thread of an async runtime.
pub fn probe(form: Form) -> Result<()> {
    let mut writer = BlobWriter::new(Vec::new(), Path::new("memory"), BlockSize::MIN);
    writer.append(&erofs::write(&Tree::default(), &[])?)?;
    let (metadata, blob) = writer.finish()?;
    let config = Descriptor::new(OCI_CONFIG, OciDigest::of(b"{}"), 2);
    let image = Image { metadata, layers: Vec::new(), config, original: None };
    let failed = |step| move |source| Error::Mount { step, source };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build();
    let runtime = runtime.map_err(failed("start a thread"))?;
    let blocks = Arc::new(BlockStore::new(Arc::new(Memory(blob.into())), None));
    let mount = LazyMount::new(&image, &blocks, runtime.handle(), form)?;
    let accessed = rustix::fs::statat(mount.root(), "", AtFlags::EMPTY_PATH);
    accessed.map(drop).map_err(|errno| failed("access the mount")(errno.into()))
}

/// A source with a single blob.
struct Memory(Bytes);

#[async_trait]
impl BlockSource for Memory {
    async fn fetch(&self, blob: &OciDigest, range: Range<u64>) -> Result<Bytes> {
        match usize::try_from(range.end) {
            Ok(end) if end <= self.0.len() => Ok(self.0.slice(range.start as usize..end)),
            _ => Err(crate::read::outside(blob, &range)),
        }
    }
}
