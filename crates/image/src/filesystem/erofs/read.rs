//! Decodes a metadata part to the tree from which it was written.
//!
//! Only the output of [`super::write`] is accepted; other forms of EROFS are refused. Invariant: no
//! input makes this panic, loop without end or take more memory than a small multiple of the input.

use std::collections::HashMap;

use super::folder::{self, NameType};
use super::format::{self, CHUNK_BYTES, INODE_BYTES, Inode, InodeLayout, UNIT};
use super::inode::{self, InodeType, wrong};
use super::xattr;
use crate::Result;
use crate::filesystem::tree::{Attributes, Extent, FileKind, FileNode, LinkTarget, NodeId, Tree};

/// Decodes the tree of a metadata part, and the size of each device in blocks of [`UNIT`] bytes.
pub fn read(image: &[u8]) -> Result<(Tree, Vec<u32>)> {
    let head =
        format::head(image).ok_or_else(|| wrong("its superblock has an unsupported form"))?;
    let root = Tree::ROOT;
    let mut reader = TreeReader {
        image,
        tree: Tree::of_layers(head.devices.len()),
        devices: head.devices,
        known: HashMap::from([(u64::from(head.root), root)]),
        folders: vec![(u64::from(head.root), root)],
        left: image.len(),
    };
    let (kind, attributes) = reader.inode(u64::from(head.root))?;
    if kind.0 != FileKind::Folder {
        return Err(wrong("its root is not a folder"));
    }
    reader.tree.node_mut(root).attributes = attributes;
    while let Some((nid, folder)) = reader.folders.pop() {
        reader.folder(nid, folder)?;
    }
    Ok((reader.tree, reader.devices))
}

struct TreeReader<'a> {
    image: &'a [u8],
    devices: Vec<u32>,
    tree: Tree,
    /// Inodes that have been read.
    known: HashMap<u64, NodeId>,
    /// Folders whose names have not been read yet.
    folders: Vec<(u64, NodeId)>,
    /// The most bytes that the remaining folders and links may have: valid ones do not share bytes.
    left: usize,
}

impl TreeReader<'_> {
    fn folder(&mut self, nid: u64, id: NodeId) -> Result<()> {
        let content = self.content(nid)?;
        for name in folder::decode(&content).ok_or_else(|| wrong("a folder is malformed"))? {
            if matches!(name.name, b"." | b"..") {
                continue;
            }
            let child = self.child(name.nid, name.kind)?;
            let added = self.tree.node_mut(id).children.insert(name.name.to_vec(), child);
            if added.is_some() {
                return Err(wrong("a folder has a name twice"));
            }
        }
        Ok(())
    }

    /// Returns the node of an inode. An inode that is not a folder may have several names.
    fn child(&mut self, nid: u64, kind: NameType) -> Result<NodeId> {
        if let Some(&id) = self.known.get(&nid) {
            if kind == NameType::Folder {
                return Err(wrong("a folder is in two folders"));
            }
            return Ok(id);
        }
        let ((found, layer), attributes) = self.inode(nid)?;
        let is_folder = found == FileKind::Folder;
        if is_folder != (kind == NameType::Folder) {
            return Err(wrong("a name and its file have different types"));
        }
        let id = self.tree.add(FileNode::new(found, attributes, layer));
        self.known.insert(nid, id);
        if is_folder {
            self.folders.push((nid, id));
        }
        Ok(id)
    }

    /// Reads an inode's kind, the layer of its content, and its attributes.
    fn inode(&mut self, nid: u64) -> Result<((FileKind, usize), Attributes)> {
        let inode = self.head_of(nid)?;
        let kind = match inode::shape(&inode)? {
            InodeType::Folder => (FileKind::Folder, 0),
            InodeType::Fifo => (FileKind::Fifo, 0),
            InodeType::Symlink => (FileKind::Symlink(LinkTarget(self.content(nid)?)), 0),
            InodeType::File => {
                let chunk = self.bytes(inode::chunk_offset(nid, &inode)?, CHUNK_BYTES)?;
                let (extent, layer) = inode::extent(&inode, chunk, &self.devices)?;
                (FileKind::File(extent), layer)
            }
            InodeType::Empty => (FileKind::File(Extent::default()), 0),
        };
        let xattrs = self.bytes(inode::xattr_offset(nid)?, inode.xattr_bytes)?;
        let attributes = Attributes {
            mode: inode.mode & 0o7777,
            uid: inode.uid,
            gid: inode.gid,
            mtime: inode.mtime,
            xattrs: xattr::decode(xattrs).ok_or_else(|| wrong("attributes are malformed"))?,
        };
        Ok((kind, attributes))
    }

    /// Reads content in the metadata part: the names of a folder or the target of a link.
    fn content(&mut self, nid: u64) -> Result<Vec<u8>> {
        let inode = self.head_of(nid)?;
        let size = usize::try_from(inode.size).unwrap_or(usize::MAX);
        let left = self.left.checked_sub(size);
        self.left = left.ok_or_else(|| wrong("its folders are larger than the whole part"))?;
        let tail = if inode.layout == InodeLayout::Inline { size % UNIT } else { 0 };
        let whole = self.bytes_of_blocks(inode.union, size - tail)?;
        let inline = self.bytes(inode::inline_offset(nid, &inode)?, tail)?;
        Ok([whole, inline].concat())
    }

    fn bytes_of_blocks(&self, block: u32, length: usize) -> Result<&[u8]> {
        if length == 0 { Ok(&[]) } else { self.bytes(block as usize * UNIT, length) }
    }

    fn head_of(&self, nid: u64) -> Result<Inode> {
        let bytes = self.bytes(inode::offset(nid)?, INODE_BYTES)?;
        Inode::decode(bytes).ok_or_else(|| wrong("an inode has an unsupported form"))
    }

    fn bytes(&self, at: usize, length: usize) -> Result<&[u8]> {
        let end = at.checked_add(length);
        let found = end.and_then(|end| self.image.get(at..end));
        found.ok_or_else(|| wrong("an offset is past its end"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::filesystem::erofs::{volume, write};
    use crate::filesystem::tree::{EntryPath, LayerChange, LayerEntry, Time};

    fn entry() -> impl Strategy<Value = LayerEntry> {
        let path = proptest::collection::vec("[a-c]{1,40}", 1..4).prop_map(|names| names.join("/"));
        let kind = prop_oneof![
            (0u64..3_000_000).prop_map(|size| FileKind::File(Extent { size, block: size % 7 })),
            Just(FileKind::Folder),
            Just(FileKind::Fifo),
            (1usize..4096).prop_map(|length| FileKind::Symlink(LinkTarget(vec![b't'; length]))),
        ];
        let attributes = (0u16..0o10000, any::<u32>(), any::<i64>(), ".{0,300}").prop_map(
            |(mode, uid, seconds, value)| {
                let mtime = Time { seconds, nanos: 7 };
                let xattrs = [(b"user.a".to_vec(), value.into_bytes())];
                let xattrs = xattrs.into_iter().filter(|(_, value)| value.len() % 3 > 0).collect();
                Attributes { mode, uid, gid: uid / 2, mtime, xattrs }
            },
        );
        (path, kind, attributes).prop_map(|(path, kind, attributes)| LayerEntry {
            path: EntryPath::parse(path.as_bytes()).unwrap(),
            change: LayerChange::Put(kind, attributes),
        })
    }

    fn same(one: (&Tree, NodeId), other: (&Tree, NodeId)) {
        let a = one.0.node(one.1);
        let b = other.0.node(other.1);
        let has_bytes = matches!(&a.kind, FileKind::File(extent) if extent.size > 0);
        let kind = |node: &FileNode| match &node.kind {
            // The position of an empty file is not stored.
            FileKind::File(extent) if extent.size == 0 => FileKind::File(Extent::default()),
            kind => kind.clone(),
        };
        assert_eq!((kind(a), &a.attributes), (kind(b), &b.attributes));
        assert!(!has_bytes || a.layer == b.layer);
        assert!(a.children.keys().eq(b.children.keys()));
        for (mine, theirs) in a.children.values().zip(b.children.values()) {
            same((one.0, *mine), (other.0, *theirs));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn reads_the_tree_that_was_written(
            layers in proptest::collection::vec(proptest::collection::vec(entry(), 0..40), 0..4),
        ) {
            let mut tree = Tree::default();
            let applied = layers.iter().try_for_each(|layer| tree.apply(layer));
            prop_assume!(applied.is_ok());
            let devices = vec![4 << 20; layers.len()];
            let image = write(&tree, &devices).unwrap();
            let (back, blocks) = read(&image).unwrap();
            prop_assert_eq!(blocks, vec![1024; layers.len()]);
            same((&tree, Tree::ROOT), (&back, Tree::ROOT));
            let one_by_one = volume::tests::walk(&image, layers.len(), usize::MAX).unwrap();
            prop_assert!(one_by_one == volume::tests::paths(&back));
            prop_assert!(write(&back, &devices).unwrap() == image);
        }

        #[test]
        fn never_panics_on_damaged_bytes(at in 0usize..16_384, value in any::<u8>()) {
            let path = |text: &str| EntryPath::parse(text.as_bytes()).unwrap();
            let put = |name: &str, kind| LayerEntry {
                path: path(name),
                change: LayerChange::Put(kind, Attributes::default()),
            };
            let mut tree = Tree::default();
            let names: Vec<_> = (0..300).map(|n| put(&format!("d/{n}"), FileKind::Fifo)).collect();
            tree.apply(&names).unwrap();
            tree.apply(&[put("l", FileKind::Symlink(LinkTarget(b"d".to_vec())))]).unwrap();
            let mut image = write(&tree, &[0, 0]).unwrap();
            let at = at % image.len();
            image[at] = value;
            let _ = (read(&image), volume::tests::walk(&image, 2, 1000));
            format::seal(&mut image);
            let _ = (read(&image), volume::tests::walk(&image, 2, 1000));
        }
    }
}
