//! From the name of an image to its manifest, and to where its blocks come from.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use snowmelt_image::block::OciDigest;
use snowmelt_image::read::{BlockSource, LocalSource, Patience, Retried};
use snowmelt_image::source::{Layout, Place, Reference, Registry};
use snowmelt_image::{Error, Image, Result, exchange};

/// The folder of the images that were converted here, in the state folder.
const LOCAL: &str = "images";

/// An image that was found by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// As it was found: a name here, or a place elsewhere.
    pub name: String,
    /// Of its manifest.
    pub manifest: OciDigest,
    /// What the manifest says.
    pub image: Image,
    /// Where its blocks are.
    pub origin: Origin,
}

/// Where blocks come from.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// An OCI layout folder of this machine.
    Layout(PathBuf),
    /// A repository, by the name of one of its images.
    Registry(String),
}

/// Finds a block image: by a name here, or if that has a registry in it, there; or in a layout
/// folder (`oci:FOLDER[:TAG]`).
pub async fn find_image(state: &Path, name: &str) -> Result<Found> {
    match name.parse()? {
        Place::Layout(folder, tag) => in_layout(&Layout::open(&folder)?, name, tag.as_deref()),
        Place::Registry(reference) => match local(state, &reference) {
            Err(Error::Missing { .. }) if has_registry(name) => in_registry(&reference).await,
            found => found,
        },
        Place::Archive(..) | Place::Folder(_) => {
            let reason = "it has to be converted first (snowmelt image convert)";
            Err(Error::Refused { what: format!("the image `{name}`"), reason: reason.to_owned() })
        }
    }
}

impl Origin {
    /// The stored bytes of its blobs.
    pub fn source(&self) -> Result<Arc<dyn BlockSource>> {
        Ok(match self {
            Self::Layout(folder) => Arc::new(LocalSource::new(folder)),
            Self::Registry(name) => {
                let registry = Registry::new(&name.parse()?)?;
                Arc::new(Retried::new(registry, Patience::default()))
            }
        })
    }
}

impl Found {
    /// Its configuration, as the original image had it.
    pub async fn config(&self) -> Result<Vec<u8>> {
        match &self.origin {
            Origin::Layout(folder) => Layout::open(folder)?.read_blob(&self.image.config),
            Origin::Registry(name) => {
                let registry = Registry::new(&name.parse()?)?;
                Ok(registry.document(&self.image.config.digest).await?.to_vec())
            }
        }
    }

    /// The folder of the images that were converted here.
    pub fn local_folder(state: &Path) -> PathBuf {
        state.join(LOCAL)
    }
}

fn local(state: &Path, reference: &Reference) -> Result<Found> {
    let name = reference.to_string();
    let missing = || Error::Missing { what: format!("the image `{name}`") };
    let layout = Layout::open(&Found::local_folder(state)).map_err(|_| missing())?;
    in_layout(&layout, &name, Some(&name))
}

fn in_layout(layout: &Layout, name: &str, tag: Option<&str>) -> Result<Found> {
    let manifest = layout.find(tag)?;
    Ok(Found {
        name: name.to_owned(),
        image: exchange::read(layout, &manifest)?,
        manifest: manifest.digest,
        origin: Origin::Layout(std::path::absolute(layout.folder()).map_err(|source| {
            Error::Io { action: "find", path: layout.folder().to_owned(), source }
        })?),
    })
}

async fn in_registry(reference: &Reference) -> Result<Found> {
    let (manifest, image) = exchange::find(&Registry::new(reference)?, reference).await?;
    let (name, manifest) = (reference.to_string(), manifest.digest);
    Ok(Found { origin: Origin::Registry(name.clone()), name, manifest, image })
}

/// Whether a name says which registry it is of: without, it is one of this machine.
fn has_registry(name: &str) -> bool {
    let name = name.trim_start_matches("docker:").trim_start_matches('/');
    name.split_once('/').is_some_and(|(host, _)| host.contains(['.', ':']) || host == "localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_name_without_a_registry_is_looked_for_here_alone() {
        let state = tempfile::tempdir().unwrap();
        let error = find_image(state.path(), "app:v1").await.unwrap_err();
        assert!(matches!(&error, Error::Missing { what } if what.contains("app:v1")), "{error}");
        let error = find_image(state.path(), "dir:/tmp").await.unwrap_err();
        assert!(matches!(error, Error::Refused { .. }), "{error}");
        assert!(has_registry("127.0.0.1:1/a") && has_registry("docker://h.x/a"));
        assert!(!has_registry("me/app:1") && !has_registry("app"));
    }
}
