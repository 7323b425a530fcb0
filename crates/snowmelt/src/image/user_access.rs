//! Access with the rights of the user of the command: to images in files and folders, credentials
//! of registries, certificates.

use std::io;
use std::path::Path;
use std::sync::Arc;

use snowmelt_api::{ClientImage, OriginalManifest, RegistryAccess, RegistryLogin};
use snowmelt_control::client::LocalImage;
use snowmelt_image::source::{Access, Authorities, Credentials, ImageLocation, Reference};
use snowmelt_image::{Error, Result};
use snowmelt_node::{ResolvedImage, find_image, has_registry};
use snowmelt_types::{ErrorReport, Report};

use super::tenant_images;
use crate::config::Config;

/// Opens an image in a file or folder, and describes it for the platform.
pub(super) async fn open(place: &ImageLocation) -> Result<(ClientImage, LocalImage), ErrorReport> {
    let opened = place.open(&Access::own()).await.map_err(|error| error.report())?;
    let described = opened.describe().map_err(|error| place.explained(error).report())?;
    let config = described.config.map(String::from_utf8).transpose().map_err(|error| {
        let what = "the image's configuration".to_owned();
        Error::Refused { what, reason: error.to_string() }.report()
    })?;
    let original = described.original.map(|original| OriginalManifest {
        media_type: original.media_type,
        digest: original.digest.to_string(),
        size: original.size,
    });
    let image = ClientImage { config, layers: described.layers, original };
    Ok((image, LocalImage { name: place.to_string(), origin: Arc::from(opened) }))
}

/// The user's access to the registries of these images. Only their credentials are sent.
pub(super) fn access(
    config: &Config,
    images: &[&Reference],
) -> Result<RegistryAccess, ErrorReport> {
    let authorities = match &config.ca_file {
        Some(file) => Some(certificates(&file.value).map_err(|error| error.report())?),
        None => None,
    };
    let mut logins: Vec<RegistryLogin> = Vec::new();
    for Reference { registry, .. } in images {
        if logins.iter().any(|known| known.registry == *registry) {
            continue;
        }
        let found = Credentials::find(registry).map_err(|error| error.report())?;
        logins.extend(found.map(|found| RegistryLogin {
            registry: registry.clone(),
            user: found.user,
            secret: found.secret,
        }));
    }
    Ok(RegistryAccess { logins, authorities })
}

/// The user's access to the registries of images by name; images without a registry need none.
pub(super) fn access_of(config: &Config, names: &[&str]) -> Result<RegistryAccess, ErrorReport> {
    let mut images = Vec::new();
    for name in names.iter().filter(|name| has_registry(name)) {
        let place = name.parse().map_err(|error: Error| error.report())?;
        if let ImageLocation::Registry(reference) = place {
            images.push(reference);
        }
    }
    access(config, &images.iter().collect::<Vec<_>>())
}

fn certificates(path: &Path) -> Result<String> {
    let bytes = std::fs::read(path).map_err(|source| match source.kind() {
        io::ErrorKind::PermissionDenied => {
            Error::Unreadable { location: path.display().to_string(), source }
        }
        _ => Error::Io { action: "read", path: path.to_owned(), source },
    })?;
    Authorities::parse(&bytes, &path.display().to_string())?;
    // Text around the certificates is ignored.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Whether an image is in a layout folder, which this process reads itself.
pub(super) fn is_path(name: &str) -> bool {
    name.parse::<ImageLocation>().is_ok_and(|place| place.is_path())
}

/// Finds an image in this process, because an image of the command is in a layout folder.
pub(super) async fn find(config: &Config, name: &str) -> Result<ResolvedImage, ErrorReport> {
    let found = find_image(&tenant_images(config), name, &Access::own()).await;
    found.map_err(|error| match name.parse::<ImageLocation>() {
        Ok(place) => place.explained(error).report(),
        Err(_) => error.report(),
    })
}
