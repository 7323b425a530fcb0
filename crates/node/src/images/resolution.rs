//! The way from the name of an image to its manifest, and to the source of its blocks.

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use snowmelt_image::block::OciDigest;
use snowmelt_image::read::{BlockSource, LocalSource, Retried, RetryPolicy};
use snowmelt_image::source::{Access, ImageLocation, OciLayout, Reference};
use snowmelt_image::{Error, Image, Result, exchange};

use super::tenant_images::TenantImages;

/// An image that was found by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedImage {
    /// The name under which the image was found, on this machine or in a registry.
    pub name: String,
    /// The digest of the image's manifest.
    pub manifest: OciDigest,
    /// The contents of the manifest: the blobs of the image.
    pub image: Image,
    /// The place where the image's blocks are.
    pub origin: ImageOrigin,
}

/// The place that the blocks of an image come from.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ImageOrigin {
    /// An OCI layout folder of this machine.
    Layout(PathBuf),
    /// A repository of a registry, by the name of one of its images.
    Registry(String),
}

/// Finds a block image: among the tenant's images of this machine or, if it is not there and its
/// name has a registry, in that registry; or in a layout folder (`oci:FOLDER[:TAG]`).
pub async fn find_image(of: &TenantImages, name: &str, access: &Access) -> Result<ResolvedImage> {
    match name.parse()? {
        ImageLocation::Layout(folder, tag) => {
            in_layout(&OciLayout::open(&folder)?, name, tag.as_deref())
        }
        ImageLocation::Registry(reference) => match local(of, &reference) {
            Err(Error::Missing { .. }) if has_registry(name) => {
                in_registry(&reference, access).await
            }
            found => found,
        },
        ImageLocation::Archive(..) | ImageLocation::Folder(_) => {
            let reason = "it has to be converted first (snowmelt image convert)";
            Err(Error::Refused { what: format!("the image `{name}`"), reason: reason.to_owned() })
        }
    }
}

/// Finds the image that a name led to once, by the digest of its manifest: the image that the name
/// leads to now if that has the digest, or else an image with the digest in the same place.
pub(crate) async fn find_pinned(
    of: &TenantImages,
    name: &str,
    manifest: &OciDigest,
) -> Result<ResolvedImage> {
    let digest = Some(manifest.as_str());
    let is_it = |found: &Result<ResolvedImage>| {
        found.as_ref().is_ok_and(|found| found.manifest == *manifest)
    };
    let found = match name.parse()? {
        ImageLocation::Layout(folder, tag) => {
            let layout = OciLayout::open(&folder)?;
            let named = in_layout(&layout, name, tag.as_deref());
            if is_it(&named) { named } else { in_layout(&layout, name, digest) }
        }
        ImageLocation::Registry(reference) => match local(of, &reference) {
            named if is_it(&named) => named,
            _ if has_registry(name) => {
                let reference = Reference { digest: Some(manifest.clone()), ..reference };
                in_registry(&reference, &of.access()).await
            }
            _ => in_layout(&OciLayout::open(&of.layout_folder())?, name, digest),
        },
        ImageLocation::Archive(..) | ImageLocation::Folder(_) => {
            find_image(of, name, &of.access()).await
        }
    };
    match found {
        Err(Error::Missing { .. }) => {
            Err(Error::Missing { what: format!("the image `{name}` with the digest {manifest}") })
        }
        found => found,
    }
}

impl ImageOrigin {
    /// Opens the source of the stored bytes of the image's blobs.
    pub fn source(&self, access: &Access) -> Result<Arc<dyn BlockSource>> {
        Ok(match self {
            Self::Layout(folder) => Arc::new(LocalSource::new(folder)),
            Self::Registry(name) => {
                let registry = access.registry(&name.parse()?)?;
                Arc::new(Retried::new(registry, RetryPolicy::default()))
            }
        })
    }
}

impl ResolvedImage {
    /// Reads the configuration of the image, as the original image had it.
    pub async fn config(&self, access: &Access) -> Result<Vec<u8>> {
        match &self.origin {
            ImageOrigin::Layout(folder) => OciLayout::open(folder)?.read_blob(&self.image.config),
            ImageOrigin::Registry(name) => {
                let registry = access.registry(&name.parse()?)?;
                Ok(registry.document(&self.image.config.digest).await?.to_vec())
            }
        }
    }
}

fn local(of: &TenantImages, reference: &Reference) -> Result<ResolvedImage> {
    let name = reference.to_string();
    let missing = || Error::Missing { what: format!("the image `{name}`") };
    let layout = OciLayout::open(&of.layout_folder()).map_err(|_| missing())?;
    in_layout(&layout, &name, Some(&name))
}

fn in_layout(layout: &OciLayout, name: &str, tag: Option<&str>) -> Result<ResolvedImage> {
    let manifest = layout.find(tag)?;
    Ok(ResolvedImage {
        name: name.to_owned(),
        image: exchange::read(layout, &manifest)?,
        manifest: manifest.digest,
        origin: ImageOrigin::Layout(std::path::absolute(layout.folder()).map_err(|source| {
            Error::Io { action: "find", path: layout.folder().to_owned(), source }
        })?),
    })
}

async fn in_registry(reference: &Reference, access: &Access) -> Result<ResolvedImage> {
    let (manifest, image) = exchange::find(&access.registry(reference)?, reference).await?;
    let name = reference.to_string();
    let manifest = manifest.digest;
    Ok(ResolvedImage { origin: ImageOrigin::Registry(name.clone()), name, manifest, image })
}

/// Returns whether the name of an image says which registry it is in: a name without a registry is
/// of this machine.
pub fn has_registry(name: &str) -> bool {
    let name = name.trim_start_matches("docker:").trim_start_matches('/');
    name.split_once('/').is_some_and(|(host, _)| host.contains(['.', ':']) || host == "localhost")
}

#[cfg(test)]
mod tests {
    use snowmelt_types::Tenant;

    use super::*;

    #[tokio::test]
    async fn a_pinned_image_is_the_one_that_its_name_led_to() {
        let state = tempfile::tempdir().unwrap();
        let images = TenantImages::new(state.path(), &Tenant::default());
        let layout = OciLayout::create(&images.layout_folder()).unwrap();
        let tagged = |text: &str| {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("file"), text).unwrap();
            let origin = snowmelt_image::source::FolderOrigin::open(folder.path()).unwrap();
            let options = snowmelt_image::Options::default();
            let converted = snowmelt_image::convert(&origin, &layout, options).unwrap();
            layout.tag("docker.io/library/app:v1", &converted.manifest).unwrap();
            converted.manifest
        };
        let first = tagged("one");
        let at = |manifest: OciDigest| {
            let images = images.clone();
            async move { find_pinned(&images, "app:v1", &manifest).await }
        };
        assert_eq!(at(first.digest.clone()).await.unwrap().manifest, first.digest);
        let second = tagged("two");
        let error = at(first.digest.clone()).await.unwrap_err();
        assert!(error.to_string().contains(first.digest.as_str()), "{error}");
        layout.tag("docker.io/library/app:old", &first).unwrap();
        assert_eq!(at(first.digest.clone()).await.unwrap().manifest, first.digest);
        assert_eq!(at(second.digest.clone()).await.unwrap().manifest, second.digest);
    }

    #[tokio::test]
    async fn a_name_without_a_registry_is_looked_for_here_alone() {
        let state = tempfile::tempdir().unwrap();
        let images = TenantImages::new(state.path(), &Tenant::default());
        let error = find_image(&images, "app:v1", &Access::own()).await.unwrap_err();
        assert!(matches!(&error, Error::Missing { what } if what.contains("app:v1")), "{error}");
        let error = find_image(&images, "dir:/tmp", &Access::own()).await.unwrap_err();
        assert!(matches!(error, Error::Refused { .. }), "{error}");
        assert!(has_registry("127.0.0.1:1/a") && has_registry("docker://h.x/a"));
        assert!(!has_registry("me/app:1") && !has_registry("app"));
    }
}
