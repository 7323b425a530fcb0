//! Encodes a tree and the sizes of its layers' blobs as a metadata part.

use super::folder::{self, EntryName};
use super::format::{
    INODE_BYTES, Inode, InodeLayout, NameType, Super, UNIT, chunk, chunk_form, head_bytes, put_head,
};
use super::plan::{InodePlan, Planned};
use crate::filesystem::tree::{FileKind, FileNode, Tree};
use crate::{Error, Result};

/// Encodes the metadata part of an image. `devices` are the raw bytes of each layer's blob; they
/// become devices 1, 2, … in this order.
pub fn write(tree: &Tree, devices: &[u64]) -> Result<Vec<u8>> {
    let devices = devices.iter().map(|bytes| blocks(*bytes)).collect::<Result<Vec<u32>>>()?;
    if devices.len() > usize::from(u16::MAX) || devices.len() < tree.layers() {
        return Err(Error::refused("the image", format!("it has {} layers", tree.layers())));
    }
    let plan = InodePlan::new(tree, head_bytes(devices.len()) as u64);
    let total = blocks(plan.bytes)?;
    let mut image = vec![0; plan.bytes as usize];
    for (number, planned) in plan.inodes.iter().enumerate() {
        TreeWriter { tree, plan: &plan, devices: &devices }.inode(number, planned, &mut image)?;
    }
    let mut uuid = [0; 16];
    uuid.copy_from_slice(&blake3::hash(&image).as_bytes()[..16]);
    let head = Super {
        // The root is the first inode, after at most 65535 slots of 128 bytes, which is checked
        // here.
        root: u16::try_from(plan.of(Tree::ROOT).nid())
            .map_err(|_| Error::refused("the image", "it has too many layers"))?,
        inodes: plan.inodes.len() as u64,
        blocks: total,
        uuid,
    };
    put_head(&mut image, &head, &devices);
    Ok(image)
}

/// Returns the size in file system blocks; a device has at most 2^32.
fn blocks(bytes: u64) -> Result<u32> {
    u32::try_from(bytes.div_ceil(UNIT as u64)).map_err(|_| Error::Limit {
        what: "the image".to_owned(),
        limit: u64::from(u32::MAX) * UNIT as u64,
        unit: "bytes in one layer",
    })
}

struct TreeWriter<'a> {
    tree: &'a Tree,
    plan: &'a InodePlan,
    devices: &'a [u32],
}

impl TreeWriter<'_> {
    fn inode(&self, number: usize, planned: &Planned, image: &mut [u8]) -> Result<()> {
        let node = self.tree.node(planned.node);
        let (size, union) = match &node.kind {
            FileKind::File(extent) if extent.size > 0 => {
                put(image, planned.chunk_offset(), &self.chunk(node)?);
                (extent.size, chunk_form(extent.size))
            }
            _ => (planned.content, u32::try_from(planned.block).unwrap_or(u32::MAX)),
        };
        let attributes = &node.attributes;
        let inode = Inode {
            layout: planned.layout,
            xattr_bytes: planned.xattrs.len(),
            mode: type_bits(&node.kind) | attributes.mode,
            size,
            union,
            number: number as u32 + 1,
            uid: attributes.uid,
            gid: attributes.gid,
            mtime: attributes.mtime,
            links: planned.links,
        };
        put(image, planned.offset, &inode.encode());
        put(image, planned.offset + INODE_BYTES as u64, &planned.xattrs);
        self.content(planned, node, image);
        Ok(())
    }

    fn content(&self, planned: &Planned, node: &FileNode, image: &mut [u8]) {
        let content = match &node.kind {
            FileKind::Folder => folder::encode(&self.names(planned, node)),
            FileKind::Symlink(target) => target.0.clone(),
            FileKind::File(_) | FileKind::Fifo => return,
        };
        let whole = match planned.layout {
            InodeLayout::Inline => content.len() / UNIT * UNIT,
            InodeLayout::Plain | InodeLayout::Chunks => content.len(),
        };
        put(image, planned.block * UNIT as u64, &content[..whole]);
        put(image, planned.inline_offset(), &content[whole..]);
    }

    fn names<'a>(&'a self, planned: &Planned, node: &'a FileNode) -> Vec<EntryName<'a>> {
        let folder =
            |name, node| EntryName { name, nid: self.plan.of(node).nid(), kind: NameType::Folder };
        let mut names: Vec<EntryName<'_>> = node
            .children
            .iter()
            .map(|(name, child)| EntryName {
                name,
                nid: self.plan.of(*child).nid(),
                kind: name_type(&self.tree.node(*child).kind),
            })
            .collect();
        names.extend([folder(&b"."[..], planned.node), folder(&b".."[..], planned.parent)]);
        names.sort_unstable_by_key(|name| name.name);
        names
    }

    /// Encodes the single chunk of a file. Refuses an extent that is outside of its device.
    fn chunk(&self, node: &FileNode) -> Result<[u8; 8]> {
        let FileKind::File(extent) = &node.kind else { return Ok([0; 8]) };
        let end = extent.block.saturating_add(extent.size.div_ceil(UNIT as u64));
        match self.devices.get(node.layer) {
            Some(blocks) if end <= u64::from(*blocks) => {
                Ok(chunk(node.layer as u16 + 1, extent.block as u32))
            }
            _ => Err(Error::refused("a layer", "a file is outside of its blob")),
        }
    }
}

fn put(image: &mut [u8], offset: u64, bytes: &[u8]) {
    if !bytes.is_empty() {
        image[offset as usize..offset as usize + bytes.len()].copy_from_slice(bytes);
    }
}

fn type_bits(kind: &FileKind) -> u16 {
    match kind {
        FileKind::Fifo => 0o010_000,
        FileKind::Folder => 0o040_000,
        FileKind::File(_) => 0o100_000,
        FileKind::Symlink(_) => 0o120_000,
    }
}

fn name_type(kind: &FileKind) -> NameType {
    match kind {
        FileKind::Fifo => NameType::Fifo,
        FileKind::Folder => NameType::Folder,
        FileKind::File(_) => NameType::File,
        FileKind::Symlink(_) => NameType::Symlink,
    }
}
