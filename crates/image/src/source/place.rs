//! Where an image is, as users write it: a registry's reference, or a kind of file with its path.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use super::{
    DockerArchive, FolderOrigin, Layout, LayoutOrigin, Origin, Platform, Reference, Registry,
    RegistryOrigin,
};
use crate::{Error, Result};

/// A place of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// `[host[:port]/]repository[:tag][@digest]`.
    Registry(Reference),
    /// `oci:FOLDER[:TAG]`.
    Layout(PathBuf, Option<String>),
    /// `docker-archive:FILE[:TAG]`.
    Archive(PathBuf, Option<String>),
    /// `dir:FOLDER`.
    Folder(PathBuf),
}

impl Place {
    /// The image that is there, for this machine. Must be called in a runtime; what it gives must
    /// not be used on a thread of that.
    pub async fn open(&self) -> Result<Box<dyn Origin + Send + Sync>> {
        self.check_there()?;
        let here = Platform::here();
        Ok(match self {
            Self::Registry(name) => {
                Box::new(RegistryOrigin::open(Registry::new(name)?, name, &here).await?)
            }
            Self::Layout(folder, tag) => {
                Box::new(LayoutOrigin::open(Layout::open(folder)?, tag.as_deref(), &here)?)
            }
            Self::Archive(file, tag) => {
                // A compressed one is unpacked first.
                let (file, tag) = (file.clone(), tag.clone());
                let open = move || DockerArchive::open(&file, tag.as_deref());
                let opened = tokio::task::spawn_blocking(open).await;
                Box::new(opened.map_err(|error| Error::refused("the archive", error.to_string()))??)
            }
            Self::Folder(folder) => Box::new(FolderOrigin::open(folder)?),
        })
    }
}

impl Place {
    /// A path that its user mistyped is no fault of the platform's own files.
    fn check_there(&self) -> Result<()> {
        match self {
            Self::Layout(path, _) | Self::Archive(path, _) | Self::Folder(path)
                if !path.exists() =>
            {
                Err(Error::NoFile { place: self.to_string() })
            }
            _ => Ok(()),
        }
    }
}

/// How files of images end and begin; no registry's image is called so.
fn is_path(text: &str) -> bool {
    [".tar", ".tar.gz", ".tgz"].iter().any(|end| text.ends_with(end))
        || ["/", "./", "../", "~"].iter().any(|begin| text.starts_with(begin))
}

impl FromStr for Place {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        // A path with a colon cannot be said, as with the other tools that read these.
        let path_and_tag = |rest: &str| match rest.split_once(':') {
            Some((path, tag)) => (PathBuf::from(path), Some(tag.to_owned())),
            None => (PathBuf::from(rest), None),
        };
        let place = match text.split_once(':') {
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
                let reason = "a file or folder has its kind before it: \
                              docker-archive:FILE, oci:FOLDER or dir:FOLDER";
                return Err(Error::refused(format!("the image `{text}`"), reason));
            }
            _ => Self::Registry(text.parse()?),
        };
        match &place {
            Self::Layout(path, _) | Self::Archive(path, _) | Self::Folder(path)
                if path.as_os_str().is_empty() =>
            {
                Err(Error::refused(format!("the image `{text}`"), "it has no path"))
            }
            _ => Ok(place),
        }
    }
}

impl fmt::Display for Place {
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
    fn reads_every_kind_and_writes_it_as_it_was() {
        for text in [
            "oci:/a/b",
            "oci:a:v1",
            "docker-archive:a.tar:debian:12",
            "dir:/a",
            "localhost:5000/a:v1",
        ] {
            assert_eq!(text.parse::<Place>().unwrap().to_string(), text);
        }
        let docker: Place = "docker://h.x/a:t".parse().unwrap();
        assert_eq!(docker.to_string(), "h.x/a:t");
        for wrong in ["oci:", "dir:", "docker-archive::t", "A b", "app.tar", "./app", "/a/b"] {
            wrong.parse::<Place>().unwrap_err();
        }
        let archive = "app.tar".parse::<Place>().unwrap_err().to_string();
        assert!(archive.contains("docker-archive:FILE"), "{archive}");
    }

    #[test]
    fn a_path_that_is_not_there_is_the_users_mistake() {
        use snowmelt_types::Report;
        for text in ["docker-archive:/nowhere.tar:v1", "oci:/nowhere", "dir:/nowhere"] {
            let report = text.parse::<Place>().unwrap().check_there().unwrap_err().report();
            assert_eq!(
                (report.code.as_str(), report.message),
                ("SM-1003", format!("{text} does not exist"))
            );
        }
        "dir:/".parse::<Place>().unwrap().check_there().unwrap();
        "debian:12".parse::<Place>().unwrap().check_there().unwrap();
    }
}
