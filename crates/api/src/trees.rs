//! Trees of hosts through which images spread.

use serde::{Deserialize, Serialize};
use snowmelt_types::HostName;
use utoipa::ToSchema;

/// The hosts that use an image of a registry, and from where each reads its blocks. The blocks are
/// divided into stripes, and each stripe spreads through a tree of its own. Where images have no trees,
/// all blocks are of one stripe, and each host is a root.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ImageTree {
    /// The image, as functions name it.
    pub image: String,
    /// Its hosts, in the order of the first stripe: parents before their children.
    pub hosts: Vec<TreeHost>,
}

/// A host in the tree of an image.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct TreeHost {
    /// Its name.
    pub host: HostName,
    /// Its place in the tree of each stripe of the image's blocks.
    pub stripes: Vec<StripePlace>,
    /// What it has read and sent; absent if it does not answer or has not mounted the image yet.
    pub bytes: Option<ImageBytes>,
}

/// The place of a host in the tree of one stripe.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct StripePlace {
    /// The host from which it reads; absent for the root, which reads from the registry.
    pub parent: Option<HostName>,
    /// Hops to the root.
    pub depth: u32,
}

/// Compressed bytes of an image: on a host, and between it and others since its process that serves
/// images started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImageBytes {
    /// Bytes that the host has in its cache. Absent on a host of an earlier version.
    #[serde(default)]
    pub here: u64,
    /// Bytes of the whole image, of which a start reads a part; 0 while the host does not know it.
    #[serde(default)]
    pub of: u64,
    /// Bytes from parents.
    pub from_parents: u64,
    /// Bytes from the registry.
    pub from_registry: u64,
    /// Bytes to children.
    pub to_children: u64,
    /// Requests to parents that failed, so that the registry was asked for the rest.
    pub failures: u64,
    /// Wrong blocks that parents sent.
    pub wrong_blocks: u64,
}
