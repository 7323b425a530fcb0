//! Archives of `docker save`: a tar file with `manifest.json`, configurations and layers. Layers
//! are archives too and are read in place.

use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::members::TarMembers;
use super::{ConversionSource, Described};
use crate::{Error, Result};

/// An image in such an archive.
pub struct DockerArchive {
    members: TarMembers,
    image: Saved,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: PathBuf,
    repo_tags: Option<Vec<String>>,
    layers: Vec<PathBuf>,
}

impl DockerArchive {
    /// Opens the image with that tag, or the only image.
    pub fn open(path: &Path, tag: Option<&str>) -> Result<Self> {
        let members = TarMembers::open(path)?;
        let manifest = members.document(Path::new("manifest.json"))?;
        let saved: Vec<Saved> = serde_json::from_slice(&manifest)
            .map_err(|error| members.refused(format!("its manifest.json: {error}")))?;
        let has = |image: &&Saved| match tag {
            None => true,
            Some(tag) => {
                image.repo_tags.iter().flatten().any(|found| familiar(found) == familiar(tag))
            }
        };
        let mut found = saved.iter().filter(has);
        let image = match (found.next(), found.next()) {
            (Some(one), None) => one.clone(),
            (Some(_), Some(_)) => {
                return Err(members.refused("it contains several images: select one by its tag"));
            }
            (None, _) => {
                return Err(Error::missing(format!("the image `{}`", tag.unwrap_or_default())));
            }
        };
        Ok(Self { members, image })
    }
}

impl ConversionSource for DockerArchive {
    fn describe(&self) -> Result<Described> {
        let config = self.members.document(&self.image.config)?;
        Ok(Described { config: Some(config), layers: self.image.layers.len(), original: None })
    }

    fn layer(&self, index: usize) -> Result<Box<dyn Read + '_>> {
        let missing = || Error::missing(format!("the layer {index}"));
        let name = self.image.layers.get(index).ok_or_else(missing)?;
        Ok(Box::new(self.members.content(name).ok_or_else(missing)?))
    }
}

/// Returns a name without the prefix of Docker's own registry, which only some tools write.
fn familiar(tag: &str) -> &str {
    let tag = tag.strip_prefix("docker.io/").unwrap_or(tag);
    tag.strip_prefix("library/").unwrap_or(tag)
}
