//! OCI image layout folders: a source of images, and the store of converted ones.
//!
//! Invariant: a blob under its final name is complete and flushed. `index.json` is replaced
//! atomically, by one process at a time.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use super::document::{Document, ImagePlatform, MAX_DOCUMENT_BYTES};
use super::{ConversionSource, Described};
use crate::block::OciDigest;
use crate::lock::{self, Lock, LockMode};
use crate::manifest::Descriptor;
use crate::{Error, Result};

/// The annotation with the short name, as a user writes it; other tools use it as the tag.
const NAME: &str = "org.opencontainers.image.ref.name";
/// The annotation with the full name, as containerd and others write it, if it differs.
const FULL_NAME: &str = "io.containerd.image.name";
/// The annotation with which earlier versions kept the number of the user who gave the name, unless
/// that was an operator of the platform.
const USER: &str = "dev.snowmelt.user";
/// Snowmelt's own subfolder; other readers ignore it.
const PRIVATE: &str = ".snowmelt";
/// The lock file of garbage collection: shared while blobs are added, exclusive while blobs are
/// removed.
const COLLECTING: &str = "collecting";
/// The folder with a lock file for each image in use.
pub(crate) const PINNED: &str = "held";

/// An OCI layout folder.
#[derive(Clone, Debug)]
pub struct OciLayout {
    folder: PathBuf,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LayoutIndex {
    schema_version: u32,
    #[serde(default)]
    manifests: Vec<Descriptor>,
}

impl LayoutIndex {
    /// Removes a name; returns whether it existed.
    fn remove_name(&mut self, name: &str) -> bool {
        let before = self.manifests.len();
        self.manifests.retain(|one| full_name(one) != Some(name));
        self.manifests.len() < before
    }
}

fn full_name(one: &Descriptor) -> Option<&str> {
    let found = one.annotations.get(FULL_NAME).or_else(|| one.annotations.get(NAME));
    found.map(String::as_str)
}

/// Returns a name without the prefixes that names without a registry get.
fn familiar(name: &str) -> &str {
    let short = name.strip_prefix("docker.io/").unwrap_or(name);
    short.strip_prefix("library/").unwrap_or(short)
}

impl Default for LayoutIndex {
    fn default() -> Self {
        Self { schema_version: 2, manifests: Vec::new() }
    }
}

impl OciLayout {
    /// Opens an existing layout.
    pub fn open(folder: &Path) -> Result<Self> {
        if !folder.join("oci-layout").is_file() {
            return Err(Error::missing(format!("an OCI layout at {}", folder.display())));
        }
        Ok(Self { folder: folder.to_owned() })
    }

    /// Opens a layout to store images in; creates it if it does not exist.
    pub fn create(folder: &Path) -> Result<Self> {
        let layout = Self { folder: folder.to_owned() };
        for part in ["blobs/sha256", ".snowmelt/tmp", ".snowmelt/layers", ".snowmelt/sources"] {
            let path = folder.join(part);
            fs::create_dir_all(&path).map_err(Error::io("make the folder", &path))?;
        }
        let marker = folder.join("oci-layout");
        if !marker.exists() {
            // Protects the temporary file from being swept.
            let _lock = layout.change_names()?;
            layout.replace(&marker, br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        }
        Ok(layout)
    }

    /// Returns the path of the layout.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the path of a blob, which need not exist.
    pub fn blob_path(&self, digest: &OciDigest) -> PathBuf {
        self.folder.join("blobs/sha256").join(digest.hex())
    }

    /// Reads a small blob and verifies its digest.
    pub fn read_blob(&self, descriptor: &Descriptor) -> Result<Vec<u8>> {
        let path = self.blob_path(&descriptor.digest);
        let digest = &descriptor.digest;
        let file = self.open_blob(digest)?;
        let mut bytes = Vec::new();
        file.take(MAX_DOCUMENT_BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(Error::io("read", &path))?;
        if bytes.len() as u64 > MAX_DOCUMENT_BYTES {
            let what = format!("the document {digest}");
            return Err(Error::Limit { what, limit: MAX_DOCUMENT_BYTES, unit: "bytes" });
        }
        digest.check(&format!("the document {digest}"), &bytes)?;
        Ok(bytes)
    }

    /// Opens a blob without verification.
    pub fn open_blob(&self, digest: &OciDigest) -> Result<File> {
        let path = self.blob_path(digest);
        match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(Error::missing(format!("the blob {digest}")))
            }
            opened => opened.map_err(Error::io("open", &path)),
        }
    }

    /// Stores a small blob.
    pub fn put(&self, media_type: &str, bytes: &[u8]) -> Result<Descriptor> {
        let digest = OciDigest::of(bytes);
        let path = self.blob_path(&digest);
        // Named by its content: what is there is the same.
        if !path.exists() {
            self.replace(&path, bytes)?;
        }
        Ok(Descriptor::new(media_type, digest, bytes.len() as u64))
    }

    /// Creates a temporary file for a new blob, deleted unless it is passed to [`Self::keep`].
    pub fn pending(&self) -> Result<NamedTempFile> {
        let tmp = self.private("tmp");
        fs::create_dir_all(&tmp).map_err(Error::io("make the folder", &tmp))?;
        NamedTempFile::new_in(&tmp).map_err(Error::io("write in", &tmp))
    }

    /// Stores a file as the blob with that digest, which the writer has computed.
    pub fn keep(&self, file: NamedTempFile, digest: &OciDigest) -> Result<()> {
        persist(file, &self.blob_path(digest))
    }

    /// Finds the manifest with that name; without a name, the only manifest.
    pub fn find(&self, name: Option<&str>) -> Result<Descriptor> {
        let index = self.index()?;
        let named = |one: &&Descriptor| match name {
            None => true,
            Some(name) => {
                full_name(one) == Some(name)
                    || one.annotations.get(NAME).is_some_and(|found| found == name)
                    || one.digest.as_str() == name
            }
        };
        let mut found = index.manifests.iter().filter(named);
        match (found.next(), found.next()) {
            (Some(one), None) => Ok(one.clone()),
            (Some(_), Some(_)) => {
                let what = format!("the layout {}", self.folder.display());
                Err(Error::refused(what, "it contains several images: name one"))
            }
            (None, _) => Err(Error::missing(format!("the image `{}`", name.unwrap_or_default()))),
        }
    }

    /// Lists every manifest of the index, with its name if it has one.
    pub fn list(&self) -> Result<Vec<(Option<String>, Descriptor)>> {
        let named = |mut one: Descriptor| {
            let full = one.annotations.remove(FULL_NAME);
            let name = one.annotations.remove(NAME);
            (full.or(name), one)
        };
        Ok(self.index()?.manifests.into_iter().map(named).collect())
    }

    /// Names a manifest; the name is removed from any other manifest.
    pub fn tag(&self, name: &str, manifest: &Descriptor) -> Result<()> {
        let _lock = self.change_names()?;
        let mut index = self.index()?;
        index.remove_name(name);
        let mut named = manifest.clone();
        named.annotations.remove(USER);
        let short = familiar(name);
        if short != name {
            named.annotations.insert(FULL_NAME.to_owned(), name.to_owned());
        }
        named.annotations.insert(NAME.to_owned(), short.to_owned());
        index.manifests.push(named);
        self.write_index(&index)
    }

    /// Returns the number of the user of the platform who gave a listed manifest its name, if an
    /// earlier version has kept one.
    pub fn user_of(listed: &Descriptor) -> Option<u32> {
        listed.annotations.get(USER)?.parse().ok()
    }

    /// Removes a name. Unreferenced blobs are kept until garbage collection.
    pub fn untag(&self, name: &str) -> Result<()> {
        let _lock = self.change_names()?;
        let mut index = self.index()?;
        if !index.remove_name(name) {
            return Err(Error::missing(format!("the image `{name}`")));
        }
        self.write_index(&index)
    }

    /// Protects the blobs of an image in use from garbage collection, as long as the lock lives.
    pub fn pin(&self, manifest: &OciDigest) -> Result<Lock> {
        let folder = self.private(PINNED);
        fs::create_dir_all(&folder).map_err(Error::io("make the folder", &folder))?;
        // A collector that has already read the list of pinned images must finish first.
        let _collectors = self.keep_collectors_away()?;
        // The lock before the look: a collector that comes later finds the image in use.
        let held = lock::wait(&folder.join(manifest.hex()), LockMode::Shared)?;
        self.open_blob(manifest).map(|_| held)
    }

    /// Blocks garbage collection while new blobs are not referenced yet, as long as the lock lives.
    pub fn keep_collectors_away(&self) -> Result<Lock> {
        lock::wait(&self.private(COLLECTING), LockMode::Shared)
    }

    /// Takes the exclusive lock to remove unreferenced blobs; `None` while collection is blocked.
    pub(crate) fn collect_alone(&self) -> Result<Option<Lock>> {
        lock::attempt(&self.private(COLLECTING), LockMode::Exclusive)
    }

    /// Takes the exclusive lock to change names.
    pub(crate) fn change_names(&self) -> Result<Lock> {
        lock::wait(&self.private("lock"), LockMode::Exclusive)
    }

    fn write_index(&self, index: &LayoutIndex) -> Result<()> {
        let bytes = serde_json::to_vec(index)
            .map_err(|error| Error::refused("index.json", error.to_string()))?;
        self.replace(&self.folder.join("index.json"), &bytes)
    }

    /// Returns a path in Snowmelt's subfolder.
    pub(crate) fn private(&self, name: &str) -> PathBuf {
        self.folder.join(PRIVATE).join(name)
    }

    /// Replaces a file atomically: a reader sees the old or the new content.
    pub(crate) fn replace(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        let mut file = self.pending()?;
        file.write_all(bytes).map_err(Error::io("write", path))?;
        persist(file, path)
    }

    fn index(&self) -> Result<LayoutIndex> {
        let path = self.folder.join("index.json");
        match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(LayoutIndex::default()),
            read => serde_json::from_slice(&read.map_err(Error::io("read", &path))?)
                .map_err(|error| Error::refused(path.display().to_string(), error.to_string())),
        }
    }
}

fn persist(file: NamedTempFile, path: &Path) -> Result<()> {
    // Before the name: after a power failure a name with half of its content would be a blob.
    file.as_file().sync_all().map_err(Error::io("flush", path))?;
    file.persist(path).map_err(|failed| Error::io("write", path)(failed.error))?;
    Ok(())
}

/// An image of a layout folder.
pub struct LayoutOrigin {
    layout: OciLayout,
    original: Descriptor,
    document: Document,
}

impl LayoutOrigin {
    /// Opens the image with that name, or the only image, for that platform.
    pub fn open(layout: OciLayout, name: Option<&str>, platform: &ImagePlatform) -> Result<Self> {
        let mut original = layout.find(name)?;
        original.annotations.clear();
        let mut document = Document::parse(&layout.read_blob(&original)?)?;
        if let Some(chosen) = document.for_platform(platform)? {
            document = Document::parse(&layout.read_blob(&chosen)?)?;
            original = chosen;
        }
        Ok(Self { layout, original, document })
    }
}

impl ConversionSource for LayoutOrigin {
    fn describe(&self) -> Result<Described> {
        Ok(Described {
            config: Some(self.layout.read_blob(self.document.config()?)?),
            layers: self.document.layers.len(),
            original: Some(self.original.clone()),
        })
    }

    fn layer(&self, index: usize) -> Result<Box<dyn Read + '_>> {
        let layer = self.document.layers.get(index);
        let layer = layer.ok_or_else(|| Error::missing(format!("the layer {index}")))?;
        Ok(Box::new(self.layout.open_blob(&layer.digest)?))
    }
}
