//! An image shows the result of unpacking its layers in order. Needs root, to mount and to change
//! the owners of files.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;

use proptest::prelude::*;
use rustix::fs::{CWD, Mode, Timestamps, XattrFlags, mkfifoat};

use super::compare::describe;
use super::mounts::{mount_layers, scratch};

pub fn tar(folder: &Path) -> Vec<u8> {
    let mut command = Command::new("tar");
    command.args(["--create", "--format=pax", "--xattrs", "--xattrs-include=*", "--directory"]);
    let output = command.arg(folder).arg(".").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// One file of every type, at every limit of the format.
pub fn fill(root: &Path) {
    let bytes = |count: usize| (0..count).map(|n| (n * 7 + n / 251) as u8).collect::<Vec<u8>>();
    for size in [0, 1, 4095, 4096, 4097, 65_536, 200_000] {
        fs::write(root.join(format!("file{size}")), bytes(size)).unwrap();
    }
    // A folder for each number of blocks, with the last one full, nearly full and almost empty.
    for count in [1, 100, 200, 230, 231, 232, 300, 1000] {
        let folder = root.join(format!("folder{count}"));
        fs::create_dir(&folder).unwrap();
        (0..count).for_each(|n| fs::write(folder.join(format!("f{n:04}")), "x").unwrap());
    }
    fs::create_dir(root.join("empty")).unwrap();
    fs::write(root.join("n".repeat(255)), "long").unwrap();
    let deep = root.join("d/".repeat(60));
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("a-name-that-makes-the-path-longer-than-a-header-holds"), "deep").unwrap();
    for length in [1, 60, 2000, 4000, 4090] {
        symlink("t".repeat(length), root.join(format!("link{length}"))).unwrap();
    }
    fs::hard_link(root.join("file4097"), root.join("folder1/same")).unwrap();
    fs::hard_link(root.join("file4097"), root.join("also")).unwrap();
    mkfifoat(CWD, root.join("pipe"), Mode::from_raw_mode(0o640)).unwrap();
    fs::set_permissions(root.join("file1"), fs::Permissions::from_mode(0o6751)).unwrap();
    fs::set_permissions(root.join("empty"), fs::Permissions::from_mode(0o1777)).unwrap();
    chown(root.join("file4096"), Some(70_000), Some(1 << 30)).unwrap();
    attributes(root);
}

fn attributes(root: &Path) {
    let set = |name: &str, key: &str, value: &[u8]| {
        rustix::fs::setxattr(root.join(name), key, value, XattrFlags::empty()).unwrap();
    };
    // A version-2 capability whose bytes contain a newline.
    let mut capability = vec![1, 0, 0, 2];
    capability.extend([0x0a, 0x0a, 0, 0].iter().chain(&[0; 12]));
    set("file65536", "security.capability", &capability);
    set("file0", "user.text", b"a=b\nc");
    set("folder300", "user.empty", b"");
    set("file4095", "user.large", &[9; 3000]);
    set("file4095", "trusted.other", &[0, 1, 2]);
    let when = |seconds, nanos| rustix::fs::Timespec { tv_sec: seconds, tv_nsec: nanos };
    for (name, moment) in [("file1", when(-5, 25)), ("file4095", when(1 << 33, 999_999_999))] {
        let times = Timestamps { last_access: moment, last_modification: moment };
        rustix::fs::utimensat(CWD, root.join(name), &times, rustix::fs::AtFlags::empty()).unwrap();
    }
}

pub fn same(image: &Path, folder: &Path) {
    let found = describe(image);
    let expected = describe(folder);
    for (name, line) in &expected {
        assert_eq!(found.get(name), Some(line), "{name}");
    }
    assert_eq!(found.len(), expected.len());
}

#[test]
fn the_kernel_shows_every_type_of_file_unchanged() {
    let Some((scratch, root)) = scratch() else { return };
    fill(&root);
    let mounted = mount_layers(&[tar(&root)], scratch.path());
    same(&mounted.path(), &root);
}

#[test]
fn an_image_without_any_file_mounts() {
    let Some((scratch, root)) = scratch() else { return };
    let mounted = mount_layers(&[tar(&root)], scratch.path());
    same(&mounted.path(), &root);
}

/// One change of a layer. There are few names, so that changes of several layers collide.
#[derive(Clone, Debug)]
enum Step {
    File(String, usize),
    Folder(String),
    Link(String, String),
    Gone(String),
    Opaque(String),
}

fn step() -> impl Strategy<Value = Step> {
    let path = || proptest::collection::vec("[a-c]", 1..4).prop_map(|names| names.join("/"));
    prop_oneof![
        (path(), 0usize..9000).prop_map(|(path, size)| Step::File(path, size)),
        path().prop_map(Step::Folder),
        (path(), "[a-c]").prop_map(|(path, target)| Step::Link(path, target)),
        path().prop_map(Step::Gone),
        path().prop_map(Step::Opaque),
    ]
}

/// Applies steps to a folder and writes the equivalent layer. A step that is not possible, such as
/// a file below a file, is omitted from both.
fn layer(root: &Path, steps: &[Step]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    let mut own: Vec<String> = Vec::new();
    for step in steps {
        let (Step::File(path, _) | Step::Folder(path) | Step::Link(path, _)) = step else {
            continue;
        };
        // Paths through symbolic links are tested in the `tree` module.
        let parents = Path::new(path).ancestors().skip(1);
        let plain = parents.filter(|p| !p.as_os_str().is_empty()).all(|parent| {
            let found = root.join(parent).symlink_metadata();
            found.map_or(true, |found| found.is_dir())
        });
        if !plain {
            continue;
        }
        unpack(root, step, path);
        append(&mut builder, step, path);
        own.push(path.clone());
    }
    for step in steps {
        let (Step::Gone(path) | Step::Opaque(path)) = step else { continue };
        hide(root, &mut builder, step, path, &own);
    }
    builder.into_inner().unwrap()
}

fn unpack(root: &Path, step: &Step, path: &str) {
    let target = root.join(path);
    let parent = target.parent().unwrap();
    let mut made: Vec<_> = parent.ancestors().take_while(|folder| !folder.exists()).collect();
    made.reverse();
    made.iter().for_each(|folder| fs::create_dir(folder).unwrap());
    let is_folder = target.symlink_metadata().is_ok_and(|found| found.is_dir());
    if is_folder && !matches!(step, Step::Folder(_)) {
        fs::remove_dir_all(&target).unwrap();
    } else if !is_folder {
        let _ = fs::remove_file(&target);
    }
    match step {
        Step::File(_, size) => fs::write(&target, vec![b'x'; *size]).unwrap(),
        Step::Folder(_) if is_folder => {}
        Step::Folder(_) => fs::create_dir(&target).unwrap(),
        Step::Link(_, link) => symlink(link, &target).unwrap(),
        Step::Gone(_) | Step::Opaque(_) => {}
    }
}

fn append(builder: &mut tar::Builder<Vec<u8>>, step: &Step, path: &str) {
    let mut header = tar::Header::new_gnu();
    header.set_mode(0o755);
    match step {
        Step::File(_, size) => {
            header.set_size(*size as u64);
            builder.append_data(&mut header, path, &vec![b'x'; *size][..]).unwrap();
        }
        Step::Folder(_) => {
            header.set_entry_type(tar::EntryType::Directory);
            header.set_size(0);
            builder.append_data(&mut header, path, &[][..]).unwrap();
        }
        Step::Link(_, target) => {
            header.set_entry_type(tar::EntryType::Symlink);
            header.set_size(0);
            builder.append_link(&mut header, path, target).unwrap();
        }
        Step::Gone(_) | Step::Opaque(_) => {}
    }
}

/// Whiteouts are last in the archive, where one that affected its own layer would be noticed.
fn hide(root: &Path, builder: &mut tar::Builder<Vec<u8>>, step: &Step, path: &str, own: &[String]) {
    let touches =
        |other: &String| Path::new(other).starts_with(path) || Path::new(path).starts_with(other);
    if own.iter().any(touches) || !root.join(path).ancestors().all(is_plain_or_missing) {
        return;
    }
    let target = root.join(path);
    let whiteout = match step {
        Step::Gone(_) => {
            let (folder, name) = path.rsplit_once('/').unwrap_or((".", path));
            if is_folder(&target) {
                fs::remove_dir_all(&target).unwrap()
            } else {
                let _ = fs::remove_file(&target);
            }
            format!("{folder}/.wh.{name}")
        }
        _ if is_folder(&target) => {
            fs::remove_dir_all(&target).unwrap();
            fs::create_dir(&target).unwrap();
            format!("{path}/.wh..wh..opq")
        }
        _ => return,
    };
    append(builder, &Step::File(String::new(), 0), &whiteout);
}

fn is_folder(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|found| found.is_dir())
}

fn is_plain_or_missing(path: &Path) -> bool {
    path.symlink_metadata().map_or(true, |found| !found.is_symlink())
}

/// Names, types and contents; times and modes of implied folders are not specified.
fn outline(root: &Path) -> Vec<(String, String)> {
    let kind = |line: String| {
        let mut fields = line.split(' ');
        let kind = fields.next().unwrap_or_default()[..2].to_owned();
        // Sizes of folders differ between file systems and are not included.
        let content = fields.skip(4).collect::<Vec<_>>().join(" ");
        format!("{kind} {content}")
    };
    describe(root).into_iter().map(|(name, line)| (name, kind(line))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn merged_layers_equal_unpacked_layers(
        layers in proptest::collection::vec(proptest::collection::vec(step(), 0..12), 1..5),
    ) {
        let Some((scratch, root)) = scratch() else { return Ok(()) };
        let streams: Vec<Vec<u8>> = layers.iter().map(|steps| layer(&root, steps)).collect();
        let mounted = mount_layers(&streams, scratch.path());
        prop_assert_eq!(outline(&mounted.path()), outline(&root));
    }
}
