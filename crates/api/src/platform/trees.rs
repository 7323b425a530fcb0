//! Trees of hosts through which images spread.

use serde::{Deserialize, Serialize};
use snowmelt_types::HostName;
use utoipa::ToSchema;

/// The hosts that use an image of a registry, each with the host from which it reads blocks. The
/// blocks are divided into stripes, and each stripe spreads through a tree of its own. Where images
/// have no trees, all blocks are of one stripe, and each host is a root.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ImageTree {
    /// The name of the image, as functions name it.
    pub image: String,
    /// The hosts, in the order of the first stripe's tree: parents before their children.
    pub hosts: Vec<TreeHost>,
}

/// A host in the trees of an image.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct TreeHost {
    /// The name of the host.
    pub host: HostName,
    /// The places of the host, one in the tree of each stripe of the image's blocks.
    pub stripes: Vec<StripePlace>,
    /// Bytes of the image that the host has, has read and has sent; absent if it does not answer or
    /// has not mounted the image yet.
    pub bytes: Option<ImageBytes>,
}

/// The place of a host in the tree of one stripe.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct StripePlace {
    /// The host from which the blocks are read; absent for the root, which reads from the registry.
    pub parent: Option<HostName>,
    /// The number of hops to the root, 0 for the root itself.
    pub depth: u32,
}

/// Compressed bytes of an image on a host. Bytes between it and others count since the host's
/// process that serves images started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImageBytes {
    /// Bytes that the host has in its cache. Absent on a host of an earlier version.
    #[serde(default)]
    pub here: u64,
    /// Bytes of the whole image, of which a start reads a part; 0 while the host does not know the
    /// size.
    #[serde(default)]
    pub of: u64,
    /// Bytes that came from parents.
    pub from_parents: u64,
    /// Bytes that came from the registry.
    pub from_registry: u64,
    /// Bytes that were sent to children.
    pub to_children: u64,
    /// The number of requests to parents that failed, so that the registry was asked for the rest.
    pub failures: u64,
    /// The number of wrong blocks that parents sent.
    pub wrong_blocks: u64,
}
