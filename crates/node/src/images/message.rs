//! Messages between the node, the spawner and the daemon: a packet each.
//!
//! The node writes [`Control`] to the daemon's standard input. To the socket, a process that needs
//! a copy of a mount sends the digest of its image as text, and the node [`Ask`] as JSON; an answer
//! has descriptors, or none and a text with the reason, which the node gets as JSON.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use snowmelt_image::Image;
use snowmelt_image::block::OciDigest;
use snowmelt_image::mount::Form;
use snowmelt_image::peer::PeerHost;

use super::resolve::{Found, Origin};
use super::stores::Settings;

/// The longest packet, under what a unix socket sends at once (208 KiB): a manifest of the 127
/// layers that Docker allows takes half of it.
pub(super) const LONGEST: usize = 160 << 10;

/// All that is needed to mount an image.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ImageSpec {
    /// Of its manifest.
    pub digest: OciDigest,
    /// The manifest.
    pub manifest: String,
    /// Where its blocks are read from.
    pub origin: Origin,
    /// The place of this host among those that use the image; none if nobody has told it.
    pub place: Option<Place>,
}

/// The place of a host in the tree of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    /// The name of the tree.
    pub tree: String,
    /// The host from which it reads the blocks of each stripe; none at a root, which reads from the
    /// registry.
    pub parents: Vec<Option<PeerHost>>,
    /// Of a root, another one that may have what this one would read from the registry.
    pub beside: Option<PeerHost>,
}

impl ImageSpec {
    pub fn new(found: &Found, place: Option<Place>) -> snowmelt_image::Result<Self> {
        let manifest = String::from_utf8_lossy(&found.image.encode()?).into_owned();
        let (digest, origin) = (found.manifest.clone(), found.origin.clone());
        Ok(Self { digest, manifest, origin, place })
    }

    pub fn image(&self) -> snowmelt_image::Result<Image> {
        Image::decode(self.manifest.as_bytes())
    }
}

/// Stands behind a digest where a copy of the mount on raw files is wanted, whose root is another
/// one. It is asked for only once there is one.
pub(super) const ON_RAW_FILES: &str = " raw";

/// The daemon's answer to [`Control::Begin`]; any other answer is the reason why it cannot start.
pub(super) const READY: &[u8] = b"ready";

/// From the node to its daemon, in this order: one `Begin`, an `Adopt` for each mount.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Control {
    /// With the socket that listens, and the mount namespace of the daemon that died, if one did.
    Begin {
        /// For blocks and starts.
        state: PathBuf,
        /// An empty folder to mount in.
        folder: PathBuf,
        /// Settings of the user.
        settings: Settings,
        /// How many `Adopt` follow; requests are answered after them.
        mounts: usize,
        /// Opens connections to other hosts; none if this host is alone.
        authorization: Option<String>,
    },
    /// A mount that is there in this form, with its connection to the kernel.
    Adopt(ImageSpec, Form),
    /// The handler of a function in it is ready: what was touched until now is its start.
    Ready(OciDigest),
}

/// From the daemon to the node, at any time.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Notice {
    /// New copies of this image's mount are of one on raw files.
    IsRaw(OciDigest),
    /// The host of this name has sent a wrong block.
    Expelled(String),
}

/// From the node to the socket.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Ask {
    /// Answered by [`Here`] and descriptors: a copy of the mount and, if another daemon can go on
    /// with it, its connection to the kernel. Without descriptors it is an error report.
    Mount(ImageSpec),
    /// A new place of this host in a tree; answered by null.
    Move(Place),
    /// Answered by the name of each tree and the bytes of its image here.
    Bytes,
    /// With a connection of another host, which is served until it ends; answered by null.
    Serve,
    /// Why reads of this image failed within so many milliseconds: an error report, or null.
    Why(OciDigest, u64),
}

/// A requested mount exists.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Here {
    pub form: Form,
}
