//! Where each inode comes to lie.
//!
//! Inodes of one folder lie together, because they are read together. What stands behind an inode
//! (chunk index, link, end of a folder) shares its block: an inode that would be torn from it goes
//! to the next block, and what is longer than the room of a block goes to blocks of its own.

use std::collections::HashMap;

use super::format::{CHUNK_BYTES, INODE_BYTES, Layout, NID_BYTES, UNIT};
use super::{folder, xattr};
use crate::tree::{Kind, Node, NodeId, Tree};

/// One inode and where it is.
pub(super) struct Planned {
    pub node: NodeId,
    /// The folder that holds a folder; the root holds itself.
    pub parent: NodeId,
    pub links: u32,
    pub offset: u64,
    pub layout: Layout,
    pub xattrs: Vec<u8>,
    /// Bytes of the content here, which for files are elsewhere.
    pub content: u64,
    /// Address of the whole blocks of the content.
    pub block: u64,
}

impl Planned {
    /// The number by which folders name it.
    pub fn nid(&self) -> u64 {
        self.offset / NID_BYTES
    }

    /// Where the part of the content behind the inode begins.
    pub fn inline_offset(&self) -> u64 {
        self.offset + (INODE_BYTES + self.xattrs.len()) as u64
    }

    /// Where the chunk index begins.
    pub fn chunk_offset(&self) -> u64 {
        self.inline_offset().next_multiple_of(CHUNK_BYTES as u64)
    }
}

/// All inodes in the order of their places.
pub(super) struct Plan {
    pub inodes: Vec<Planned>,
    pub index: HashMap<NodeId, usize>,
    /// Bytes of everything, whole blocks.
    pub bytes: u64,
}

impl Plan {
    /// `start` is where the first inode, the root, may lie.
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

    /// Of a node that is in the tree.
    pub fn of(&self, node: NodeId) -> &Planned {
        &self.inodes[self.index[&node]]
    }
}

fn whole_blocks(planned: &Planned) -> u64 {
    match planned.layout {
        Layout::Plain => planned.content.div_ceil(UNIT as u64),
        Layout::Inline => planned.content / UNIT as u64,
        Layout::Chunks => 0,
    }
}

/// Every node once, folder by folder, with the number of its links.
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
            if tree.node(child).kind == Kind::Folder {
                below.push(child);
                inodes[index[&folder]].links += 1;
            }
        }
        folders.extend(below.into_iter().rev());
    }
    (inodes, index)
}

fn planned(tree: &Tree, node: NodeId, parent: NodeId) -> Planned {
    let is_folder = tree.node(node).kind == Kind::Folder;
    Planned {
        node,
        parent,
        links: if is_folder { 2 } else { 1 },
        offset: 0,
        layout: Layout::Plain,
        xattrs: xattr::encode(&tree.node(node).attributes.xattrs),
        content: 0,
        block: 0,
    }
}

/// Gives an inode its place and says where the next may begin.
fn place(planned: &mut Planned, node: &Node, cursor: u64) -> u64 {
    let head = (INODE_BYTES + planned.xattrs.len()) as u64;
    let cursor = cursor.next_multiple_of(NID_BYTES);
    planned.content = match &node.kind {
        Kind::Folder => folder::size(folder_lengths(node)),
        Kind::Symlink(target) => target.0.len() as u64,
        Kind::File(_) | Kind::Fifo => 0,
    };
    if let Kind::File(extent) = &node.kind {
        planned.offset = cursor;
        if extent.size == 0 {
            return cursor + head;
        }
        planned.layout = Layout::Chunks;
        return planned.chunk_offset() + CHUNK_BYTES as u64;
    }
    let tail = planned.content % UNIT as u64;
    planned.offset = cursor;
    if tail == 0 {
        return cursor + head;
    }
    for candidate in [cursor, cursor.next_multiple_of(UNIT as u64)] {
        let (first, last) = (candidate + head, candidate + head + tail - 1);
        if first / UNIT as u64 == last / UNIT as u64 {
            planned.offset = candidate;
            planned.layout = Layout::Inline;
            return last + 1;
        }
    }
    cursor + head
}

/// Lengths of all names of a folder, in order, with `.` and `..`.
fn folder_lengths(node: &Node) -> impl Iterator<Item = usize> {
    let mut lengths: Vec<(&[u8], usize)> =
        node.children.keys().map(|name| (name.as_slice(), name.len())).collect();
    lengths.extend([(&b"."[..], 1), (&b".."[..], 2)]);
    lengths.sort_unstable();
    lengths.into_iter().map(|(_, length)| length)
}
