//! Builds images from a base, packages and code, without a daemon. Each part is a layer, and only
//! changed parts are read and compressed.
//!
//! | part | file |
//! |---|---|
//! | the input of a build | `recipe`, `base` |
//! | detection of changed folders | `key` |
//! | the configuration of the result | `config` |
//! | Debian packages, and the cache of unpacked ones | `debian`, `cache` |
//! | what their scripts do, and what of it is left out | `scripts`, `commands` |
//! | shared libraries that packages need and an image lacks | `libraries` |
//! | progress and cancellation | `progress` |
//!
//! Invariant: equal contents produce equal bytes. Caches save work but do not change the result: a
//! folder that may have changed is read.

mod base;
mod cache;
mod commands;
mod config;
mod debian;
mod key;
mod libraries;
mod progress;
mod recipe;
mod scripts;

use std::path::Path;
use std::time::SystemTime;

pub use base::{Base, BlockBase};
pub use cache::{DebianCache, DebianPackages};
pub use config::BuildSettings;
pub use debian::{download, left_out, unpack};
pub use libraries::{Libraries, debian_package};
pub use progress::BuildProgress;
pub use recipe::{CODE, LayerFolder, PACKAGES, Recipe, Unpacked, function};
pub use scripts::LeftOut;

use crate::convert::Converter;
use crate::source::{ConversionSource, FolderOrigin, OciLayout};
use crate::{Converted, Error, Options, Result};
use key::FolderFingerprint;

/// Builds and stores an image. It has no name yet ([`OciLayout::tag`]).
pub fn build(recipe: &Recipe<'_>, layout: &OciLayout, options: Options) -> Result<Converted> {
    build_with_progress(recipe, layout, options, &progress::ignore)
}

/// Builds and stores an image; reports progress to a callback that can cancel the build.
pub fn build_with_progress(
    recipe: &Recipe<'_>,
    layout: &OciLayout,
    options: Options,
    progress: BuildProgress<'_>,
) -> Result<Converted> {
    let mut converter = Converter::new(layout, options)?;
    let base = recipe.base.map(|base| base.apply(&mut converter)).transpose()?.flatten();
    for part in &recipe.parts {
        add(&mut converter, part, progress)?;
    }
    let names = recipe.parts.iter().map(|part| part.name.as_str());
    let config = config::encode(base.as_deref(), &converter.diff_ids(), names, &recipe.settings)?;
    converter.finish(&config, None)
}

fn add(
    converter: &mut Converter<'_>,
    part: &LayerFolder,
    progress: BuildProgress<'_>,
) -> Result<()> {
    let key = || match &part.identity {
        Some(identity) => Ok(FolderFingerprint::named(identity, &part.shape)),
        None => FolderFingerprint::of(&part.folder, &part.shape)
            .map_err(Error::io("read", &part.folder)),
    };
    let origin = FolderOrigin::shaped(&part.folder, part.shape.clone())?;
    let mut before = key()?;
    if let Some(known) = converter.cache().source(&before.digest) {
        return converter.reuse(&known);
    }
    // The key of files that were just written is not settled; they could not be cached and would be
    // read again.
    let fresh = before.settles_in(SystemTime::now());
    if !fresh.is_zero() {
        std::thread::sleep(fresh);
        before = key()?;
    }
    let began = SystemTime::now();
    let stream = progress::reported(origin.layer(0)?, &part.name, progress);
    let diff_id = converter.convert_layer(stream, None)?;
    if before.is_settled(began) && key()? == before {
        converter.cache().store_source(&before.digest, &diff_id)?;
    }
    Ok(())
}

/// Returns the name of a layer in histories and messages.
fn layer_name(folder: &Path) -> String {
    folder.file_name().unwrap_or(folder.as_os_str()).to_string_lossy().into_owned()
}
