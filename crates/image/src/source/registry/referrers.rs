//! Artifacts that refer to an image: from the registry's list (distribution specification 1.1), or
//! from an index under a tag derived from the image's digest if the registry has no such list.

use bytes::Bytes;
use reqwest::Method;
use reqwest::header::CONTENT_TYPE;
use serde::{Deserialize, Serialize};

use super::{Registry, whole};
use crate::block::OciDigest;
use crate::manifest::Descriptor;
use crate::{Error, Result};

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// The most attempts to write the index until it contains the new entry: other clients may write it
/// concurrently.
const ATTEMPTS: u32 = 5;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReferrerIndex {
    schema_version: u32,
    #[serde(default)]
    media_type: String,
    #[serde(default)]
    manifests: Vec<Descriptor>,
}

/// The fields of a manifest that the list needs.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Referring {
    artifact_type: Option<String>,
    subject: Option<Descriptor>,
}

impl Registry {
    /// Returns the manifests of that type that refer to `subject`, in the registry's order.
    pub async fn referrers(
        &self,
        subject: &OciDigest,
        artifact_type: &str,
    ) -> Result<Vec<Descriptor>> {
        let mut url = self.url(&format!("referrers/{subject}"))?;
        url.query_pairs_mut().append_pair("artifactType", artifact_type);
        let index = match self.transfer.send(Method::GET, url, |request| request).await {
            Ok(answer) => parse(&whole("the referrers", answer).await?)?,
            // A registry without such a list reports a missing page or a bad request.
            Err(Error::Missing { .. } | Error::Refused { .. }) => self.fallback(subject).await?,
            Err(error) => return Err(error),
        };
        let is_wanted = |one: &Descriptor| one.artifact_type.as_deref() == Some(artifact_type);
        Ok(index.manifests.into_iter().filter(is_wanted).collect())
    }

    /// Adds a manifest to the list of its subject, if it has one, for registries without a list.
    pub(super) async fn list_referrer(&self, media_type: &str, manifest: &Bytes) -> Result<()> {
        // A manifest without a subject, or another document, does not refer to anything.
        let Ok(Referring { artifact_type, subject: Some(subject) }) =
            serde_json::from_slice(manifest)
        else {
            return Ok(());
        };
        let digest = OciDigest::of(manifest);
        let new = Descriptor {
            artifact_type,
            ..Descriptor::new(media_type, digest, manifest.len() as u64)
        };
        for _ in 0..ATTEMPTS {
            let mut index = self.fallback(&subject.digest).await?;
            if index.manifests.iter().any(|one| one.digest == new.digest) {
                return Ok(());
            }
            index.manifests.push(new.clone());
            self.write_fallback(&subject.digest, &index).await?;
        }
        Err(Error::unreachable("the list of referrers", "other clients keep writing it"))
    }

    async fn fallback(&self, subject: &OciDigest) -> Result<ReferrerIndex> {
        match self.manifest(&tag(subject)).await {
            Ok((_, bytes)) => parse(&bytes),
            Err(Error::Missing { .. }) => Ok(ReferrerIndex {
                schema_version: 2,
                media_type: INDEX.to_owned(),
                manifests: Vec::new(),
            }),
            Err(error) => Err(error),
        }
    }

    async fn write_fallback(&self, subject: &OciDigest, index: &ReferrerIndex) -> Result<()> {
        let bytes = serde_json::to_vec(index)
            .map_err(|error| Error::refused("the list of referrers", error.to_string()))?;
        let url = self.url(&format!("manifests/{}", tag(subject)))?;
        let send = |it: reqwest::RequestBuilder| it.header(CONTENT_TYPE, INDEX).body(bytes.clone());
        self.transfer.send(Method::PUT, url, send).await.map(drop)
    }
}

fn tag(subject: &OciDigest) -> String {
    format!("sha256-{}", subject.hex())
}

fn parse(bytes: &[u8]) -> Result<ReferrerIndex> {
    serde_json::from_slice(bytes)
        .map_err(|error| Error::refused("the list of referrers", error.to_string()))
}
