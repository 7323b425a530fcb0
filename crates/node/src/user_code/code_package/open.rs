//! Finds a code package by its name, checks that it fits this host, and mounts it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use snowmelt_image::block::OciDigest;
use snowmelt_package::python_requirement;
use snowmelt_sandbox::{ImageBind, MountedImage};
use snowmelt_types::{Digest, Tenant};

use super::label::Contents;
use crate::images::{ResolvedImage, TenantImages, TreePlace, find_image};
use crate::user_code::interpreters::Interpreter;
use crate::user_code::preparation::Preparation;
use crate::{Error, Result, Unit};

/// A code package as a deployment found it, pinned to one manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackageAt {
    /// The name of the package's image, as the user wrote it.
    pub name: String,
    /// The digest of the manifest that the name led to at the deployment.
    pub manifest: OciDigest,
}

/// A code package whose image is mounted.
#[derive(Debug)]
pub(crate) struct OpenedPackage {
    pub contents: Contents,
    pub image: MountedImage,
    /// The digest that names the content of each layer of wheels.
    pub layers: Vec<Digest>,
}

impl Preparation {
    /// Finds a package of a tenant by its name and checks that it fits this host; returns what pins the
    /// package, and the name of its handler.
    pub async fn find_package(&self, tenant: &Tenant, name: &str) -> Result<(PackageAt, String)> {
        let of = TenantImages::new(&self.state_dir, tenant);
        let found = find_image(&of, name, &of.access()).await;
        let found = found.map_err(|error| unfit(name, error))?;
        let (contents, _) = self.contents(&of, name, &found).await?;
        let at = PackageAt { name: name.to_owned(), manifest: found.manifest };
        Ok((at, contents.handler))
    }

    /// Mounts a package as a unit; its blocks need not be on this host yet.
    pub async fn prepare_package(
        &self,
        tenant: &Tenant,
        at: &PackageAt,
        place: Option<&TreePlace>,
    ) -> Result<Unit> {
        let of = TenantImages::new(&self.state_dir, tenant);
        let known = &self.images.known;
        let found = known.find_pinned(&of, &at.name, &at.manifest).await;
        let found = found.map_err(|error| unfit(&at.name, error))?;
        let (contents, interpreter) = self.contents(&of, &at.name, &found).await?;
        let root = |blob: &snowmelt_image::block::BlobSummary| blob.root.to_string();
        let layers = &found.image.layers[..contents.layers.len()];
        let layers = layers.iter().map(|blob| Digest::of_parts(["layer-1", &root(blob)]));
        let layers = layers.collect();
        let image = self.images.mount_found(tenant, &found, place).await?.at;
        let opened = OpenedPackage { contents, image, layers };
        Ok(Unit::packed(tenant, opened, &interpreter.python, &interpreter.runtime))
    }

    /// Returns the description of a package, and the interpreter of the version that the package
    /// was made for.
    async fn contents(
        &self,
        of: &TenantImages,
        name: &str,
        found: &ResolvedImage,
    ) -> Result<(Contents, Arc<Interpreter>)> {
        let config = self.images.known.config(of, found).await?;
        let contents = Contents::read(name, &config, found.image.layers.len())?;
        let wanted = [python_requirement(&contents.made_for.version)];
        let interpreter = match self.interpreters.of(&wanted).await {
            Ok((interpreter, _)) => interpreter,
            // The package is refused by its name.
            Err(_) => self.interpreters.default().await?,
        };
        contents.check_fits(name, &interpreter.python)?;
        Ok((contents, interpreter))
    }
}

impl OpenedPackage {
    /// Makes the folder `folder` of the package visible at the path `target` in a sandbox.
    pub fn show(&self, folder: &str, target: &str) -> ImageBind {
        let image = self.image.clone();
        let target = target.into();
        ImageBind { image, folder: folder.to_owned(), target }
    }
}

/// Turns the refusal of an image that is not a block image into the error for a package that cannot
/// be used: such an image is not a package either.
fn unfit(name: &str, error: snowmelt_image::Error) -> Error {
    match error {
        snowmelt_image::Error::Refused { reason, .. } => Error::CodePackage {
            name: name.to_owned(),
            reason,
            hint: "make one with `snowmelt fn pack`".to_owned(),
        },
        other => other.into(),
    }
}
