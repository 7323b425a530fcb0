//! Merges layers, as defined by the OCI image specification.
//!
//! Invariant: whiteouts of a layer affect only the layers below it, regardless of their position
//! among its entries. All of them are therefore applied before any entry is added.

use std::collections::BTreeMap;

use super::{Attributes, EntryPath, FileKind, LayerChange, LayerEntry};
use crate::{Error, Result};

/// The maximum number of files of all layers, including those that an upper layer hides. A short
/// path can imply thousands of folders, so the limits of archives are not enough to limit memory.
const MAX_FILES: usize = 8_000_000;

/// The index of a node in its tree.
pub type NodeId = usize;

/// A file of the tree; it may have several names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileNode {
    /// The type of the node, with the content that belongs to it.
    pub kind: FileKind,
    /// The attributes of the node: permissions, owner, time, extended attributes.
    pub attributes: Attributes,
    /// The layer that the node's bytes come from; the lowest layer is 0.
    pub layer: usize,
    /// The entries of a folder, ordered bytewise.
    pub children: BTreeMap<Vec<u8>, NodeId>,
}

impl FileNode {
    pub(crate) fn new(kind: FileKind, attributes: Attributes, layer: usize) -> Self {
        Self { kind, attributes, layer, children: BTreeMap::new() }
    }

    pub(super) fn is_folder(&self) -> bool {
        self.kind == FileKind::Folder
    }
}

/// The merged file system of layers. Nodes without a name remain in memory only.
#[derive(Clone, Debug)]
pub struct Tree {
    nodes: Vec<FileNode>,
    layers: usize,
    max_files: usize,
}

impl Default for Tree {
    fn default() -> Self {
        Self { nodes: vec![implied_folder(0)], layers: 0, max_files: MAX_FILES }
    }
}

/// Makes a folder that no layer describes.
fn implied_folder(layer: usize) -> FileNode {
    let attributes = Attributes { mode: 0o755, ..Attributes::default() };
    FileNode::new(FileKind::Folder, attributes, layer)
}

impl Tree {
    /// The id of the root folder.
    pub const ROOT: NodeId = 0;

    /// Makes a tree for at most `files` files instead of 8,000,000.
    pub fn with_max_files(files: usize) -> Self {
        Self { max_files: files, ..Self::default() }
    }

    /// Makes an empty tree that counts as the result of `layers` layers.
    pub(crate) fn of_layers(layers: usize) -> Self {
        Self { layers, ..Self::default() }
    }

    pub(crate) fn node_mut(&mut self, id: NodeId) -> &mut FileNode {
        &mut self.nodes[id]
    }

    /// Returns the node with this id, which must be an id of this tree.
    pub fn node(&self, id: NodeId) -> &FileNode {
        &self.nodes[id]
    }

    /// Returns the number of layers.
    pub fn layers(&self) -> usize {
        self.layers
    }

    /// Adds a layer on top. After an error, the tree is inconsistent and must not be used.
    pub fn apply(&mut self, entries: &[LayerEntry]) -> Result<()> {
        for entry in entries {
            match entry.change {
                LayerChange::Hide => self.hide(&entry.path)?,
                LayerChange::HideContent => self.hide_content(&entry.path)?,
                LayerChange::Put(..) | LayerChange::Link(_) => {}
            }
        }
        for entry in entries {
            match &entry.change {
                LayerChange::Put(kind, attributes) => self.put(&entry.path, kind, attributes)?,
                LayerChange::Link(target) => self.link(&entry.path, target)?,
                LayerChange::Hide | LayerChange::HideContent => {}
            }
        }
        self.layers += 1;
        Ok(())
    }

    fn hide(&mut self, path: &EntryPath) -> Result<()> {
        let Some((folder, name)) = path.split() else {
            return Err(Error::refused("a whiteout", "it hides the root"));
        };
        if let Some(folder) = self.find_folder(folder) {
            self.nodes[folder].children.remove(name);
        }
        Ok(())
    }

    fn hide_content(&mut self, path: &EntryPath) -> Result<()> {
        if let Some(folder) = self.find_folder(path.names()) {
            self.nodes[folder].children.clear();
        }
        Ok(())
    }

    fn put(&mut self, path: &EntryPath, kind: &FileKind, attributes: &Attributes) -> Result<()> {
        let Some((folder, name)) = path.split() else {
            if *kind != FileKind::Folder {
                return Err(Error::refused("the entry `/`", "the root must be a folder"));
            }
            self.nodes[Self::ROOT].attributes = attributes.clone();
            return Ok(());
        };
        let folder = self.make_folder(folder, path)?;
        if let Some(&existing) = self.nodes[folder].children.get(name)
            && *kind == FileKind::Folder
            && self.nodes[existing].is_folder()
        {
            self.nodes[existing].attributes = attributes.clone();
            return Ok(());
        }
        if self.is_full() {
            return Err(self.too_many());
        }
        let id = self.add(FileNode::new(kind.clone(), attributes.clone(), self.layers));
        self.nodes[folder].children.insert(name.to_vec(), id);
        Ok(())
    }

    fn link(&mut self, path: &EntryPath, target: &EntryPath) -> Result<()> {
        let refuse = |reason: &str| {
            Err(Error::refused(format!("the hard link `{path}`"), format!("{target} {reason}")))
        };
        let Some(linked) = self.find(target) else { return refuse("does not exist") };
        if self.nodes[linked].is_folder() {
            return refuse("is a folder");
        }
        let Some((folder, name)) = path.split() else { return refuse("cannot be the root") };
        let folder = self.make_folder(folder, path)?;
        self.nodes[folder].children.insert(name.to_vec(), linked);
        Ok(())
    }

    pub(super) fn is_full(&self) -> bool {
        self.nodes.len() >= self.max_files
    }

    pub(super) fn too_many(&self) -> Error {
        let limit = self.max_files as u64;
        Error::Limit { what: "the image".to_owned(), limit, unit: "files" }
    }

    pub(crate) fn add(&mut self, node: FileNode) -> NodeId {
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    /// Adds the folder `name` to `folder`, which has no entry with that name.
    pub(super) fn add_implied(&mut self, folder: NodeId, name: &[u8]) -> NodeId {
        let id = self.add(implied_folder(self.layers));
        self.nodes[folder].children.insert(name.to_vec(), id);
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> EntryPath {
        EntryPath::parse(text.as_bytes()).unwrap()
    }

    fn entry(text: &str, change: LayerChange) -> LayerEntry {
        LayerEntry { path: path(text), change }
    }

    fn put(text: &str, kind: FileKind) -> LayerEntry {
        entry(text, LayerChange::Put(kind, Attributes::default()))
    }

    fn file(text: &str) -> LayerEntry {
        put(text, FileKind::File(crate::filesystem::tree::Extent::default()))
    }

    fn folder(text: &str) -> LayerEntry {
        put(text, FileKind::Folder)
    }

    fn symlink(text: &str, target: &str) -> LayerEntry {
        put(text, FileKind::Symlink(crate::filesystem::tree::LinkTarget(target.into())))
    }

    fn tree(layers: &[&[LayerEntry]]) -> Result<Tree> {
        let mut tree = Tree::default();
        layers.iter().try_for_each(|layer| tree.apply(layer))?;
        Ok(tree)
    }

    fn names(tree: &Tree) -> Vec<String> {
        fn walk(tree: &Tree, id: NodeId, prefix: &str, names: &mut Vec<String>) {
            for (name, child) in &tree.node(id).children {
                let name = format!("{prefix}/{}", String::from_utf8_lossy(name));
                walk(tree, *child, &name, names);
                names.push(name);
            }
        }
        let mut found = Vec::new();
        walk(tree, Tree::ROOT, "", &mut found);
        found.sort();
        found
    }

    #[test]
    fn a_whiteout_hides_lower_layers_but_not_its_own() {
        let hide = entry("d/a", LayerChange::Hide);
        let both = tree(&[&[file("d/a"), file("d/b")], &[file("d/a"), hide.clone()]]).unwrap();
        assert_eq!(names(&both), ["/d", "/d/a", "/d/b"]);
        let gone = tree(&[&[file("d/a"), file("d/b")], &[hide]]).unwrap();
        assert_eq!(names(&gone), ["/d", "/d/b"]);
    }

    #[test]
    fn an_opaque_folder_keeps_only_its_own_layer() {
        let upper = [file("d/new"), entry("d", LayerChange::HideContent)];
        let tree = tree(&[&[file("d/a"), file("d/s/b")], &upper]).unwrap();
        assert_eq!(names(&tree), ["/d", "/d/new"]);
    }

    #[test]
    fn a_folder_replaced_by_a_folder_keeps_its_content() {
        let kept = tree(&[&[file("d/a")], &[folder("d")]]).unwrap();
        assert_eq!(names(&kept), ["/d", "/d/a"]);
        let replaced = tree(&[&[file("d/a")], &[file("d")]]).unwrap();
        assert_eq!(names(&replaced), ["/d"]);
    }

    #[test]
    fn the_last_of_duplicate_entries_wins() {
        let tree = tree(&[&[file("a"), symlink("a", "x"), folder("a"), file("a/b")]]).unwrap();
        assert_eq!(names(&tree), ["/a", "/a/b"]);
    }

    #[test]
    fn links_in_paths_are_resolved_inside_the_image() {
        let lower = [folder("usr/bin"), symlink("bin", "usr/bin"), symlink("out", "../../../etc")];
        let tree = tree(&[&lower, &[file("bin/tool"), file("out/passwd")]]).unwrap();
        let expected = ["/bin", "/etc", "/etc/passwd", "/out", "/usr", "/usr/bin", "/usr/bin/tool"];
        assert_eq!(names(&tree), expected);
    }

    #[test]
    fn refuses_circular_links_and_files_used_as_folders() {
        tree(&[&[symlink("a", "b"), symlink("b", "a"), file("a/x")]]).unwrap_err();
        tree(&[&[file("a"), file("a/x")]]).unwrap_err();
        tree(&[&[file("")]]).unwrap_err();
    }

    #[test]
    fn refuses_implied_folders_whose_names_are_too_long() {
        let long = "n".repeat(256);
        tree(&[&[symlink("a", &long), file("a/x")]]).unwrap_err();
        tree(&[&[symlink("a", &long[1..]), file("a/x")]]).unwrap();
    }

    #[test]
    fn refuses_paths_with_thousands_of_steps() {
        // Each link doubles the path of the previous one.
        let mut layer = vec![folder("d"), symlink("l0", "d/../d/../d")];
        for n in 0..20 {
            layer.push(symlink(&format!("l{}", n + 1), &format!("l{n}/../l{n}")));
        }
        tree(&[&layer]).unwrap();
        layer.push(file("l20/x"));
        tree(&[&layer]).unwrap_err();
        let far = "../".repeat(1300) + &"d/../".repeat(800);
        tree(&[&[symlink("far", &far), folder("d"), file("far/x")]]).unwrap();
        tree(&[&[
            symlink("far", &(far.clone() + "d/../far2")),
            symlink("far2", &far),
            file("far/x"),
        ]])
        .unwrap_err();
    }

    #[test]
    fn a_hard_link_survives_the_removal_of_the_first_name() {
        let link = entry("b", LayerChange::Link(path("a")));
        let tree =
            tree(&[&[file("a")], &[link], &[entry("a", LayerChange::Hide), file("c")]]).unwrap();
        assert_eq!(names(&tree), ["/b", "/c"]);
        assert_eq!(tree.node(tree.find(&path("b")).unwrap()).layer, 0);
    }

    #[test]
    fn refuses_hard_links_to_nothing_and_to_folders() {
        tree(&[&[entry("b", LayerChange::Link(path("a")))]]).unwrap_err();
        tree(&[&[folder("a"), entry("b", LayerChange::Link(path("a")))]]).unwrap_err();
    }
}
