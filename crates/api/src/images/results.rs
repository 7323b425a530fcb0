//! Results of requests for images.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The result of a conversion.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConvertedImage {
    /// The digest of the image's manifest.
    pub manifest: String,
    /// The number of layers of the image.
    pub layers: usize,
    /// The number of layers that had been converted before.
    pub reused: usize,
    /// The number of device nodes that were omitted.
    pub devices: u64,
    /// Compressed bytes of the image, as they are stored.
    pub bytes: u64,
    /// Uncompressed bytes of the image.
    pub raw_bytes: u64,
}

/// The result of a pull.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PulledImage {
    /// The digest of the image's manifest.
    pub manifest: String,
}

/// The result of a push.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PushedImage {
    /// The digest of the image's manifest.
    pub manifest: String,
    /// The number of blobs that the registry did not have.
    pub blobs: u64,
    /// Stored bytes of these blobs.
    pub bytes: u64,
    /// Whether a start profile was sent with the image.
    pub has_start: bool,
}

/// The result of fetching blocks.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct WarmedImage {
    /// The name of the image.
    pub name: String,
    /// The blocks that were fetched; absent for a local image, whose blocks are all on this
    /// machine.
    pub fetched: Option<FetchedBlocks>,
}

/// Blocks that were fetched.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct FetchedBlocks {
    /// Stored bytes that were fetched.
    pub bytes: u64,
    /// The number of requests for the fetched blocks.
    pub requests: u64,
    /// The number of blocks that were in the cache already.
    pub cached: u64,
}

/// The result of a verification.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct VerifiedImage {
    /// The name of the image.
    pub name: String,
    /// The number of blocks that were compared with their digests.
    pub blocks: u64,
    /// Stored bytes of these blocks.
    pub bytes: u64,
    /// Blocks and tables that differ.
    pub damages: Vec<DamagedBlock>,
}

/// A block, or a table of blocks, that does not match its digest.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct DamagedBlock {
    /// The digest of the blob that contains the block.
    pub blob: String,
    /// The number of the block in the blob; absent for the table of blocks.
    pub block: Option<usize>,
    /// The difference, in words.
    pub reason: String,
}

/// A local image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImageSummary {
    /// The local name of the image.
    pub name: String,
    /// The digest of the image's manifest.
    pub manifest: String,
    /// Stored bytes of the image. A layer that several images share counts in each of them.
    pub bytes: u64,
    /// Uncompressed bytes of the image.
    pub raw_bytes: u64,
    /// The number of the image's layers.
    pub layers: usize,
    /// Bytes of an uncompressed block.
    pub block_size: u64,
    /// The digest of the image's manifest before the conversion; absent if it had none.
    pub original: Option<String>,
}

/// An image with all its details.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ImageDetail {
    /// The name of the image.
    pub name: String,
    /// The digest of the image's manifest.
    pub manifest: String,
    /// The place of the image's blocks.
    pub origin: ImagePlace,
    /// The digest of the image's manifest before the conversion; absent if it had none.
    pub original: Option<String>,
    /// The blobs of the image: the metadata part, then the layers from the lowest.
    pub blobs: Vec<ImageBlob>,
    /// The OCI configuration of the image.
    pub config: serde_json::Value,
}

/// The place of an image's blocks.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ImagePlace {
    /// A folder of the server's machine, by its path.
    Layout(String),
    /// A registry, by the name of the image there.
    Registry(String),
}

/// A blob of an image.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ImageBlob {
    /// The part of the image that the blob holds: `metadata`, or a layer by its number.
    pub part: String,
    /// The digest of the blob.
    pub digest: String,
    /// The Merkle root of the digests of the blob's blocks.
    pub root: String,
    /// Stored bytes of the blob.
    pub bytes: u64,
    /// Uncompressed bytes of the blob.
    pub raw_bytes: u64,
    /// The number of the blob's blocks.
    pub blocks: u64,
    /// Bytes of an uncompressed block.
    pub block_size: u64,
}

/// The comparison of two images.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ImageDifference {
    /// The blobs of both images and of one alone.
    pub blobs: SharedParts,
    /// The blocks of both images and of one alone. Equal blocks count once, blocks of zeros not at
    /// all.
    pub blocks: SharedParts,
    /// The number of paths that are equal in both images.
    pub same: u64,
    /// The paths that differ, each with how it differs.
    pub changes: Vec<(String, PathChange)>,
}

/// The amounts that two images share, and that each has alone.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct SharedParts {
    /// Parts that are in both images.
    pub both: PartAmount,
    /// Parts that are in the first image only.
    pub first: PartAmount,
    /// Parts that are in the second image only.
    pub second: PartAmount,
}

/// A number of parts (blobs or blocks) and their bytes.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct PartAmount {
    /// The number of parts.
    pub count: u64,
    /// Stored bytes of the parts.
    pub bytes: u64,
}

/// The kind of a difference between two images at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PathChange {
    /// The path is in the second image only.
    Added,
    /// The path is in the first image only.
    Removed,
    /// Type, permissions, owner or attributes of the path differ.
    Attributes,
    /// The content of the path differs.
    Content,
}

/// The amounts that were removed, or would be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Pruned {
    /// The number of removed blobs of local images.
    pub blobs: u64,
    /// Stored bytes of the removed blobs.
    pub bytes: u64,
    /// The number of removed raw files of complete images.
    pub raw_files: u64,
    /// Bytes of the removed raw files.
    pub raw_bytes: u64,
    /// Bytes of removed cached blocks; absent if these were not to be removed.
    pub block_bytes: Option<u64>,
}

impl Pruned {
    /// Adds what was removed elsewhere.
    pub fn plus(self, other: Self) -> Self {
        Self {
            blobs: self.blobs + other.blobs,
            bytes: self.bytes + other.bytes,
            raw_files: self.raw_files + other.raw_files,
            raw_bytes: self.raw_bytes + other.raw_bytes,
            block_bytes: match (self.block_bytes, other.block_bytes) {
                (Some(one), Some(two)) => Some(one + two),
                (one, two) => one.or(two),
            },
        }
    }
}

/// The key of the platform.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PlatformKey {
    /// The public key with which other platforms verify start profiles of this one.
    pub key: String,
}
