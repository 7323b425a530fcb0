//! Whether this machine can mount images lazily, found out by mounting an empty one.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use super::LazyMount;
use crate::block::{BlobWriter, BlockSize, OciDigest};
use crate::manifest::{Descriptor, OCI_CONFIG};
use crate::read::{BlockSource, Blocks};
use crate::tree::Tree;
use crate::{Error, Image, Result, erofs};

/// Mounts an image of nothing, and lets go of it. The error says which step the machine lacks.
/// Must not be called on a thread of a runtime.
pub fn probe() -> Result<()> {
    let mut writer = BlobWriter::new(Vec::new(), Path::new("memory"), BlockSize::MIN);
    writer.append(&erofs::write(&Tree::default(), &[])?)?;
    let (metadata, blob) = writer.finish()?;
    let config = Descriptor::new(OCI_CONFIG, OciDigest::of(b"{}"), 2);
    let image = Image { metadata, layers: Vec::new(), config, original: None };
    let failed = |source| Error::Mount { step: "start a thread", source };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build();
    let runtime = runtime.map_err(failed)?;
    let blocks = Arc::new(Blocks::new(Arc::new(Memory(blob.into())), None));
    LazyMount::new(&image, &blocks, runtime.handle()).map(drop)
}

/// The one blob there is.
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

#[cfg(test)]
mod tests {
    #[test]
    fn works_for_root_where_the_kernel_has_what_it_takes() {
        let probed = super::probe();
        match rustix::process::geteuid().is_root() {
            true => probed.unwrap(),
            false => drop(probed.unwrap_err()),
        }
    }
}
