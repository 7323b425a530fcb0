//! Images from a base, packages and code, without a daemon: each is a layer, and only those that
//! changed are read and compressed.
//!
//! | part | file |
//! |---|---|
//! | what an image is made of | `recipe`, `base` |
//! | whether a folder is as it was when it was read last | `key` |
//! | the configuration of the result | `config` |
//! | packages of Debian | `debian`, and as they were unpacked before `shelf` |
//! | which libraries packages need, and whether an image has them | `libraries` |
//! | how far it is, and whether to go on | `watch` |
//!
//! Invariant: equal contents give equal bytes. What is remembered saves work and decides nothing: a
//! folder that may have changed is read.

mod base;
mod config;
mod debian;
mod key;
mod libraries;
mod recipe;
mod shelf;
mod watch;

use std::path::Path;
use std::time::SystemTime;

pub use base::{Base, BlockBase};
pub use config::Settings;
pub use debian::{download, unpack};
pub use libraries::{Libraries, debian_package};
pub use recipe::{CODE, PACKAGES, Part, Recipe, Unpacked, function};
pub use shelf::{DebianPackages, DebianShelf};
pub use watch::Watch;

use crate::convert::Converter;
use crate::source::{FolderOrigin, Layout, Origin};
use crate::{Converted, Error, Options, Result};
use key::Key;

/// Makes and keeps an image; it has no name yet ([`Layout::tag`]).
pub fn build(recipe: &Recipe<'_>, layout: &Layout, options: Options) -> Result<Converted> {
    build_watched(recipe, layout, options, &watch::nobody)
}

/// The same, watched.
pub fn build_watched(
    recipe: &Recipe<'_>,
    layout: &Layout,
    options: Options,
    watch: Watch<'_>,
) -> Result<Converted> {
    let mut converter = Converter::new(layout, options)?;
    let base = recipe.base.map(|base| base.begin(&mut converter)).transpose()?.flatten();
    for part in &recipe.parts {
        add(&mut converter, part, watch)?;
    }
    let names = recipe.parts.iter().map(|part| part.name.as_str());
    let config = config::encode(base.as_deref(), &converter.diff_ids(), names, &recipe.settings)?;
    converter.finish(&config, None)
}

fn add(converter: &mut Converter<'_>, part: &Part, watch: Watch<'_>) -> Result<()> {
    let key = || match &part.identity {
        Some(identity) => Ok(Key::named(identity, &part.shape)),
        None => Key::of(&part.folder, &part.shape).map_err(Error::io("read", &part.folder)),
    };
    let origin = FolderOrigin::shaped(&part.folder, part.shape.clone())?;
    let mut before = key()?;
    if let Some(known) = converter.memo().source(&before.digest) {
        return converter.reuse(&known);
    }
    // What was unpacked or written just now could not be remembered, and would be read again.
    let fresh = before.settles_in(SystemTime::now());
    if !fresh.is_zero() {
        std::thread::sleep(fresh);
        before = key()?;
    }
    let began = SystemTime::now();
    let diff_id = converter.press(watch::watched(origin.layer(0)?, &part.name, watch), None)?;
    if before.is_settled(began) && key()? == before {
        converter.memo().remember_source(&before.digest, &diff_id)?;
    }
    Ok(())
}

/// A name of a layer in histories and messages.
fn shown(folder: &Path) -> String {
    folder.file_name().unwrap_or(folder.as_os_str()).to_string_lossy().into_owned()
}
