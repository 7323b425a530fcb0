//! Locations of images, as users write them: a registry's reference, or a file type with a path.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;

use super::{
    Access, ConversionSource, DockerArchive, FolderOrigin, ImagePlatform, LayoutOrigin, OciLayout,
    Reference, RegistryOrigin,
};
use crate::{Error, Result};

/// The location of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageLocation {
    /// An image in a registry: `[host[:port]/]repository[:tag][@digest]`.
    Registry(Reference),
    /// An image in an OCI layout folder: `oci:FOLDER[:TAG]`.
    Layout(PathBuf, Option<String>),
    /// An image in an archive of `docker save`: `docker-archive:FILE[:TAG]`.
    Archive(PathBuf, Option<String>),
    /// A folder of files: `dir:FOLDER`.
    Folder(PathBuf),
}

impl ImageLocation {
    /// Opens the image for this machine's platform. Must be called in an async runtime; the result
    /// must not be used on a thread of that runtime.
    pub async fn open(&self, access: &Access) -> Result<Box<dyn ConversionSource + Send + Sync>> {
        self.open_checked(access).await.map_err(|error| self.explained(error))
    }

    /// Returns whether the location is a file or folder, which only its user may open.
    pub fn is_path(&self) -> bool {
        !matches!(self, Self::Registry(_))
    }

    /// Explains an error of reading the image: a file that the user may not read is the user's
    /// error.
    pub fn explained(&self, error: Error) -> Error {
        match error {
            Error::Io { source, .. }
                if self.is_path() && source.kind() == io::ErrorKind::PermissionDenied =>
            {
                Error::Unreadable { location: self.to_string(), source }
            }
            error => error,
        }
    }

    async fn open_checked(
        &self,
        access: &Access,
    ) -> Result<Box<dyn ConversionSource + Send + Sync>> {
        self.check_exists()?;
        let here = ImagePlatform::here();
        Ok(match self {
            Self::Registry(name) => {
                Box::new(RegistryOrigin::open(access.registry(name)?, name, &here).await?)
            }
            Self::Layout(folder, tag) => {
                Box::new(LayoutOrigin::open(OciLayout::open(folder)?, tag.as_deref(), &here)?)
            }
            Self::Archive(file, tag) => {
                // A compressed archive is decompressed first.
                let file = file.clone();
                let tag = tag.clone();
                let open = move || DockerArchive::open(&file, tag.as_deref());
                let opened = tokio::task::spawn_blocking(open).await;
                Box::new(opened.map_err(|error| Error::refused("the archive", error.to_string()))??)
            }
            Self::Folder(folder) => Box::new(FolderOrigin::open(folder)?),
        })
    }
}

impl ImageLocation {
    /// Reports a mistyped path as the user's error instead of an I/O error.
    fn check_exists(&self) -> Result<()> {
        match self {
            Self::Layout(path, _) | Self::Archive(path, _) | Self::Folder(path) => {
                match path.try_exists() {
                    Ok(true) => Ok(()),
                    Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                        Err(Error::Unreadable { location: self.to_string(), source: error })
                    }
                    _ => Err(Error::NoFile { location: self.to_string() }),
                }
            }
            _ => Ok(()),
        }
    }
}

/// Returns whether the text looks like a path of an image file; no reference of a registry does.
fn is_path(text: &str) -> bool {
    [".tar", ".tar.gz", ".tgz"].iter().any(|end| text.ends_with(end))
        || ["/", "./", "../", "~"].iter().any(|begin| text.starts_with(begin))
}

impl FromStr for ImageLocation {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        // As in other tools with this syntax, a path cannot contain a colon.
        let path_and_tag = |rest: &str| match rest.split_once(':') {
            Some((path, tag)) => (PathBuf::from(path), Some(tag.to_owned())),
            None => (PathBuf::from(rest), None),
        };
        let location = match text.split_once(':') {
            Some(("oci", rest)) => {
                let (folder, tag) = path_and_tag(rest);
                Self::Layout(folder, tag)
            }
            Some(("docker-archive", rest)) => {
                let (file, tag) = path_and_tag(rest);
                Self::Archive(file, tag)
            }
            Some(("dir", rest)) => Self::Folder(rest.into()),
            Some(("docker", rest)) => Self::Registry(rest.trim_start_matches('/').parse()?),
            _ if is_path(text) => {
                let reason = "a file or folder needs a prefix: \
                              docker-archive:FILE, oci:FOLDER or dir:FOLDER";
                return Err(Error::refused(format!("the image `{text}`"), reason));
            }
            _ => Self::Registry(text.parse()?),
        };
        match &location {
            Self::Layout(path, _) | Self::Archive(path, _) | Self::Folder(path)
                if path.as_os_str().is_empty() =>
            {
                Err(Error::refused(format!("the image `{text}`"), "it has no path"))
            }
            _ => Ok(location),
        }
    }
}

impl fmt::Display for ImageLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, path, tag) = match self {
            Self::Registry(name) => return name.fmt(f),
            Self::Layout(path, tag) => ("oci", path, tag.as_deref()),
            Self::Archive(path, tag) => ("docker-archive", path, tag.as_deref()),
            Self::Folder(path) => ("dir", path, None),
        };
        write!(f, "{kind}:{}", path.display())?;
        tag.map_or(Ok(()), |tag| write!(f, ":{tag}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_and_formats_every_kind() {
        for text in [
            "oci:/a/b",
            "oci:a:v1",
            "docker-archive:a.tar:debian:12",
            "dir:/a",
            "localhost:5000/a:v1",
        ] {
            assert_eq!(text.parse::<ImageLocation>().unwrap().to_string(), text);
        }
        let docker: ImageLocation = "docker://h.x/a:t".parse().unwrap();
        assert_eq!(docker.to_string(), "h.x/a:t");
        for wrong in ["oci:", "dir:", "docker-archive::t", "A b", "app.tar", "./app", "/a/b"] {
            wrong.parse::<ImageLocation>().unwrap_err();
        }
        let archive = "app.tar".parse::<ImageLocation>().unwrap_err().to_string();
        assert!(archive.contains("docker-archive:FILE"), "{archive}");
    }

    #[test]
    fn a_missing_path_is_reported_as_the_users_error() {
        use snowmelt_types::Report;
        for text in ["docker-archive:/nowhere.tar:v1", "oci:/nowhere", "dir:/nowhere"] {
            let report =
                text.parse::<ImageLocation>().unwrap().check_exists().unwrap_err().report();
            assert_eq!(
                (report.code.as_str(), report.message),
                ("SM-1003", format!("{text} does not exist"))
            );
        }
        "dir:/".parse::<ImageLocation>().unwrap().check_exists().unwrap();
        "debian:12".parse::<ImageLocation>().unwrap().check_exists().unwrap();
    }
}
