//! The images that this host shares with others: from where the daemon reads each, and which it
//! serves. Files of functions are shared in the same way.
//!
//! Invariant: only images for which control has given this host a place are read from other hosts,
//! and served to them.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use rustix::net::AddressFamily;
use rustix::net::sockopt::socket_domain;
use serde::{Deserialize, Serialize};
use snowmelt_image::block::OciDigest;
use snowmelt_image::peer::{Connect, ExportProgress, Exports, Flow, Patience, Upstreams};
use snowmelt_image::read::BlobReader;
use snowmelt_image::{Image, Result};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Handle;

use crate::images::locked;
use crate::images::message::{DaemonPlace, ImageSpec};
use crate::images::resolution::ImageOrigin;

/// The most images whose bytes are reported in one answer.
const MAX_REPORTED: usize = 300;

/// The most names of trees that are kept: more than the images that are read from other hosts at a
/// time.
const MAX_NAMES: usize = 2000;

/// The images or files that this host reads from other hosts and serves to them.
pub(crate) struct Sharing {
    /// The hosts from which each image is read.
    pub upstreams: Arc<Upstreams>,
    /// The blobs that other hosts may read from this one.
    pub exports: Arc<Exports>,
    /// The names of trees, by the digests of their images.
    names: Mutex<HashMap<OciDigest, String>>,
}

/// An image or a file that this host shares in a tree.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SharedContent {
    /// The name of the tree.
    pub tree: String,
    pub flow: Flow,
    pub progress: ExportProgress,
}

impl Sharing {
    /// Shares nothing yet. `share` is the most bytes a second to other hosts; `None` for no limit.
    pub fn new(connect: Arc<dyn Connect>, share: Option<u64>) -> Self {
        let upstreams = Arc::new(Upstreams::new(connect, Patience::default()));
        Self { upstreams, exports: Arc::new(Exports::limited(share)), names: Mutex::default() }
    }

    /// Reads an image from the hosts that its place names, if control has given this host a place.
    /// An image of this machine is on no other host.
    pub(super) fn take_place(&self, spec: &ImageSpec) -> Result<()> {
        if let (Some(place), ImageOrigin::Registry(_)) = (&spec.place, &spec.origin) {
            let Image { metadata, layers, .. } = spec.image()?;
            let blobs = layers.into_iter().chain([metadata]).map(|blob| blob.digest);
            self.place(&spec.digest, blobs, place);
        }
        Ok(())
    }

    /// Reads the blobs of an image from the hosts of `place` from now on.
    pub fn place(
        &self,
        image: &OciDigest,
        blobs: impl IntoIterator<Item = OciDigest>,
        place: &DaemonPlace,
    ) {
        self.upstreams.place(image, blobs, place.parents.clone());
        self.upstreams.place_beside(image, place.beside.clone());
        let mut names = locked(&self.names);
        names.insert(image.clone(), place.tree.clone());
        // Names of images that are not read from other hosts any more are dropped.
        if names.len() > MAX_NAMES {
            let known: HashSet<_> =
                self.upstreams.flows().into_iter().map(|(digest, _)| digest).collect();
            names.retain(|digest, _| known.contains(digest));
        }
    }

    /// Reads the images of the place's tree from the hosts of that place from now on.
    pub fn move_to(&self, place: &DaemonPlace) {
        let trees = locked(&self.names);
        for (digest, _) in trees.iter().filter(|(_, tree)| **tree == place.tree) {
            self.upstreams.place(digest, [], place.parents.clone());
            self.upstreams.place_beside(digest, place.beside.clone());
        }
    }

    /// Returns the images with a place, and their progress. It looks at each of their blocks, so
    /// this takes milliseconds.
    pub fn shared(&self) -> Vec<SharedContent> {
        let names = locked(&self.names).clone();
        let sent = self.exports.sent();
        let named = self.upstreams.flows().into_iter().filter_map(|(digest, flow)| {
            let to_children = sent.get(&digest).copied().unwrap_or_default();
            let progress = self.exports.progress(&digest).unwrap_or_default();
            let tree = names.get(&digest)?.clone();
            Some(SharedContent { tree, flow: Flow { to_children, ..flow }, progress })
        });
        named.collect()
    }

    /// Returns as many of the images with a place, and their progress, as fit into an answer of the
    /// daemon.
    pub fn reported(&self) -> Vec<SharedContent> {
        let mut shared = self.shared();
        shared.truncate(MAX_REPORTED);
        shared
    }

    /// Lets other hosts read an image, once control has given this host a place.
    pub(super) fn export(
        &self,
        spec: &ImageSpec,
        readers: impl FnOnce() -> Result<Vec<Arc<BlobReader>>>,
    ) -> Result<()> {
        let has_place = spec.place.is_some() && matches!(spec.origin, ImageOrigin::Registry(_));
        if has_place && !self.exports.has(&spec.digest) {
            self.exports.add(&spec.digest, readers()?);
        }
        Ok(())
    }

    /// Serves blocks on a connection of another host, in the background.
    pub fn serve(&self, connection: OwnedFd, runtime: &Handle) {
        let exports = Arc::clone(&self.exports);
        runtime.spawn(async move {
            if let Err(error) = serve(&exports, connection).await {
                tracing::warn!(%error, "a connection cannot be served");
            }
        });
    }
}

/// Serves a connection of another host, or one whose bytes the node encrypts.
async fn serve(exports: &Exports, connection: OwnedFd) -> io::Result<()> {
    if socket_domain(&connection)? == AddressFamily::UNIX {
        let stream = std::os::unix::net::UnixStream::from(connection);
        stream.set_nonblocking(true)?;
        exports.serve(UnixStream::from_std(stream)?).await;
    } else {
        let stream = std::net::TcpStream::from(connection);
        stream.set_nonblocking(true)?;
        exports.serve(TcpStream::from_std(stream)?).await;
    }
    Ok(())
}
