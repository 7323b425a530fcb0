//! Block images of the platform: requests and events; the results are in `results`.
//!
//! Names and credentials are in bodies: a name contains slashes, and credentials must not be in the
//! paths that are logged. An image is always one of the platform or of a registry. Files of the
//! client are sent by the client ([`ImageSource::Client`]); the server opens no path of a request.

mod results;

use std::fmt;

use serde::{Deserialize, Serialize};
use snowmelt_types::ErrorReport;
use utoipa::ToSchema;

pub use results::{
    ConvertedImage, DamagedBlock, FetchedBlocks, ImageBlob, ImageDetail, ImageDifference,
    ImagePlace, ImageSummary, PartAmount, PathChange, PlatformKey, Pruned, PulledImage,
    PushedImage, SharedParts, VerifiedImage, WarmedImage,
};

/// How a client accesses registries.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RegistryAccess {
    /// Credentials, by registry. Other registries are accessed anonymously.
    #[serde(default)]
    pub logins: Vec<RegistryLogin>,
    /// Certificates in PEM that are trusted in addition to those that the server trusts.
    #[serde(default)]
    pub authorities: Option<String>,
}

/// Credentials for a registry. They are used for the request and not stored.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RegistryLogin {
    /// Host and port of the registry.
    pub registry: String,
    /// The name of the user; empty if the secret is an identity token.
    pub user: String,
    /// The user's password, or an identity token.
    pub secret: String,
}

impl fmt::Debug for RegistryLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegistryLogin").field("registry", &self.registry).finish_non_exhaustive()
    }
}

/// An image by its name.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ImageRequest {
    /// The name of a local image, or of one in a registry.
    pub image: String,
    /// The access to registries.
    #[serde(default)]
    pub access: RegistryAccess,
}

/// Two images to be compared.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DifferenceRequest {
    /// The first image.
    pub first: String,
    /// The second image.
    pub second: String,
    /// The access to registries.
    #[serde(default)]
    pub access: RegistryAccess,
}

/// An image to be converted. It is the first part of the request's body: its length in four bytes,
/// most significant first, and its JSON.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ConversionRequest {
    /// The local name of the result.
    pub name: String,
    /// The image that is converted.
    pub source: ImageSource,
    /// Bytes of a block, a power of two; absent: the default.
    #[serde(default)]
    pub block_size: Option<u64>,
    /// The access to registries.
    #[serde(default)]
    pub access: RegistryAccess,
}

/// The source of a conversion.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ImageSource {
    /// The name of an image in a registry.
    Registry(String),
    /// An image that only the client can read.
    Client(ClientImage),
}

/// An image that the client reads. The server requests each layer that it does not know
/// ([`ImageEvent::Layer`]). The client then sends the layer in pieces in the body of its request:
/// the length of each piece in four bytes, and the bytes of the piece. A piece without bytes ends
/// the layer.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClientImage {
    /// The text of the image's configuration; absent for a folder of files.
    pub config: Option<String>,
    /// The number of the image's layers.
    pub layers: usize,
    /// The manifest of the image; absent if it has none.
    pub original: Option<OriginalManifest>,
}

/// The manifest of an image before its conversion.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OriginalManifest {
    /// The media type of the manifest.
    pub media_type: String,
    /// The digest of the manifest.
    pub digest: String,
    /// The size of the manifest in bytes.
    pub size: u64,
}

/// An image to be fetched from a registry.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PullRequest {
    /// The name of the image in the registry.
    pub from: String,
    /// The local name of the image.
    pub name: String,
    /// The access to the registry.
    #[serde(default)]
    pub access: RegistryAccess,
}

/// A local image to be sent to a registry.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PushRequest {
    /// The local name of the image.
    pub name: String,
    /// The name of the image in the registry.
    pub to: String,
    /// The access to the registry.
    #[serde(default)]
    pub access: RegistryAccess,
}

/// An image whose blocks are to be fetched in advance.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WarmRequest {
    /// The name of the image.
    pub image: String,
    /// True to fetch every block, false to fetch only the blocks that a start reads.
    #[serde(default)]
    pub all: bool,
    /// The access to registries.
    #[serde(default)]
    pub access: RegistryAccess,
}

/// A request to remove data that no local image refers to.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PruneRequest {
    /// True to count the data and remove nothing.
    pub dry_run: bool,
    /// True to remove also cached blocks of images in registries.
    #[serde(default)]
    pub blocks: bool,
}

/// A line of the answer to a request that takes long. The last line is a result or the failure.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ImageEvent {
    /// The current step of the work, for a progress display.
    Progress(String),
    /// The number of the layer that the client has to send now; the lowest layer is 0.
    Layer(usize),
    /// The result of a conversion.
    Converted(ConvertedImage),
    /// The result of a pull.
    Pulled(PulledImage),
    /// The result of a push.
    Pushed(PushedImage),
    /// The result of fetching blocks.
    Warmed(WarmedImage),
    /// The result of a verification.
    Verified(VerifiedImage),
    /// The result of a comparison.
    Compared(ImageDifference),
    /// The error that ended the work.
    Failed(ErrorReport),
}
