//! Where images come from: an OCI layout folder, an archive of `docker save`, a folder, a registry.
//!
//! | part | file |
//! |---|---|
//! | manifests, indexes and configurations of OCI and Docker | `document` |
//! | OCI layout folders, also as the place where converted images are kept | `layout` |
//! | `docker save`, and members of such a file | `archive`, `members` |
//! | a folder of files, and the archive that it would be | `folder`, `pack` |
//! | a registry | `registry` |
//! | any of these as users write it | `place` |
//!
//! Invariant: what an origin gives is compared with the digests that lead to it; whoever names an
//! image by digest gets that image or an error.

mod archive;
mod document;
mod folder;
mod layout;
mod members;
mod pack;
mod place;
mod registry;

use std::io::Read;

pub use archive::DockerArchive;
pub use document::{Config, Platform};
pub use folder::FolderOrigin;
pub(crate) use layout::HELD;
pub use layout::{Layout, LayoutOrigin};
pub(crate) use pack::names;
pub use pack::{Shape, Stamp};
pub use place::Place;
pub use registry::{Credentials, Reference, Registry, RegistryOrigin, trust_authorities};

use crate::Result;
use crate::manifest::Descriptor;

/// An image before its conversion.
#[derive(Clone, Debug)]
pub struct Described {
    /// The bytes of its configuration; `None` for what never was an image.
    pub config: Option<Vec<u8>>,
    /// How many layers it has.
    pub layers: usize,
    /// Its manifest, if it has one.
    pub original: Option<Descriptor>,
}

/// Something that an image can be made from. Calls block.
pub trait Origin {
    /// What it is.
    fn describe(&self) -> Result<Described>;

    /// The bytes of a layer, compressed in any way, the lowest being 0. They are compared with the
    /// configuration's digest of the uncompressed layer by whoever reads them.
    fn layer(&self, index: usize) -> Result<Box<dyn Read + '_>>;
}
