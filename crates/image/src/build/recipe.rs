//! What an image is made of.

use std::path::{Path, PathBuf};

use super::{Base, Settings, shown};
use crate::Result;
use crate::source::{Shape, Stamp};
use crate::tree::EntryPath;

/// A base and layers on it.
#[derive(Default)]
pub struct Recipe<'a> {
    /// What is below, if anything is.
    pub base: Option<Base<'a>>,
    /// One layer each, the lowest first: what changes most is last.
    pub parts: Vec<Part>,
    /// What becomes of the base's configuration.
    pub settings: Settings,
}

/// A folder that becomes a layer.
#[derive(Clone, Debug)]
pub struct Part {
    /// What histories call it.
    pub name: String,
    /// Where its files are now.
    pub folder: PathBuf,
    /// Where they are in the image, and how.
    pub shape: Shape,
    /// What names its content, if something does: then files that were linked elsewhere meanwhile
    /// are not read again.
    pub identity: Option<String>,
}

/// A folder whose content never changes, by what names it.
#[derive(Clone, Debug)]
pub struct Unpacked {
    /// Where it is.
    pub folder: PathBuf,
    /// Equal identities are equal contents.
    pub identity: String,
}

impl Part {
    /// Unpacked packages of Debian, over the root; see [`super::unpack`]. Links of the base to
    /// folders stay, as they do when a package is installed.
    pub fn packages(folder: &Path) -> Self {
        let shape = Shape { at: EntryPath::default(), stamp: Stamp::Root, implied_folders: true };
        Self { name: shown(folder), folder: folder.to_owned(), shape, identity: None }
    }

    /// Code, a model, an unpacked wheel: content that stands at `at`, a path in the image.
    pub fn content(folder: &Path, at: &str) -> Result<Self> {
        let at = EntryPath::parse(at.as_bytes())?;
        let shape = Shape { at, stamp: Stamp::Fixed, implied_folders: true };
        Ok(Self { name: shown(folder), folder: folder.to_owned(), shape, identity: None })
    }

    /// The same of a folder that never changes.
    pub fn unpacked(unpacked: &Unpacked, at: &str) -> Result<Self> {
        let identity = Some(unpacked.identity.clone());
        Ok(Self { identity, ..Self::content(&unpacked.folder, at)? })
    }
}

/// Where a code package has the function's packages, and where its code.
pub const PACKAGES: &str = "packages";
/// The layer of the code is the last one.
pub const CODE: &str = "code";

/// A function's code and its packages as an image without a base (FaaSNet 3.5, 4.5): each wheel is
/// a layer that all functions with that wheel share, under [`PACKAGES`]; the code, under [`CODE`],
/// is the last.
pub fn function<'a>(code: &Unpacked, wheels: &[Unpacked]) -> Result<Recipe<'a>> {
    let wheel = |wheel: &Unpacked| Part::unpacked(wheel, PACKAGES);
    let mut parts = wheels.iter().map(wheel).collect::<Result<Vec<_>>>()?;
    parts.push(Part::unpacked(code, CODE)?);
    Ok(Recipe { parts, ..Recipe::default() })
}
