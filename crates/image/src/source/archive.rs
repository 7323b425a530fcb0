//! What `docker save` writes: a tar archive with `manifest.json`, configurations and layers, which
//! are archives themselves and are read where they stand.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;

use super::document::LARGEST;
use super::{Described, Origin};
use crate::{Error, Result};

/// One image of an archive.
pub struct DockerArchive {
    path: PathBuf,
    file: File,
    members: HashMap<PathBuf, Member>,
    image: Saved,
}

enum Member {
    /// Where the content begins, and its length.
    File(u64, u64),
    /// Older versions save a layer that two images share as a link.
    Link(PathBuf),
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: PathBuf,
    repo_tags: Option<Vec<String>>,
    layers: Vec<PathBuf>,
}

impl DockerArchive {
    /// The image with that tag, or the only one.
    pub fn open(path: &Path, tag: Option<&str>) -> Result<Self> {
        let file = File::open(path).map_err(Error::io("open", path))?;
        let members = members(&file).map_err(|error| match error.raw_os_error() {
            Some(_) => Error::io("read the archive", path)(error),
            None => Error::refused(format!("the archive {}", path.display()), error.to_string()),
        })?;
        let read = |name: &Path| read_member(path, &file, &members, name);
        let saved: Vec<Saved> = serde_json::from_slice(&read(Path::new("manifest.json"))?)
            .map_err(|error| Error::refused(path.display().to_string(), error.to_string()))?;
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
                let reason = "it holds several such images: name one by its tag";
                return Err(Error::refused(path.display().to_string(), reason));
            }
            (None, _) => {
                return Err(Error::missing(format!("the image `{}`", tag.unwrap_or_default())));
            }
        };
        Ok(Self { path: path.to_owned(), file, members, image })
    }
}

impl Origin for DockerArchive {
    fn describe(&self) -> Result<Described> {
        let config = read_member(&self.path, &self.file, &self.members, &self.image.config)?;
        Ok(Described { config: Some(config), layers: self.image.layers.len(), original: None })
    }

    fn layer(&self, index: usize) -> Result<Box<dyn Read + '_>> {
        let missing = || Error::missing(format!("the layer {index}"));
        let name = self.image.layers.get(index).ok_or_else(missing)?;
        let (at, left) = find(&self.members, name).ok_or_else(missing)?;
        Ok(Box::new(Section { file: &self.file, at, left }))
    }
}

/// Some tools write the names of Docker's own registry out, others do not.
fn familiar(tag: &str) -> &str {
    let tag = tag.strip_prefix("docker.io/").unwrap_or(tag);
    tag.strip_prefix("library/").unwrap_or(tag)
}

/// Part of a file.
struct Section<'a> {
    file: &'a File,
    at: u64,
    left: u64,
}

impl Read for Section<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let count = self.file.read_at(&mut buffer[..most], self.at)?;
        self.at += count as u64;
        self.left -= count as u64;
        Ok(count)
    }
}

fn members(file: &File) -> io::Result<HashMap<PathBuf, Member>> {
    let mut found = HashMap::new();
    for entry in tar::Archive::new(file).entries_with_seek()? {
        let entry = entry?;
        let path = plain(&entry.path()?);
        if entry.header().entry_type().is_file() {
            found.insert(path, Member::File(entry.raw_file_position(), entry.size()));
        } else if let Some(target) = entry.link_name()?.filter(|_| is_link(&entry)) {
            let folder = path.parent().unwrap_or(Path::new(""));
            found.insert(path.clone(), Member::Link(plain(&folder.join(target))));
        }
    }
    Ok(found)
}

fn is_link<R: Read>(entry: &tar::Entry<'_, R>) -> bool {
    entry.header().entry_type().is_symlink()
}

/// Without `.` and `..`: names are looked up, never opened.
fn plain(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut plain, part| {
        match part {
            Component::Normal(name) => plain.push(name),
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
        plain
    })
}

fn find(members: &HashMap<PathBuf, Member>, name: &Path) -> Option<(u64, u64)> {
    let mut name = plain(name);
    // A link leads to a file; one that leads to a link is no layer that anybody saved.
    for _ in 0..2 {
        match members.get(&name)? {
            Member::File(at, size) => return Some((*at, *size)),
            Member::Link(target) => name = target.clone(),
        }
    }
    None
}

fn read_member(
    path: &Path,
    file: &File,
    members: &HashMap<PathBuf, Member>,
    name: &Path,
) -> Result<Vec<u8>> {
    let Some((at, size)) = find(members, name) else {
        let reason = format!("it has no `{}`: is it from `docker save`?", name.display());
        return Err(Error::refused(path.display().to_string(), reason));
    };
    if size > LARGEST {
        return Err(Error::Limit {
            what: name.display().to_string(),
            limit: LARGEST,
            unit: "bytes",
        });
    }
    let mut bytes = vec![0; size as usize];
    file.read_exact_at(&mut bytes, at).map_err(Error::io("read", path))?;
    Ok(bytes)
}
