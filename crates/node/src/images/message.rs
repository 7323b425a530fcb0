//! The messages between the node, the spawner and the daemon: a packet each.
//!
//! The node writes [`DaemonControl`] to the daemon's standard input. To the socket, a process that
//! needs a copy of a mount sends the digest of its image as text, and the node sends
//! [`DaemonRequest`] as JSON. An answer has descriptors, or no descriptors and a text with the
//! reason, which the node gets as JSON.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use snowmelt_image::Image;
use snowmelt_image::block::OciDigest;
use snowmelt_image::mount::Form;
use snowmelt_image::peer::PeerHost;
use snowmelt_rpc::membership::CertificateText;
use snowmelt_types::Tenant;

use super::resolution::{ImageOrigin, ResolvedImage};
use super::stores::ImageSettings;

/// The longest packet in bytes, below what a unix socket sends at once (208 KiB): a manifest of the
/// 127 layers that Docker allows takes half of it.
pub(super) const LONGEST: usize = 160 << 10;

/// All that the daemon needs to mount an image.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ImageSpec {
    /// The tenant that the image is mounted for first: its login and its caches are used. Who names
    /// the image later has read the whole manifest, as this one has.
    pub tenant: Tenant,
    /// The digest of the image's manifest.
    pub digest: OciDigest,
    /// The text of the manifest.
    pub manifest: String,
    /// The layout folder or registry that the image's blocks are read from.
    pub origin: ImageOrigin,
    /// The place of this host among those that use the image; `None` if control has not told it.
    pub place: Option<DaemonPlace>,
}

/// The place of a host in the trees of an image, with the addresses of its neighbours.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DaemonPlace {
    /// The name of the trees: the image as functions name it.
    pub tree: String,
    /// The host from which this host reads the blocks of each stripe; `None` for a stripe whose
    /// root this host is, which reads from the registry.
    pub parents: Vec<Option<PeerHost>>,
    /// For a root, another root that may have what this one would read from the registry; `None` if
    /// there is none.
    pub beside: Option<PeerHost>,
}

impl ImageSpec {
    pub fn new(
        tenant: &Tenant,
        found: &ResolvedImage,
        place: Option<DaemonPlace>,
    ) -> snowmelt_image::Result<Self> {
        let manifest = String::from_utf8_lossy(&found.image.encode()?).into_owned();
        let digest = found.manifest.clone();
        let origin = found.origin.clone();
        let tenant = tenant.clone();
        Ok(Self { tenant, digest, manifest, origin, place })
    }

    pub fn image(&self) -> snowmelt_image::Result<Image> {
        Image::decode(self.manifest.as_bytes())
    }
}

/// The suffix of a digest that asks for a copy of the mount on raw files, whose root is another one
/// than that of the lazy mount. It is asked for only once that mount exists.
pub(super) const ON_RAW_FILES: &str = " raw";

/// The daemon's answer to [`DaemonControl::Begin`]; any other answer is the reason why it cannot
/// start.
pub(super) const READY: &[u8] = b"ready";

/// The messages from the node to its daemon: first one `Begin`, then an `Adopt` for each mount.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum DaemonControl {
    /// The first message. With it come the socket that listens, and the mount namespace of the
    /// daemon that died, if one did.
    Begin {
        /// The state folder, which has the stores of blocks and of start profiles.
        state: PathBuf,
        /// An empty folder for the mount points.
        folder: PathBuf,
        /// The settings of the user.
        settings: ImageSettings,
        /// The number of `Adopt` messages that follow; requests are answered after them.
        mounts: usize,
        /// The means by which other hosts know this one; `None` if this host is in no cluster.
        member: Option<DaemonMember>,
    },
    /// A mount that exists in this form. With the message comes the mount's connection to the
    /// kernel.
    Adopt(ImageSpec, Form),
    /// The handler of a function in this image is ready: the blocks touched until now are the
    /// image's start profile.
    Ready(OciDigest),
}

/// The means by which other hosts of the cluster know the daemon's host.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum DaemonMember {
    /// The value of the header with the token of a cluster without encryption.
    Token(String),
    /// The host's certificate and its key.
    Certificate(CertificateText),
}

/// The messages from the daemon to the node, which come at any time.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Notice {
    /// New copies of this image's mount are copies of a mount on raw files.
    IsRaw(OciDigest),
    /// The host of this name has sent a wrong block.
    Expelled(String),
}

/// The requests from the node to the daemon's socket.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum DaemonRequest {
    /// Mounts an image. The answer is [`Here`] and descriptors: a copy of the mount and, if another
    /// daemon can go on with the mount, its connection to the kernel. An answer without descriptors
    /// is an error report.
    Mount(ImageSpec),
    /// Tells a new place of this host in a tree; answered by null.
    Move(DaemonPlace),
    /// Asks for the bytes of images; answered by the name of each tree and the bytes of its image
    /// on this host.
    Bytes,
    /// Replaces the host's certificate; answered by null.
    Certificate(CertificateText),
    /// Hands over a connection of another host, which is served until it ends; answered by null.
    Serve,
    /// Asks why reads of this image failed within the last milliseconds, whose number is given;
    /// answered by an error report, or null.
    Why(OciDigest, u64),
}

/// The answer to `DaemonRequest::Mount` when the mount exists: its form.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Here {
    pub form: Form,
}
