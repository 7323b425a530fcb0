//! Files of functions on their way to other hosts, through trees of these hosts (FaaSNet,
//! section 5): broadcast values, models, anything that `files=` names.
//!
//! Control's host has each file. It makes a blob of blocks of the file ([`blocks`]), which the
//! roots of the file's trees read from there; each other host reads from its parents, and sends a
//! block to its children as soon as it is verified. The code is the same that spreads images
//! (`snowmelt_image::peer`); a host that has all blocks puts the file into its own store.
//!
//! Invariants: a host asks for files only if control has told it to, for a tenant that has sent
//! them. The file in the store has the digest that the tenant announced, whoever sent the blocks.

mod blocks;
mod dial;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use snowmelt_api::is_file_digest;
use snowmelt_image::block::BlobSummary;
use snowmelt_image::peer::{HostSource, Patience, PeerHost, PeerSource};
use snowmelt_image::read::{BlobReader, BlockStore, LocalSource, Retried, RetryPolicy};
use snowmelt_rpc::HostStream;
use snowmelt_types::Tenant;

use super::code::state;
use crate::images::{HeldImage, ImageKeeper, Sharing};
use crate::{Error, FileStore, Result, TreePlace, UNUSED_KEPT};
use blocks::BlockFiles;
use dial::FileDialer;

pub use dial::FILE_BLOCKS;

/// The number of bytes of a file that are in memory at once.
const STEP: u64 = 8 << 20;

/// The name of control's host where it is the source of files.
const SOURCE: &str = "control";

/// The prefix of the names of the trees of files.
const FILE_TREE: &str = "file:";

/// A file of a function that a host reads from other hosts before it uses the function.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SharedFile {
    /// The SHA-256 of the file.
    pub digest: String,
    /// The summary of the blob that has the file in blocks.
    pub blob: BlobSummary,
    /// The place of the host among those that read the file. Where the place names the registry,
    /// the host reads from control's own host.
    pub place: TreePlace,
}

/// Returns the name of the trees of a file, which differs from those of images.
pub fn file_tree(digest: &str) -> String {
    format!("{FILE_TREE}{digest}")
}

/// Returns whether trees of this name are those of a file, and not of an image.
pub fn is_file_tree(tree: &str) -> bool {
    tree.strip_prefix(FILE_TREE).is_some_and(is_file_digest)
}

/// The files that this host shares with other hosts of its cluster.
pub(crate) struct SharedFiles {
    images: Arc<ImageKeeper>,
    made: BlockFiles,
    dial: Arc<FileDialer>,
    sharing: Sharing,
    /// The blocks of the blobs that were made on this host.
    own: Arc<BlockStore>,
    /// The blocks from other hosts; empty before the first file.
    others: Mutex<Option<(SocketAddr, Arc<BlockStore>)>>,
    /// The lock of each file's digest, which is held while the file is made or fetched.
    turns: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

impl std::fmt::Debug for SharedFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedFiles").field("made", &self.made).finish_non_exhaustive()
    }
}

impl SharedFiles {
    /// Makes the value; opens nothing yet.
    pub fn new(state_dir: &Path, images: Arc<ImageKeeper>) -> Self {
        let made = BlockFiles::new(state_dir.join("files").join("blocks"));
        let dial = Arc::new(FileDialer::new(Arc::clone(&images)));
        let connect: Arc<FileDialer> = Arc::clone(&dial);
        let sharing = Sharing::new(connect, images.share());
        Self {
            own: Arc::new(BlockStore::new(Arc::new(LocalSource::new(made.folder())), None)),
            others: Mutex::default(),
            turns: Mutex::default(),
            images,
            made,
            dial,
            sharing,
        }
    }

    /// Lets other hosts read a file that is in a store of this host; returns the summary of its
    /// blob.
    pub async fn offer(
        &self,
        store: &FileStore,
        tenant: &Tenant,
        digest: &str,
    ) -> Result<BlobSummary> {
        let turn = self.turn(digest);
        let _turn = turn.lock().await;
        let store = store.clone();
        let tenant = tenant.clone();
        let digest = digest.to_owned();
        let made = self.made.clone();
        let make = move || made.make(store.open(&tenant, &digest)?.0, &digest);
        let summary = self.blocking(make).await?;
        let reader = BlobReader::new(Arc::clone(&self.own), summary.clone())?;
        self.sharing.exports.add(&summary.digest, [Arc::new(reader)]);
        Ok(summary)
    }

    /// Reads a file from the hosts that its place names and keeps it for a tenant, unless it is on
    /// this host. From now on other hosts may read it from this one.
    ///
    /// # Errors
    /// `Error::FunctionFile` if this host is in no cluster.
    pub async fn fetch(&self, store: &FileStore, tenant: &Tenant, file: &SharedFile) -> Result<()> {
        let Some(cluster) = self.images.cluster() else { return Err(alone()) };
        let blob = &file.blob;
        let reader = Arc::new(BlobReader::new(self.others()?, blob.clone())?);
        self.sharing.place(&blob.digest, [blob.digest.clone()], &cluster.place(&file.place));
        self.sharing.exports.add(&blob.digest, [Arc::clone(&reader)]);
        let turn = self.turn(&file.digest);
        let _turn = turn.lock().await;
        if store.missing(tenant, std::slice::from_ref(&file.digest)).is_empty() {
            return Ok(());
        }
        let ahead = async {
            // A failure is seen by those who read the file.
            let _ = reader.prefetch(0..usize::MAX).await;
            std::future::pending().await
        };
        tokio::select! {
            kept = self.keep(store, tenant, &file.digest, &reader) => kept,
            () = ahead => Ok(()),
        }
    }

    async fn keep(
        &self,
        store: &FileStore,
        tenant: &Tenant,
        digest: &str,
        reader: &BlobReader,
    ) -> Result<()> {
        store.sweep_received().await;
        let mut receiving = store.receive(tenant, digest)?;
        let mut at = 0;
        while at < reader.raw_size() {
            let end = reader.raw_size().min(at + STEP);
            let piece = reader.read(at..end).await?;
            receiving = self
                .blocking(move || {
                    receiving.write(&piece)?;
                    Ok(receiving)
                })
                .await?;
            at = end;
        }
        self.blocking(move || receiving.finish()).await
    }

    /// Reads a file from the hosts of a new place from now on.
    pub fn move_to(&self, place: &TreePlace) {
        if let Some(cluster) = self.images.cluster() {
            self.sharing.move_to(&cluster.place(place));
        }
    }

    /// Returns the files that this host has a place for, and how many bytes of them it has, and has
    /// read and sent.
    pub fn held(&self) -> Vec<HeldImage> {
        self.sharing.shared().into_iter().map(HeldImage::from).collect()
    }

    /// Answers the requests of another host for blocks until its connection ends.
    pub async fn serve(&self, stream: HostStream) {
        if stream.is_encrypted() {
            return self.sharing.exports.serve(stream).await;
        }
        // Each block is verified by its digest.
        match stream.into_unverified() {
            Ok(stream) => self.sharing.exports.serve(stream).await,
            Err(error) => tracing::debug!(%error, "another host gets no blocks of files"),
        }
    }

    /// Removes blobs that no other host has read for `UNUSED_KEPT`.
    pub fn sweep(&self) -> Result<()> {
        self.made.sweep(UNUSED_KEPT)
    }

    /// Returns the blocks that other hosts send, with the same cache as those of images.
    fn others(&self) -> Result<Arc<BlockStore>> {
        let control = self.images.cluster().and_then(|cluster| cluster.control.as_ref());
        let address = control.ok_or_else(alone)?.get();
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, blocks)) = others.as_ref()
            && *of == address
        {
            return Ok(Arc::clone(blocks));
        }
        let host = PeerHost { name: SOURCE.to_owned(), address };
        let origin = HostSource::new(Arc::clone(&self.dial) as _, host, Patience::default());
        let origin = Arc::new(Retried::new(origin, RetryPolicy::default()));
        let source = PeerSource::new(origin, Arc::clone(&self.sharing.upstreams));
        let blocks = Arc::new(BlockStore::new(Arc::new(source), self.images.shared_cache()));
        *others = Some((address, Arc::clone(&blocks)));
        Ok(blocks)
    }

    fn turn(&self, digest: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        // The locks that nobody holds or waits for are dropped.
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        Arc::clone(turns.entry(digest.to_owned()).or_default())
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let done = tokio::task::spawn_blocking(work).await;
        done.unwrap_or_else(|error| Err(state(self.made.folder())(std::io::Error::other(error))))
    }
}

fn alone() -> Error {
    Error::FunctionFile { reason: "this host is in no cluster that could send files".to_owned() }
}
