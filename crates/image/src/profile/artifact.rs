//! Stores profiles in the registry of their image: an artifact with one layer that refers to the
//! image.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::json;

use super::{ProfileKeys, PublicKey, Signed, StartProfile};
use crate::block::OciDigest;
use crate::manifest::{Descriptor, OCI_MANIFEST};
use crate::source::Registry;
use crate::{Error, Result};

/// The artifact type of profiles.
pub const PROFILE: &str = "application/vnd.snowmelt.start-profile.v1";
const BODY: &str = "application/vnd.snowmelt.start-profile.v1+json";
const EMPTY: &str = "application/vnd.oci.empty.v1+json";
const KEY: &str = "dev.snowmelt.key";
const SIGNATURE: &str = "dev.snowmelt.signature";
/// The most profiles of an image that are read, the latest ones: any user who may push can add
/// some.
const MAX_PROFILES: usize = 16;

/// Uploads a profile for the image with this manifest.
pub async fn publish(registry: &Registry, image: &Descriptor, signed: &Signed) -> Result<()> {
    let empty = Bytes::from_static(b"{}");
    let body = Bytes::from(signed.body.clone());
    let config = Descriptor::new(EMPTY, registry.push_document(&empty).await?, 2);
    let mut layer = Descriptor::new(BODY, registry.push_document(&body).await?, body.len() as u64);
    layer.annotations.insert(KEY.to_owned(), signed.key.to_string());
    layer.annotations.insert(SIGNATURE.to_owned(), hex(&signed.signature));
    let subject = Descriptor { annotations: BTreeMap::new(), ..image.clone() };
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "artifactType": PROFILE,
        "config": config,
        "layers": [layer],
        "subject": subject,
    });
    let bytes = Bytes::from(manifest.to_string());
    registry.push_manifest(OciDigest::of(&bytes).as_str(), OCI_MANIFEST, bytes).await
}

/// Reads and merges the profiles of an image in its registry. Only profiles for this image that are
/// signed by a trusted key are used; any user who may push can add others.
pub async fn trusted(
    registry: &Registry,
    image: &OciDigest,
    keys: &ProfileKeys,
) -> Result<Option<StartProfile>> {
    let mut merged: Option<StartProfile> = None;
    for referrer in registry.referrers(image, PROFILE).await?.iter().rev().take(MAX_PROFILES) {
        let opened = async { read(registry, referrer).await?.open(keys, image) };
        match opened.await {
            Ok(profile) => merged.get_or_insert_default().merge(&profile),
            Err(error) if error.is_transient() => return Err(error),
            Err(error) => tracing::debug!(%image, %error, "ignoring a start profile"),
        }
    }
    Ok(merged)
}

async fn read(registry: &Registry, referrer: &Descriptor) -> Result<Signed> {
    let refuse = |reason: &str| Error::refused("a start profile", reason);
    let (_, manifest) = registry.manifest(referrer.digest.as_str()).await?;
    let mut manifest: serde_json::Value =
        serde_json::from_slice(&manifest).map_err(|error| refuse(&error.to_string()))?;
    let layer: Descriptor = serde_json::from_value(manifest["layers"][0].take())
        .map_err(|error| refuse(&error.to_string()))?;
    let text = |key: &str| layer.annotations.get(key).ok_or_else(|| refuse("it is not signed"));
    let key = PublicKey::parse(text(KEY)?)?;
    let signature = unhex(text(SIGNATURE)?).ok_or_else(|| refuse("its signature is malformed"))?;
    let body = registry.document(&layer.digest).await?.to_vec();
    Ok(Signed { body, key, signature })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).map(|digit| digit as u8);
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| Some(digit(pair.first()?)? << 4 | digit(pair.get(1)?)?)).collect()
}
