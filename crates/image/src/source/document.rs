//! The JSON documents of images, limited to the fields that a conversion needs.

use serde::{Deserialize, Serialize};

use crate::block::OciDigest;
use crate::manifest::Descriptor;
use crate::{Error, Result};

/// The maximum size of a document, which is also the registry's limit.
pub(super) const MAX_DOCUMENT_BYTES: u64 = 4 << 20;

/// The platform of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImagePlatform {
    /// The operating system, in Go's spelling.
    pub os: String,
    /// The architecture, in Go's spelling.
    pub architecture: String,
}

impl ImagePlatform {
    /// Returns the platform of this machine.
    pub fn here() -> Self {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        Self { os: "linux".to_owned(), architecture: architecture.to_owned() }
    }
}

/// A manifest, or an index of manifests for several platforms, of OCI or of Docker.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Document {
    pub config: Option<Descriptor>,
    #[serde(default)]
    pub layers: Vec<Descriptor>,
    manifests: Option<Vec<Indexed>>,
}

#[derive(Clone, Debug, Deserialize)]
struct Indexed {
    platform: Option<ImagePlatform>,
    #[serde(flatten)]
    descriptor: Descriptor,
}

impl Document {
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        serde_json::from_slice(bytes)
            .map_err(|error| Error::refused("the original manifest", error.to_string()))
    }

    /// Returns the manifest of an index for that platform; an entry without a platform matches any.
    pub fn for_platform(&self, wanted: &ImagePlatform) -> Result<Option<Descriptor>> {
        let Some(manifests) = &self.manifests else { return Ok(None) };
        let exact = manifests.iter().find(|one| one.platform.as_ref() == Some(wanted));
        let any = || manifests.iter().find(|one| one.platform.is_none());
        let found = exact.or_else(any).map(|one| one.descriptor.clone());
        found.map(Some).ok_or_else(|| {
            let ImagePlatform { os, architecture } = wanted;
            Error::refused("the image", format!("it has no variant for {os}/{architecture}"))
        })
    }

    /// Returns the descriptor of the configuration. An index has none.
    pub fn config(&self) -> Result<&Descriptor> {
        let missing = || Error::refused("the original manifest", "it has no configuration");
        self.config.as_ref().ok_or_else(missing)
    }
}

/// The fields of an image's configuration that a conversion needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    architecture: String,
    os: String,
    rootfs: RootFs,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct RootFs {
    #[serde(rename = "type")]
    kind: String,
    diff_ids: Vec<OciDigest>,
}

impl Config {
    /// Parses a configuration.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let refuse = |error: serde_json::Error| {
            Error::refused("the image's configuration", error.to_string())
        };
        serde_json::from_slice(bytes).map_err(refuse)
    }

    /// Makes the configuration of an image that had none: it contains only the layers.
    pub fn plain(diff_ids: Vec<OciDigest>) -> Self {
        let ImagePlatform { os, architecture } = ImagePlatform::here();
        Self { architecture, os, rootfs: RootFs { kind: "layers".to_owned(), diff_ids } }
    }

    /// Encodes the configuration.
    pub fn encode(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self)
            .map_err(|error| Error::refused("the image's configuration", error.to_string()))
    }

    /// Returns the SHA-256 of each uncompressed layer, the lowest first.
    pub fn diff_ids(&self) -> &[OciDigest] {
        &self.rootfs.diff_ids
    }
}
