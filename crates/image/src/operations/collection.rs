//! Garbage collection of a layout folder: removes blobs, cached layers and source records that
//! nothing references, and temporary files of converters that were killed.
//!
//! Invariant: a blob that an index entry or a mounted image without a name references is kept.
//! Nothing is removed while an image is converted or fetched, because its blobs are written before
//! its name.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use crate::block::{BlockSize, OciDigest};
use crate::convert::{LayerCache, read_entry};
use crate::filesystem::layer::Layer;
use crate::lock::{self, LockMode};
use crate::manifest::{Descriptor, OCI_MANIFEST};
use crate::removal::{Collected, files, remove};
use crate::source::{OciLayout, PINNED};
use crate::{Error, Image, Result};

/// Collects garbage; with `dry`, only counts it. Fails if an image is being converted or fetched,
/// or if an image cannot be read, because its references are then unknown.
pub fn collect(layout: &OciLayout, dry: bool) -> Result<Collected> {
    let busy = || Error::refused("collecting", "an image is being converted or fetched now");
    // This lock first, then that of names, in the order of those who convert and tag.
    let _alone = layout.collect_alone()?.ok_or_else(busy)?;
    // Tagging and untagging also write a temporary file, whether or not an image is being
    // converted.
    let _names = layout.change_names()?;
    let named = referenced(layout)?;
    let mut collected = Collected::default();
    for (name, path, bytes) in files(&layout.folder().join("blobs/sha256"))? {
        if !named.contains(&name) {
            collected.blobs += 1;
            collected.bytes += bytes;
            remove(&path, dry)?;
        }
    }
    for (_, path, bytes) in files(&layout.private("tmp"))? {
        collected.bytes += bytes;
        remove(&path, dry)?;
    }
    for (_, path, _) in files(&layout.private("layers"))? {
        let gone = |layer: &Layer| !named.contains(layer.blob.digest.hex());
        if read_entry(&path).is_none_or(|layer| gone(&layer)) {
            remove(&path, dry)?;
        }
    }
    for (_, path, _) in files(&layout.private("sources"))? {
        if !is_known(layout, &path) {
            remove(&path, dry)?;
        }
    }
    Ok(collected)
}

/// Returns whether the layer that a folder produced at its last build still has a cache entry.
fn is_known(layout: &OciLayout, source: &Path) -> bool {
    let text = fs::read_to_string(source).unwrap_or_default();
    let Ok(diff_id) = text.parse::<OciDigest>() else { return false };
    let sizes = BlockSize::MIN.log2()..=BlockSize::MAX.log2();
    sizes.into_iter().any(|log2| LayerCache::path_in(layout, &diff_id, log2).is_file())
}

/// Returns the hexadecimal digests of the blobs that are referenced.
fn referenced(layout: &OciLayout) -> Result<HashSet<String>> {
    let mut named = HashSet::new();
    for (_, manifest) in layout.list()? {
        reference(layout, &manifest, &mut named)?;
    }
    for (name, path, _) in files(&layout.private(PINNED))? {
        // A pin whose holder has died leaves its file, but not the lock.
        let free = lock::attempt(&path, LockMode::Exclusive)?;
        let digest = format!("sha256:{name}").parse::<OciDigest>();
        match digest {
            Ok(digest) if free.is_none() => {
                let size = layout.blob_path(&digest).metadata().map_or(0, |found| found.len());
                reference(layout, &Descriptor::new(OCI_MANIFEST, digest, size), &mut named)?;
            }
            _ => remove(&path, false)?,
        }
    }
    Ok(named)
}

fn reference(layout: &OciLayout, manifest: &Descriptor, named: &mut HashSet<String>) -> Result<()> {
    let image = Image::decode(&layout.read_blob(manifest)?)?;
    let blobs = image.blobs().map(|blob| &blob.digest);
    let all = blobs.chain([&manifest.digest, &image.config.digest]);
    named.extend(all.map(|digest| digest.hex().to_owned()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::FolderOrigin;
    use crate::{Options, convert};

    fn converted(layout: &OciLayout, text: &str) -> Descriptor {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), text).unwrap();
        let origin = FolderOrigin::open(folder.path()).unwrap();
        convert(&origin, layout, Options::default()).unwrap().manifest
    }

    fn blobs(layout: &OciLayout) -> usize {
        files(&layout.folder().join("blobs/sha256")).unwrap().len()
    }

    #[test]
    fn keeps_named_and_mounted_images_and_removes_the_rest() {
        let folder = tempfile::tempdir().unwrap();
        let layout = OciLayout::create(folder.path()).unwrap();
        let one = converted(&layout, "one");
        let two = converted(&layout, "two");
        layout.tag("one", &one).unwrap();
        let held = layout.pin(&two.digest).unwrap();
        fs::write(layout.private("tmp/left"), "half").unwrap();
        let both = blobs(&layout);
        assert_eq!(collect(&layout, true).unwrap().blobs, 0);
        assert_eq!(collect(&layout, false).unwrap(), Collected { blobs: 0, bytes: 4 });
        assert_eq!(blobs(&layout), both);
        drop(held);
        // Manifest, configuration, metadata and layer.
        assert_eq!(collect(&layout, true).unwrap().blobs, 4);
        assert_eq!(blobs(&layout), both);
        assert_eq!(collect(&layout, false).unwrap().blobs, 4);
        assert_eq!(blobs(&layout), both - 4);
        assert_eq!(files(&layout.private("layers")).unwrap().len(), 1);
        layout.untag("one").unwrap();
        layout.untag("one").unwrap_err();
        assert_eq!(collect(&layout, false).unwrap().blobs, 4);
        assert_eq!(blobs(&layout), 0);
        // A layer whose blob was removed is converted again.
        layout.tag("one", &converted(&layout, "one")).unwrap();
        assert_eq!(blobs(&layout), 4);
    }

    #[test]
    fn keeps_a_converted_image_until_it_can_be_named() {
        let folder = tempfile::tempdir().unwrap();
        let origin = tempfile::tempdir().unwrap();
        fs::write(origin.path().join("file"), "text").unwrap();
        let layout = OciLayout::create(folder.path()).unwrap();
        let origin = FolderOrigin::open(origin.path()).unwrap();
        let converted = convert(&origin, &layout, Options::default()).unwrap();
        assert!(matches!(collect(&layout, false), Err(Error::Refused { .. })));
        layout.tag("one", &converted.manifest).unwrap();
        let manifest = converted.manifest.clone();
        drop(converted);
        assert_eq!(collect(&layout, false).unwrap().blobs, 0);
        layout.untag("one").unwrap();
        let held = layout.pin(&manifest.digest).unwrap();
        assert_eq!(collect(&layout, false).unwrap().blobs, 0);
        drop(held);
        assert_eq!(collect(&layout, false).unwrap().blobs, 4);
        let gone = layout.pin(&manifest.digest).unwrap_err();
        assert!(matches!(gone, Error::Missing { .. }), "{gone}");
    }

    #[test]
    fn removes_source_records_with_their_layers() {
        let folder = tempfile::tempdir().unwrap();
        let code = tempfile::tempdir().unwrap();
        fs::write(code.path().join("main.py"), "print(1)").unwrap();
        std::thread::sleep(std::time::Duration::from_millis(50));
        let layout = OciLayout::create(folder.path()).unwrap();
        let parts = vec![crate::build::LayerFolder::content(code.path(), "app").unwrap()];
        let recipe = crate::build::Recipe { parts, ..Default::default() };
        let built = crate::build::build(&recipe, &layout, Options::default()).unwrap();
        layout.tag("one", &built.manifest).unwrap();
        drop(built);
        let known = || files(&layout.private("sources")).unwrap().len();
        collect(&layout, false).unwrap();
        assert_eq!(known(), 1);
        layout.untag("one").unwrap();
        collect(&layout, false).unwrap();
        assert_eq!(known(), 0);
    }

    #[test]
    fn concurrent_converters_and_collectors_keep_named_images_complete() {
        let folder = tempfile::tempdir().unwrap();
        let layout = OciLayout::create(folder.path()).unwrap();
        let origins = ["one", "two"].map(|name| {
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join("file"), name.repeat(5000)).unwrap();
            (name, folder)
        });
        std::thread::scope(|scope| {
            let converter = |(name, origin): &'_ (&'static str, tempfile::TempDir)| {
                let layout = &layout;
                let name = *name;
                let path = origin.path().to_owned();
                scope.spawn(move || {
                    for _ in 0..25 {
                        let origin = FolderOrigin::open(&path).unwrap();
                        let converted = convert(&origin, layout, Options::default()).unwrap();
                        layout.tag(name, &converted.manifest).unwrap();
                        drop(converted);
                        let named = layout.find(Some(name)).unwrap();
                        let image = Image::decode(&layout.read_blob(&named).unwrap()).unwrap();
                        assert!(image.blobs().all(|blob| layout.blob_path(&blob.digest).is_file()));
                        layout.untag(name).unwrap();
                    }
                })
            };
            let converters = origins.each_ref().map(converter);
            while !converters.iter().all(|converter| converter.is_finished()) {
                match collect(&layout, false) {
                    Ok(_) | Err(Error::Refused { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        });
        collect(&layout, false).unwrap();
        assert_eq!(blobs(&layout), 0);
    }

    #[test]
    fn refuses_to_collect_while_an_image_is_converted() {
        let folder = tempfile::tempdir().unwrap();
        let layout = OciLayout::create(folder.path()).unwrap();
        let _converter = layout.keep_collectors_away().unwrap();
        assert!(matches!(collect(&layout, false), Err(Error::Refused { .. })));
    }
}
