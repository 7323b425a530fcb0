//! Describes everything visible in a tree of files as text, to compare two trees.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Each path below `root` with type, attributes, content and its other names.
pub fn describe(root: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut names: HashMap<u64, String> = HashMap::new();
    walk(root, root, &mut found, &mut names);
    found
}

fn walk(
    root: &Path,
    folder: &Path,
    found: &mut BTreeMap<String, String>,
    names: &mut HashMap<u64, String>,
) {
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        let name =
            path.strip_prefix(root).unwrap().as_os_str().as_bytes().escape_ascii().to_string();
        found.insert(name.clone(), one(&path, &name, names));
        if path.symlink_metadata().unwrap().is_dir() {
            walk(root, &path, found, names);
        }
    }
}

fn one(path: &Path, name: &str, names: &mut HashMap<u64, String>) -> String {
    let metadata = path.symlink_metadata().unwrap();
    let first = names.entry(metadata.ino()).or_insert_with(|| name.to_owned()).clone();
    let content = match metadata.file_type() {
        kind if kind.is_symlink() => format!("{:?}", fs::read_link(path).unwrap()),
        kind if kind.is_file() => {
            let content = fs::read(path).unwrap();
            format!("{} {}", content.len(), snowmelt_types::Digest::of(content).short())
        }
        _ => String::new(),
    };
    format!(
        "{:o} {}:{} {}.{} links={} as={first} {content} {:?}",
        metadata.mode(),
        metadata.uid(),
        metadata.gid(),
        metadata.mtime(),
        metadata.mtime_nsec(),
        metadata.nlink(),
        xattrs(path)
    )
}

fn xattrs(path: &Path) -> Vec<(String, Vec<u8>)> {
    let mut list = vec![0; 64 << 10];
    let length = rustix::fs::llistxattr(path, &mut list[..]).unwrap();
    let names = list[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let read = |name: &[u8]| {
        let mut value = vec![0; 64 << 10];
        let length = rustix::fs::lgetxattr(path, name, &mut value[..]).unwrap();
        value.truncate(length);
        (name.escape_ascii().to_string(), value)
    };
    let mut found: Vec<_> = names.map(read).collect();
    found.sort();
    found
}
