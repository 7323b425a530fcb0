//! Determines the positions of inodes.
//!
//! Inodes of one folder are adjacent, because they are read together. The data that follows an
//! inode (chunk index, link target, end of a folder) shares its block: an inode that would be
//! separated from this data moves to the next block, and data that does not fit into the rest of a
//! block gets blocks of its own.

use std::collections::HashMap;

use super::format::{CHUNK_BYTES, INODE_BYTES, InodeLayout, NID_BYTES, UNIT};
use super::{folder, xattr};
use crate::filesystem::tree::{FileKind, FileNode, NodeId, Tree};

/// An inode and its position.
pub(super) struct Planned {
    pub node: NodeId,
    /// The parent of a folder; the root is its own parent.
    pub parent: NodeId,
    pub links: u32,
    pub offset: u64,
    pub layout: InodeLayout,
    pub xattrs: Vec<u8>,
    /// The bytes of the content in the metadata part; 0 for files, whose content is in a layer.
    pub content: u64,
    /// The address of the content's whole blocks.
    pub block: u64,
}

impl Planned {
    /// Returns the inode number that folder entries contain.
    pub fn nid(&self) -> u64 {
        self.offset / NID_BYTES
    }

    /// Returns the offset of the part of the content that follows the inode.
    pub fn inline_offset(&self) -> u64 {
        self.offset + (INODE_BYTES + self.xattrs.len()) as u64
    }

    /// Returns the offset of the chunk index.
    pub fn chunk_offset(&self) -> u64 {
        self.inline_offset().next_multiple_of(CHUNK_BYTES as u64)
    }
}

/// The plan of an image: all inodes in the order of their positions.
pub(super) struct InodePlan {
    pub inodes: Vec<Planned>,
    pub index: HashMap<NodeId, usize>,
    /// The total size in bytes, which is a number of whole blocks.
    pub bytes: u64,
}

impl InodePlan {
    /// Plans the positions of a tree's inodes. `start` is the lowest offset of the first inode, the
    /// root.
    pub fn new(tree: &Tree, start: u64) -> Self {
        let (mut inodes, index) = order(tree);
        let mut cursor = start;
        for planned in &mut inodes {
            cursor = place(planned, tree.node(planned.node), cursor);
        }
        let mut block = cursor.div_ceil(UNIT as u64);
        for planned in &mut inodes {
            planned.block = block;
            block += whole_blocks(planned);
        }
        Self { inodes, index, bytes: block * UNIT as u64 }
    }

    /// Returns the position of a node, which must be in the tree.
    pub fn of(&self, node: NodeId) -> &Planned {
        &self.inodes[self.index[&node]]
    }
}

fn whole_blocks(planned: &Planned) -> u64 {
    match planned.layout {
        InodeLayout::Plain => planned.content.div_ceil(UNIT as u64),
        InodeLayout::Inline => planned.content / UNIT as u64,
        InodeLayout::Chunks => 0,
    }
}

/// Lists every node once, folder by folder, with its link count.
fn order(tree: &Tree) -> (Vec<Planned>, HashMap<NodeId, usize>) {
    let mut inodes = vec![planned(tree, Tree::ROOT, Tree::ROOT)];
    let mut index = HashMap::from([(Tree::ROOT, 0)]);
    let mut folders = vec![Tree::ROOT];
    while let Some(folder) = folders.pop() {
        let mut below = Vec::new();
        for &child in tree.node(folder).children.values() {
            if let Some(&at) = index.get(&child) {
                let seen: &mut Planned = &mut inodes[at];
                seen.links += 1;
                continue;
            }
            index.insert(child, inodes.len());
            inodes.push(planned(tree, child, folder));
            if tree.node(child).kind == FileKind::Folder {
                below.push(child);
                inodes[index[&folder]].links += 1;
            }
        }
        folders.extend(below.into_iter().rev());
    }
    (inodes, index)
}

fn planned(tree: &Tree, node: NodeId, parent: NodeId) -> Planned {
    let is_folder = tree.node(node).kind == FileKind::Folder;
    Planned {
        node,
        parent,
        links: if is_folder { 2 } else { 1 },
        offset: 0,
        layout: InodeLayout::Plain,
        xattrs: xattr::encode(&tree.node(node).attributes.xattrs),
        content: 0,
        block: 0,
    }
}

/// Sets the position of an inode; returns the lowest offset of the next one.
fn place(planned: &mut Planned, node: &FileNode, cursor: u64) -> u64 {
    let head = (INODE_BYTES + planned.xattrs.len()) as u64;
    let cursor = cursor.next_multiple_of(NID_BYTES);
    planned.content = match &node.kind {
        FileKind::Folder => folder::size(folder_lengths(node)),
        FileKind::Symlink(target) => target.0.len() as u64,
        FileKind::File(_) | FileKind::Fifo => 0,
    };
    if let FileKind::File(extent) = &node.kind {
        planned.offset = cursor;
        if extent.size == 0 {
            return cursor + head;
        }
        planned.layout = InodeLayout::Chunks;
        return planned.chunk_offset() + CHUNK_BYTES as u64;
    }
    let tail = planned.content % UNIT as u64;
    planned.offset = cursor;
    if tail == 0 {
        return cursor + head;
    }
    for candidate in [cursor, cursor.next_multiple_of(UNIT as u64)] {
        let first = candidate + head;
        let last = candidate + head + tail - 1;
        if first / UNIT as u64 == last / UNIT as u64 {
            planned.offset = candidate;
            planned.layout = InodeLayout::Inline;
            return last + 1;
        }
    }
    cursor + head
}

/// Returns the lengths of all names of a folder, in order, including `.` and `..`.
fn folder_lengths(node: &FileNode) -> impl Iterator<Item = usize> {
    let mut lengths: Vec<(&[u8], usize)> =
        node.children.keys().map(|name| (name.as_slice(), name.len())).collect();
    lengths.extend([(&b"."[..], 1), (&b".."[..], 2)]);
    lengths.sort_unstable();
    lengths.into_iter().map(|(_, length)| length)
}
