//! What requests for images answer.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The result of a conversion.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConvertedImage {
    /// The digest of its manifest.
    pub manifest: String,
    /// The number of layers.
    pub layers: usize,
    /// Layers that had been converted before.
    pub reused: usize,
    /// Device nodes that were omitted.
    pub devices: u64,
    /// Stored bytes.
    pub bytes: u64,
    /// Uncompressed bytes.
    pub raw_bytes: u64,
}

/// The result of a pull.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PulledImage {
    /// The digest of its manifest.
    pub manifest: String,
}

/// The result of a push.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PushedImage {
    /// The digest of its manifest.
    pub manifest: String,
    /// The number of blobs that the registry did not have.
    pub blobs: u64,
    /// Their stored bytes.
    pub bytes: u64,
    /// Whether a start profile was sent with it.
    pub has_start: bool,
}

/// The result of fetching blocks.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct WarmedImage {
    /// The name of the image.
    pub name: String,
    /// What was done; none for a local image, whose blocks are all here.
    pub fetched: Option<FetchedBlocks>,
}

/// Blocks that were fetched.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct FetchedBlocks {
    /// Stored bytes that were fetched.
    pub bytes: u64,
    /// Requests for them.
    pub requests: u64,
    /// Blocks that were in the cache.
    pub cached: u64,
}

/// The result of a verification.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct VerifiedImage {
    /// The name of the image.
    pub name: String,
    /// Blocks that were compared with their digests.
    pub blocks: u64,
    /// Their stored bytes.
    pub bytes: u64,
    /// Blocks and tables that differ.
    pub damages: Vec<DamagedBlock>,
}

/// A block, or a table of blocks, that does not match its digest.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct DamagedBlock {
    /// The blob.
    pub blob: String,
    /// The number of the block; none for the table of blocks.
    pub block: Option<usize>,
    /// How it differs.
    pub reason: String,
}

/// A local image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImageSummary {
    /// Its name.
    pub name: String,
    /// The digest of its manifest.
    pub manifest: String,
    /// Stored bytes; a shared layer counts in each image.
    pub bytes: u64,
    /// Uncompressed bytes.
    pub raw_bytes: u64,
    /// The number of layers.
    pub layers: usize,
    /// Bytes of a block.
    pub block_size: u64,
    /// The digest of the manifest before the conversion.
    pub original: Option<String>,
}

/// An image with all its details.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ImageDetail {
    /// Its name.
    pub name: String,
    /// The digest of its manifest.
    pub manifest: String,
    /// Where its blocks are.
    pub origin: ImagePlace,
    /// The digest of the manifest before the conversion.
    pub original: Option<String>,
    /// The metadata part, then the layers from the lowest.
    pub blobs: Vec<ImageBlob>,
    /// Its configuration.
    pub config: serde_json::Value,
}

/// Where the blocks of an image are.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ImagePlace {
    /// A folder of the server's machine.
    Layout(String),
    /// A registry.
    Registry(String),
}

/// A blob of an image.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ImageBlob {
    /// `metadata`, or which layer it is.
    pub part: String,
    /// Its digest.
    pub digest: String,
    /// The root of the digests of its blocks.
    pub root: String,
    /// Stored bytes.
    pub bytes: u64,
    /// Uncompressed bytes.
    pub raw_bytes: u64,
    /// The number of blocks.
    pub blocks: u64,
    /// Bytes of a block.
    pub block_size: u64,
}

/// The comparison of two images.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ImageDifference {
    /// Of blobs.
    pub blobs: SharedParts,
    /// Of blocks, each counted once.
    pub blocks: SharedParts,
    /// The number of equal paths.
    pub same: u64,
    /// Paths that differ.
    pub changes: Vec<(String, PathChange)>,
}

/// What two images share.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct SharedParts {
    /// In both.
    pub both: PartAmount,
    /// In the first only.
    pub first: PartAmount,
    /// In the second only.
    pub second: PartAmount,
}

/// A number of parts.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct PartAmount {
    /// The number.
    pub count: u64,
    /// Their stored bytes.
    pub bytes: u64,
}

/// How a path differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PathChange {
    /// In the second image only.
    Added,
    /// In the first image only.
    Removed,
    /// Type, permissions, owner or attributes.
    Attributes,
    /// Content.
    Content,
}

/// What was removed, or would be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Pruned {
    /// Blobs of local images.
    pub blobs: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Raw files of complete images.
    pub raw_files: u64,
    /// Their bytes.
    pub raw_bytes: u64,
    /// Bytes of cached blocks, if they were to be removed.
    pub block_bytes: Option<u64>,
}

/// The key of the platform.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PlatformKey {
    /// With which others verify its start profiles.
    pub key: String,
}
