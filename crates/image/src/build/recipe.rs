//! The input of a build.

use std::path::{Path, PathBuf};

use super::{Base, BuildSettings, layer_name};
use crate::Result;
use crate::filesystem::tree::EntryPath;
use crate::source::{PackOptions, Stamp};

/// A base and the layers on top of it.
#[derive(Default)]
pub struct Recipe<'a> {
    /// The base, if there is one.
    pub base: Option<Base<'a>>,
    /// The parts of the image, one layer each, the lowest first. The part that changes most often
    /// should be last.
    pub parts: Vec<LayerFolder>,
    /// Changes to the base's configuration.
    pub settings: BuildSettings,
}

/// A folder that becomes a layer.
#[derive(Clone, Debug)]
pub struct LayerFolder {
    /// The name in the image's history.
    pub name: String,
    /// The folder of its files on this machine.
    pub folder: PathBuf,
    /// Position and attributes of the files in the image.
    pub shape: PackOptions,
    /// The identity of its content, if known: then the files are not read again when only their
    /// inodes have changed, for example by hard links.
    pub identity: Option<String>,
}

/// A folder whose content never changes.
#[derive(Clone, Debug)]
pub struct Unpacked {
    /// The path of the folder.
    pub folder: PathBuf,
    /// The identity of the contents: folders with equal identities have equal contents.
    pub identity: String,
}

impl LayerFolder {
    /// Makes a part of unpacked Debian packages, which is added at the root; see [`super::unpack`].
    /// Links to folders of the base are kept, as when a package is installed.
    pub fn packages(folder: &Path) -> Self {
        let shape =
            PackOptions { at: EntryPath::default(), stamp: Stamp::Root, implied_folders: true };
        Self { name: layer_name(folder), folder: folder.to_owned(), shape, identity: None }
    }

    /// Makes a part of content such as code, a model or an unpacked wheel, which is added at `at`,
    /// a path in the image.
    pub fn content(folder: &Path, at: &str) -> Result<Self> {
        let at = EntryPath::parse(at.as_bytes())?;
        let shape = PackOptions { at, stamp: Stamp::Fixed, implied_folders: true };
        Ok(Self { name: layer_name(folder), folder: folder.to_owned(), shape, identity: None })
    }

    /// Makes a part like [`Self::content`], of a folder that never changes.
    pub fn unpacked(unpacked: &Unpacked, at: &str) -> Result<Self> {
        let identity = Some(unpacked.identity.clone());
        Ok(Self { identity, ..Self::content(&unpacked.folder, at)? })
    }
}

/// The folder of a code package that contains the function's packages.
pub const PACKAGES: &str = "packages";
/// The folder of a code package that contains the code; it is the last layer.
pub const CODE: &str = "code";

/// Makes the recipe of a function's code and its packages as an image without a base (FaaSNet,
/// sections 3.5 and 4.5). Each wheel is a layer under [`PACKAGES`] that all functions with this
/// wheel share; the code, under [`CODE`], is the last layer.
pub fn function<'a>(code: &Unpacked, wheels: &[Unpacked]) -> Result<Recipe<'a>> {
    let wheel = |wheel: &Unpacked| LayerFolder::unpacked(wheel, PACKAGES);
    let mut parts = wheels.iter().map(wheel).collect::<Result<Vec<_>>>()?;
    parts.push(LayerFolder::unpacked(code, CODE)?);
    Ok(Recipe { parts, ..Recipe::default() })
}
