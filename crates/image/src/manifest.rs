//! The manifest of a block image: an OCI artifact manifest that refers to the original image.
//!
//! Invariant: the manifest contains everything that mounting needs; its references are
//! content-addressed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::block::{BlobSummary, BlockSize, OciDigest};
use crate::{Error, Result};

/// The artifact type of block images.
pub const ARTIFACT: &str = "application/vnd.snowmelt.image.v1";
/// The media type of the metadata part: EROFS, split into blocks.
pub const METADATA: &str = "application/vnd.snowmelt.image.metadata.v1+blocks";
/// The media type of a layer's contents, split into blocks.
pub const LAYER: &str = "application/vnd.snowmelt.image.layer.v1+blocks";
/// The media type of OCI image manifests, including artifacts.
pub const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// The media type of an OCI image's configuration.
pub const OCI_CONFIG: &str = "application/vnd.oci.image.config.v1+json";
/// The most bytes of a manifest: far more than 65535 layers need.
const MAX_BYTES: usize = 4 << 20;
const PREFIX: &str = "dev.snowmelt.";

/// A reference to a blob in an OCI manifest.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// The media type of the blob.
    pub media_type: String,
    /// The SHA-256 digest of the blob.
    pub digest: OciDigest,
    /// The number of bytes of the blob.
    pub size: u64,
    /// The artifact type, in lists of manifests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_type: Option<String>,
    /// Annotations of the blob, such as the name of an image in an index.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

impl Descriptor {
    /// Makes a descriptor without annotations.
    pub fn new(media_type: &str, digest: OciDigest, size: u64) -> Self {
        let media_type = media_type.to_owned();
        let annotations = BTreeMap::new();
        Self { media_type, digest, size, artifact_type: None, annotations }
    }
}

/// A block image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The EROFS file system without file contents.
    pub metadata: BlobSummary,
    /// File contents of the layers; device 1, the lowest layer, is first.
    pub layers: Vec<BlobSummary>,
    /// The original image's configuration: command, environment, user.
    pub config: Descriptor,
    /// The original image's manifest, if it had one.
    pub original: Option<Descriptor>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Manifest {
    schema_version: u32,
    media_type: String,
    artifact_type: String,
    config: Descriptor,
    layers: Vec<Descriptor>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    subject: Option<Descriptor>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ManifestKind {
    artifact_type: Option<String>,
}

impl Image {
    /// Encodes the manifest. Equal images have equal bytes.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let layers = self.layers.iter().map(|blob| describe(LAYER, blob));
        let manifest = Manifest {
            schema_version: 2,
            media_type: OCI_MANIFEST.to_owned(),
            artifact_type: ARTIFACT.to_owned(),
            config: self.config.clone(),
            layers: std::iter::once(describe(METADATA, &self.metadata)).chain(layers).collect(),
            subject: self.original.clone(),
        };
        serde_json::to_vec(&manifest)
            .map_err(|error| Error::refused("the manifest", error.to_string()))
    }

    /// Decodes a manifest. The caller must have verified the digest of the bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let refuse = |reason: &str| Error::refused("the manifest", reason);
        if bytes.len() > MAX_BYTES {
            return Err(refuse("it is larger than 4 MiB"));
        }
        let unfit = |error: serde_json::Error| refuse(&error.to_string());
        // Checked first: manifests of other types lack other fields too.
        let kind: ManifestKind = serde_json::from_slice(bytes).map_err(unfit)?;
        if kind.artifact_type.as_deref() != Some(ARTIFACT) {
            return Err(refuse("it is not a block image: convert it (snowmelt image convert)"));
        }
        let manifest: Manifest = serde_json::from_slice(bytes).map_err(unfit)?;
        let mut blobs = manifest.layers.iter();
        let Some(metadata) = blobs.next().filter(|blob| blob.media_type == METADATA) else {
            return Err(refuse("it does not begin with a metadata part"));
        };
        let layers = blobs
            .map(|blob| match blob.media_type.as_str() {
                LAYER => summary(blob),
                other => Err(refuse(&format!("it has a layer of type `{other}`"))),
            })
            .collect::<Result<Vec<_>>>()?;
        Ok(Self {
            metadata: summary(metadata)?,
            layers,
            config: manifest.config,
            original: manifest.subject,
        })
    }

    /// Returns all blobs that are split into blocks, the metadata part first.
    pub fn blobs(&self) -> impl Iterator<Item = &BlobSummary> {
        std::iter::once(&self.metadata).chain(&self.layers)
    }
}

fn describe(media_type: &str, blob: &BlobSummary) -> Descriptor {
    let annotations = [
        ("raw-size", blob.raw_size.to_string()),
        ("block-size", blob.block_size.bytes().to_string()),
        ("table-offset", blob.table_offset.to_string()),
        ("root", blob.root.to_string()),
    ];
    let annotations = annotations.map(|(key, value)| (format!("{PREFIX}{key}"), value));
    Descriptor {
        annotations: annotations.into(),
        ..Descriptor::new(media_type, blob.digest.clone(), blob.size)
    }
}

fn summary(blob: &Descriptor) -> Result<BlobSummary> {
    let text = |key: &str| {
        let missing = || Error::refused("the manifest", format!("a blob has no `{PREFIX}{key}`"));
        blob.annotations.get(&format!("{PREFIX}{key}")).ok_or_else(missing)
    };
    let number = |key: &str| {
        let wrong = || Error::refused("the manifest", format!("`{PREFIX}{key}` is not a number"));
        text(key)?.parse::<u64>().map_err(|_| wrong())
    };
    let summary = BlobSummary {
        digest: blob.digest.clone(),
        size: blob.size,
        raw_size: number("raw-size")?,
        block_size: BlockSize::try_from(number("block-size")?)?,
        table_offset: number("table-offset")?,
        root: text("root")?.parse()?,
    };
    summary.check()?;
    Ok(summary)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;
    use crate::block::BlobWriter;

    fn image() -> Image {
        let blob = |raw: &[u8]| {
            let mut writer = BlobWriter::new(Vec::new(), Path::new("memory"), BlockSize::MIN);
            writer.append(raw).unwrap();
            writer.finish().unwrap().0
        };
        Image {
            metadata: blob(b"metadata"),
            layers: vec![blob(b"one"), blob(&[7; 100_000])],
            config: Descriptor::new(OCI_CONFIG, OciDigest::of(b"{}"), 2),
            original: Some(Descriptor::new(OCI_MANIFEST, OciDigest::of(b"m"), 1)),
        }
    }

    #[test]
    fn reads_what_it_wrote() {
        assert_eq!(Image::decode(&image().encode().unwrap()).unwrap(), image());
    }

    #[test]
    fn refuses_inconsistent_sizes_and_other_artifacts() {
        let text = String::from_utf8(image().encode().unwrap()).unwrap();
        for (from, to) in [
            ("\"100000\"", "\"99999999999999\""),
            ("\"65536\"", "\"65537\""),
            ("\"65536\"", "\"1\""),
            (ARTIFACT, "application/other"),
            (METADATA, LAYER),
            ("sha256:", "sha256:../"),
            ("dev.snowmelt.root", "dev.snowmelt.boot"),
        ] {
            let other = text.replace(from, to);
            assert_ne!(other, text, "{from}");
            Image::decode(other.as_bytes()).unwrap_err();
        }
    }

    proptest! {
        #[test]
        fn never_panics_on_a_damaged_manifest(at in 0usize..2000, byte in any::<u8>()) {
            let mut bytes = image().encode().unwrap();
            let at = at % bytes.len();
            bytes[at] = byte;
            let _ = Image::decode(&bytes);
        }
    }
}
