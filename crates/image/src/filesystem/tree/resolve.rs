//! Resolves paths to nodes. Symbolic links are followed as for a process whose root is the image.

use std::collections::VecDeque;

use super::{EntryPath, FileKind, MAX_NAME_BYTES, NodeId, Tree};
use crate::{Error, Result};

/// The most links that are followed for a path, as in the kernel.
const MAX_LINKS: usize = 40;
/// The maximum number of names in a path including the names in its links: twice the maximum of a
/// path. It limits the time for each entry.
const MAX_STEPS: usize = 4096;

/// The reason why a path does not lead to a folder.
enum WalkError {
    Missing,
    NotAFolder,
    TooManyLinks,
    LongName,
    TooManyFiles,
}

impl Tree {
    /// Finds the node at a path. A link as the last name is not followed.
    pub fn find(&self, path: &EntryPath) -> Option<NodeId> {
        let Some((folder, name)) = path.split() else { return Some(Self::ROOT) };
        self.node(self.find_folder(folder)?).children.get(name).copied()
    }

    /// Finds the folder at these names.
    pub(super) fn find_folder(&self, names: &[Vec<u8>]) -> Option<NodeId> {
        walk(&mut |at, name| self.step(at, name), names).ok()
    }

    /// Finds the folder at these names; missing folders are created. `path` is the entry, for
    /// errors.
    pub(super) fn make_folder(&mut self, names: &[Vec<u8>], path: &EntryPath) -> Result<NodeId> {
        let mut step = |at: NodeId, name: &[u8]| match self.step(at, name) {
            // Names of entries have been checked; this one may come from a link.
            Err(WalkError::Missing) if name.len() > MAX_NAME_BYTES => Err(WalkError::LongName),
            Err(WalkError::Missing) if self.is_full() => Err(WalkError::TooManyFiles),
            Err(WalkError::Missing) => Ok(WalkStep::Folder(self.add_implied(at, name))),
            outcome => outcome,
        };
        let walked = walk(&mut step, names);
        walked.map_err(|error| {
            let reason = match error {
                WalkError::TooManyFiles => return self.too_many(),
                WalkError::TooManyLinks => "its path has too many symbolic links",
                WalkError::LongName => "it is below a link to a name longer than 255 bytes",
                WalkError::Missing | WalkError::NotAFolder => "a part of its path is a file",
            };
            Error::refused(format!("the entry `{path}`"), reason)
        })
    }

    fn step(&self, at: NodeId, name: &[u8]) -> Result<WalkStep, WalkError> {
        let Some(&child) = self.node(at).children.get(name) else { return Err(WalkError::Missing) };
        match &self.node(child).kind {
            FileKind::Folder => Ok(WalkStep::Folder(child)),
            FileKind::Symlink(target) => Ok(WalkStep::Link(target.0.clone())),
            FileKind::File(_) | FileKind::Fifo => Err(WalkError::NotAFolder),
        }
    }
}

enum WalkStep {
    Folder(NodeId),
    Link(Vec<u8>),
}

fn walk(
    step: &mut impl FnMut(NodeId, &[u8]) -> Result<WalkStep, WalkError>,
    names: &[Vec<u8>],
) -> Result<NodeId, WalkError> {
    let mut remaining: VecDeque<Vec<u8>> = names.iter().cloned().collect();
    let mut parents = Vec::new();
    let mut at = Tree::ROOT;
    let mut links = 0;
    let mut steps = 0;
    while let Some(name) = remaining.pop_front() {
        steps += 1;
        if steps > MAX_STEPS {
            return Err(WalkError::TooManyLinks);
        }
        match name.as_slice() {
            b"" | b"." => continue,
            b".." => {
                // The parent of the root is the root.
                at = parents.pop().unwrap_or(Tree::ROOT);
                continue;
            }
            _ => {}
        }
        match step(at, &name)? {
            WalkStep::Folder(child) => {
                parents.push(at);
                at = child;
            }
            WalkStep::Link(target) => {
                links += 1;
                if links > MAX_LINKS {
                    return Err(WalkError::TooManyLinks);
                }
                if target.starts_with(b"/") {
                    (at, parents) = (Tree::ROOT, Vec::new());
                }
                let parts = target.split(|byte| *byte == b'/').map(<[u8]>::to_vec);
                parts.rev().for_each(|part| remaining.push_front(part));
            }
        }
    }
    Ok(at)
}
