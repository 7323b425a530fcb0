//! The JSON documents of images, as far as a conversion needs them.

use serde::{Deserialize, Serialize};

use crate::block::OciDigest;
use crate::manifest::Descriptor;
use crate::{Error, Result};

/// Larger documents are nobody's (the registry's own limit is 4 MiB).
pub(super) const LARGEST: u64 = 4 << 20;

/// What an image runs on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Platform {
    /// As Go names it.
    pub os: String,
    /// As Go names it.
    pub architecture: String,
}

impl Platform {
    /// This machine's.
    pub fn here() -> Self {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        Self { os: "linux".to_owned(), architecture: architecture.to_owned() }
    }
}

/// A manifest, or an index of manifests for several platforms; of OCI or of Docker.
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
    platform: Option<Platform>,
    #[serde(flatten)]
    descriptor: Descriptor,
}

impl Document {
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        serde_json::from_slice(bytes)
            .map_err(|error| Error::refused("the original manifest", error.to_string()))
    }

    /// For an index, the manifest for that platform; one that names none is for all.
    pub fn for_platform(&self, wanted: &Platform) -> Result<Option<Descriptor>> {
        let Some(manifests) = &self.manifests else { return Ok(None) };
        let exact = manifests.iter().find(|one| one.platform.as_ref() == Some(wanted));
        let any = || manifests.iter().find(|one| one.platform.is_none());
        let found = exact.or_else(any).map(|one| one.descriptor.clone());
        found.map(Some).ok_or_else(|| {
            let Platform { os, architecture } = wanted;
            Error::refused("the image", format!("it has no variant for {os}/{architecture}"))
        })
    }

    /// Its configuration; an index has none.
    pub fn config(&self) -> Result<&Descriptor> {
        let missing = || Error::refused("the original manifest", "it names no configuration");
        self.config.as_ref().ok_or_else(missing)
    }
}

/// What a conversion needs of an image's configuration.
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
    /// From its bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let refuse = |error: serde_json::Error| {
            Error::refused("the image's configuration", error.to_string())
        };
        serde_json::from_slice(bytes).map_err(refuse)
    }

    /// Of an image that had none: these layers, and nothing to run.
    pub fn plain(diff_ids: Vec<OciDigest>) -> Self {
        let Platform { os, architecture } = Platform::here();
        Self { architecture, os, rootfs: RootFs { kind: "layers".to_owned(), diff_ids } }
    }

    /// Its bytes.
    pub fn encode(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self)
            .map_err(|error| Error::refused("the image's configuration", error.to_string()))
    }

    /// SHA-256 of each uncompressed layer, the lowest first.
    pub fn diff_ids(&self) -> &[OciDigest] {
        &self.rootfs.diff_ids
    }
}
