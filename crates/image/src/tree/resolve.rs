//! Paths to nodes, with symbolic links on the way followed as a process whose root is the image
//! would see them.

use std::collections::VecDeque;

use super::{EntryPath, Kind, MAX_NAME_BYTES, NodeId, Tree};
use crate::{Error, Result};

/// As many links as the kernel follows.
const MOST_LINKS: usize = 40;
/// Names on the way, those of links too: twice as many as a path can have. Longer ways cost time for
/// each entry that goes them.
const MOST_STEPS: usize = 4096;

/// Why a path leads to no folder.
enum Dead {
    Missing,
    NotAFolder,
    TooManyLinks,
    NoName,
    TooManyFiles,
}

impl Tree {
    /// The node at a path; the last name is not followed if it is a link.
    pub fn find(&self, path: &EntryPath) -> Option<NodeId> {
        let Some((folder, name)) = path.split() else { return Some(Self::ROOT) };
        self.node(self.find_folder(folder)?).children.get(name).copied()
    }

    /// The folder that these names lead to.
    pub(super) fn find_folder(&self, names: &[Vec<u8>]) -> Option<NodeId> {
        walk(&mut |at, name| self.step(at, name), names).ok()
    }

    /// The folder that these names lead to, made where it is missing; `path` is who wants it.
    pub(super) fn make_folder(&mut self, names: &[Vec<u8>], path: &EntryPath) -> Result<NodeId> {
        let mut step = |at: NodeId, name: &[u8]| match self.step(at, name) {
            // Names of entries were looked at; this one may come from a link.
            Err(Dead::Missing) if name.len() > MAX_NAME_BYTES => Err(Dead::NoName),
            Err(Dead::Missing) if self.is_full() => Err(Dead::TooManyFiles),
            Err(Dead::Missing) => Ok(Step::Folder(self.add_implied(at, name))),
            outcome => outcome,
        };
        let walked = walk(&mut step, names);
        walked.map_err(|dead| {
            let reason = match dead {
                Dead::TooManyFiles => return self.too_many(),
                Dead::TooManyLinks => "its path has too many symbolic links",
                Dead::NoName => "it is behind a link to a name longer than 255 bytes",
                Dead::Missing | Dead::NotAFolder => "a part of its path is a file",
            };
            Error::refused(format!("the entry `{path}`"), reason)
        })
    }

    fn step(&self, at: NodeId, name: &[u8]) -> Result<Step, Dead> {
        let Some(&child) = self.node(at).children.get(name) else { return Err(Dead::Missing) };
        match &self.node(child).kind {
            Kind::Folder => Ok(Step::Folder(child)),
            Kind::Symlink(target) => Ok(Step::Link(target.0.clone())),
            Kind::File(_) | Kind::Fifo => Err(Dead::NotAFolder),
        }
    }
}

enum Step {
    Folder(NodeId),
    Link(Vec<u8>),
}

fn walk(
    step: &mut impl FnMut(NodeId, &[u8]) -> Result<Step, Dead>,
    names: &[Vec<u8>],
) -> Result<NodeId, Dead> {
    let mut ahead: VecDeque<Vec<u8>> = names.iter().cloned().collect();
    let (mut above, mut at, mut links, mut steps) = (Vec::new(), Tree::ROOT, 0, 0);
    while let Some(name) = ahead.pop_front() {
        steps += 1;
        if steps > MOST_STEPS {
            return Err(Dead::TooManyLinks);
        }
        match name.as_slice() {
            b"" | b"." => continue,
            b".." => {
                // Above the root is the root.
                at = above.pop().unwrap_or(Tree::ROOT);
                continue;
            }
            _ => {}
        }
        match step(at, &name)? {
            Step::Folder(child) => {
                above.push(at);
                at = child;
            }
            Step::Link(target) => {
                links += 1;
                if links > MOST_LINKS {
                    return Err(Dead::TooManyLinks);
                }
                if target.starts_with(b"/") {
                    (at, above) = (Tree::ROOT, Vec::new());
                }
                let parts = target.split(|byte| *byte == b'/').map(<[u8]>::to_vec);
                parts.rev().for_each(|part| ahead.push_front(part));
            }
        }
    }
    Ok(at)
}
