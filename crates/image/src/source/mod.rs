//! Sources of images: OCI layout folders, archives of `docker save`, folders, registries.
//!
//! | part | file |
//! |---|---|
//! | manifests, indexes and configurations of OCI and Docker | `document` |
//! | OCI layout folders, also the store of converted images | `layout` |
//! | archives of `docker save`, and their members | `archive`, `members` |
//! | a folder of files, and its conversion to an archive | `folder`, `layer_archive` |
//! | registries | `registry` |
//! | temporary files in layout folders, of writers that were killed | `leftovers` |
//! | parsing of image locations | `location` |
//!
//! Invariant: bytes from a source are verified against the digests that lead to them. A user who
//! names an image by digest gets that image or an error.

mod archive;
mod document;
mod folder;
mod layer_archive;
mod layout;
mod leftovers;
mod location;
mod members;
mod registry;

use std::io::Read;

pub use archive::DockerArchive;
pub use document::{Config, ImagePlatform};
pub use folder::FolderOrigin;
pub(crate) use layer_archive::names;
pub use layer_archive::{PackOptions, Stamp};
pub(crate) use layout::PINNED;
pub use layout::{LayoutOrigin, OciLayout};
pub use leftovers::sweep;
pub use location::ImageLocation;
pub use registry::{
    Access, Authorities, Credentials, Reference, Registry, RegistryOrigin, trust_authorities,
};

use crate::Result;
use crate::manifest::Descriptor;

/// A description of an image before its conversion.
#[derive(Clone, Debug)]
pub struct Described {
    /// The bytes of the image's configuration; `None` if the source was not an image.
    pub config: Option<Vec<u8>>,
    /// The number of layers.
    pub layers: usize,
    /// The manifest of the image before the conversion, if it has one.
    pub original: Option<Descriptor>,
}

/// A source for a conversion. Its calls block.
pub trait ConversionSource {
    /// Describes the image.
    fn describe(&self) -> Result<Described>;

    /// Opens the bytes of a layer with any compression; the lowest layer is 0. The caller compares
    /// them with the configuration's digest of the uncompressed layer.
    fn layer(&self, index: usize) -> Result<Box<dyn Read + '_>>;
}
