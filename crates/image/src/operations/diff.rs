//! Compares two images: shared blobs, shared blocks, and files by path.
//!
//! Invariant: files are equal if type, permissions, owner, attributes and content are equal. Times
//! are ignored, because every build changes them. Contents at the same position of the same blob
//! are not read.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;

use crate::block::BlockDigest;
use crate::filesystem::erofs;
use crate::filesystem::tree::{Extent, FileKind, FileNode, NodeId, Tree};
use crate::read::{BlobReader, BlockSource, BlockStore};
use crate::{Error, Image, Result};

/// Raw bytes of two files that are compared in one step.
const CHUNK_BYTES: u64 = 1 << 20;

/// An image whose blocks can be read.
pub struct Readable {
    metadata: Arc<BlobReader>,
    layers: Vec<Arc<BlobReader>>,
}

impl Readable {
    /// Makes readers of the image's blobs, and fetches nothing yet.
    pub fn new(image: &Image, source: Arc<dyn BlockSource>) -> Result<Self> {
        let blocks = Arc::new(BlockStore::new(source, None));
        let reader = |blob| BlobReader::new(Arc::clone(&blocks), blob).map(Arc::new);
        let layers = image.layers.iter().cloned().map(reader).collect::<Result<_>>()?;
        Ok(Self { metadata: reader(image.metadata.clone())?, layers })
    }

    fn blobs(&self) -> impl Iterator<Item = &Arc<BlobReader>> {
        std::iter::once(&self.metadata).chain(&self.layers)
    }
}

/// A number of things and their stored bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StoredAmount {
    /// The number of things.
    pub count: u64,
    /// Stored bytes of these things.
    pub bytes: u64,
}

impl StoredAmount {
    fn of(bytes: impl Iterator<Item = u64>) -> Self {
        bytes.fold(Self::default(), |Self { count, bytes }, more| Self {
            count: count + 1,
            bytes: bytes + more,
        })
    }
}

/// Amounts of something that are in both images, or in one only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Shares {
    /// Parts that are in both images.
    pub both: StoredAmount,
    /// Parts that are in the first image only.
    pub first: StoredAmount,
    /// Parts that are in the second image only.
    pub second: StoredAmount,
}

impl Shares {
    fn of<K: std::hash::Hash + Eq>(first: &HashMap<K, u64>, second: &HashMap<K, u64>) -> Self {
        let of = |some: &HashMap<K, u64>, other: &HashMap<K, u64>, shared: bool| {
            let found = some.iter().filter(|(key, _)| other.contains_key(key) == shared);
            StoredAmount::of(found.map(|(_, bytes)| *bytes))
        };
        Self {
            both: of(first, second, true),
            first: of(first, second, false),
            second: of(second, first, false),
        }
    }
}

/// The kind of a difference between two images in an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum EntryChange {
    /// The entry exists in the second image only.
    Added,
    /// The entry exists in the first image only.
    Removed,
    /// Type, permissions, owner or attributes differ.
    Attributes,
    /// The content, or the target of a link, differs.
    Content,
}

/// The result of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Comparison of the blobs.
    pub blobs: Shares,
    /// Comparison of the blocks, each counted once; blocks of zeros are not stored and not counted.
    pub blocks: Shares,
    /// The number of equal entries, including folders.
    pub same: u64,
    /// Entries that differ, in path order; entries below a folder of one image only are omitted.
    pub changes: Vec<(String, EntryChange)>,
}

/// Compares two images.
pub async fn diff(first: &Readable, second: &Readable) -> Result<Difference> {
    let blobs = |image: &Readable| {
        let each = image.blobs().map(|blob| blob.summary());
        each.map(|blob| (blob.digest.clone(), blob.size)).collect::<HashMap<_, _>>()
    };
    let trees = [tree(first).await?, tree(second).await?];
    let mut walk = Walk { images: [first, second], trees, found: Difference::default() };
    walk.found.blobs = Shares::of(&blobs(first), &blobs(second));
    walk.found.blocks = Shares::of(&blocks(first).await?, &blocks(second).await?);
    walk.all().await?;
    Ok(walk.found)
}

async fn blocks(image: &Readable) -> Result<HashMap<BlockDigest, u64>> {
    let mut found = HashMap::new();
    for blob in image.blobs() {
        let stored = blob.table().await?.entries().iter().filter(|entry| entry.stored > 0);
        found.extend(stored.map(|entry| (entry.digest, u64::from(entry.stored))));
    }
    Ok(found)
}

/// Reads the tree of an image. The metadata part is small, so it is read as a whole.
async fn tree(image: &Readable) -> Result<Tree> {
    let bytes = image.metadata.read(0..image.metadata.raw_size()).await?;
    Ok(erofs::read(&bytes)?.0)
}

/// A path with its node in each of two trees.
type Both = (Vec<u8>, NodeId, NodeId);

struct Walk<'a> {
    images: [&'a Readable; 2],
    trees: [Tree; 2],
    found: Difference,
}

impl Walk<'_> {
    async fn all(&mut self) -> Result<()> {
        let mut waiting = vec![(Vec::new(), Tree::ROOT, Tree::ROOT)];
        while let Some((path, a, b)) = waiting.pop() {
            let change = self.change(a, b).await?;
            match change {
                Some(change) => self.report(&path, change),
                None => self.found.same += 1,
            }
            let both = self.below(&path, a, b);
            waiting.extend(both.into_iter().rev());
        }
        Ok(())
    }

    /// Entries that two folders have in common; entries of one folder only are reported.
    fn below(&mut self, path: &[u8], a: NodeId, b: NodeId) -> Vec<Both> {
        let [first, second] = &self.trees;
        let ours = &first.node(a).children;
        let theirs = &second.node(b).children;
        let below = |name: &[u8]| [path, b"/", name].concat();
        let mut both = Vec::new();
        let mut alone = Vec::new();
        for (name, id) in ours {
            match theirs.get(name) {
                Some(other) => both.push((below(name), *id, *other)),
                None => alone.push((below(name), EntryChange::Removed)),
            }
        }
        let added = theirs.keys().filter(|name| !ours.contains_key(*name));
        alone.extend(added.map(|name| (below(name), EntryChange::Added)));
        alone.iter().for_each(|(path, change)| self.report(path, *change));
        both
    }

    async fn change(&self, a: NodeId, b: NodeId) -> Result<Option<EntryChange>> {
        let one = self.trees[0].node(a);
        let other = self.trees[1].node(b);
        let ours = &one.attributes;
        let theirs = &other.attributes;
        let same_kind = std::mem::discriminant(&one.kind) == std::mem::discriminant(&other.kind);
        let same = (ours.mode, ours.uid, ours.gid) == (theirs.mode, theirs.uid, theirs.gid)
            && ours.xattrs == theirs.xattrs;
        Ok(match (&one.kind, &other.kind) {
            _ if !same_kind || !same => Some(EntryChange::Attributes),
            (FileKind::File(_), FileKind::File(_)) => {
                (!self.same_content(one, other).await?).then_some(EntryChange::Content)
            }
            (FileKind::Symlink(one), FileKind::Symlink(other)) => {
                (one.0 != other.0).then_some(EntryChange::Content)
            }
            _ => None,
        })
    }

    async fn same_content(&self, one: &FileNode, other: &FileNode) -> Result<bool> {
        let (FileKind::File(ours), FileKind::File(theirs)) = (&one.kind, &other.kind) else {
            return Ok(false);
        };
        if ours.size != theirs.size || ours.size == 0 {
            return Ok(ours.size == theirs.size);
        }
        let layer = |image: usize, node: &FileNode| self.images[image].layers.get(node.layer);
        let (Some(first), Some(second)) = (layer(0, one), layer(1, other)) else {
            return Err(Error::refused("the image", "a file is in no layer"));
        };
        if first.summary().root == second.summary().root && ours.block == theirs.block {
            return Ok(true);
        }
        let mut at = 0;
        while at < ours.size {
            let end = ours.size.min(at + CHUNK_BYTES);
            let range = |extent: &Extent| {
                let start = extent.block * erofs::UNIT as u64;
                start + at..start + end
            };
            if first.read(range(ours)).await? != second.read(range(theirs)).await? {
                return Ok(false);
            }
            at = end;
        }
        Ok(true)
    }

    fn report(&mut self, path: &[u8], change: EntryChange) {
        let path = if path.is_empty() { b"/" } else { path };
        self.found.changes.push((String::from_utf8_lossy(path).into_owned(), change));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;

    use super::*;
    use crate::read::LocalSource;
    use crate::source::{FolderOrigin, OciLayout};
    use crate::{Options, convert};

    fn readable(layout: &OciLayout, folder: &Path) -> Readable {
        let origin = FolderOrigin::open(folder).unwrap();
        let image = convert(&origin, layout, Options::default()).unwrap().image;
        Readable::new(&image, Arc::new(LocalSource::new(layout.folder()))).unwrap()
    }

    #[tokio::test]
    async fn lists_changed_files_and_counts_equal_ones() {
        let store = tempfile::tempdir().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let layout = OciLayout::create(store.path()).unwrap();
        let root = folder.path();
        fs::create_dir_all(root.join("deep/er")).unwrap();
        for name in ["same", "gone", "deep/changed", "deep/mode", "deep/er/same"] {
            fs::write(root.join(name), name).unwrap();
        }
        symlink("same", root.join("link")).unwrap();
        let first = readable(&layout, root);
        let equal = diff(&first, &first).await.unwrap();
        assert_eq!((equal.same, equal.changes), (9, Vec::new()));
        assert_eq!(equal.blobs.both.count, 2);

        fs::remove_file(root.join("gone")).unwrap();
        fs::write(root.join("deep/changed"), "deep/chandeg").unwrap();
        fs::set_permissions(root.join("deep/mode"), fs::Permissions::from_mode(0o600)).unwrap();
        fs::remove_file(root.join("link")).unwrap();
        symlink("gone", root.join("link")).unwrap();
        fs::create_dir(root.join("new")).unwrap();
        fs::write(root.join("new/below"), "").unwrap();
        let found = diff(&first, &readable(&layout, root)).await.unwrap();
        let mut changes: Vec<(&str, EntryChange)> =
            found.changes.iter().map(|(path, change)| (path.as_str(), *change)).collect();
        changes.sort_by_key(|(path, _)| *path);
        assert_eq!(
            changes,
            [
                ("/deep/changed", EntryChange::Content),
                ("/deep/mode", EntryChange::Attributes),
                ("/gone", EntryChange::Removed),
                ("/link", EntryChange::Content),
                ("/new", EntryChange::Added),
            ]
        );
        assert_eq!((found.same, found.blobs.both.count, found.blobs.first.count), (5, 0, 2));
    }
}
