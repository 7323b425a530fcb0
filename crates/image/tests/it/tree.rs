//! The mount without EROFS shows the same files as EROFS and the original folder. Needs root and
//! /dev/fuse.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, chown};
use std::path::Path;
use std::process::Command;

use rustix::fs::{Mode, OFlags, RawDir, SeekFrom, seek};
use snowmelt_image::mount::Form;

use super::image_contents::{fill, same, tar};
use super::lazy_mounts::{FORMS, Setup, archive, image, noise};
use super::mounts::{is_root, scratch};
use super::sources::Fault;

#[test]
fn shows_the_same_files_as_erofs_and_the_original_folder() {
    let Some((_scratch, root)) = scratch() else { return };
    fill(&root);
    let holes = fs::File::create(root.join("holes")).unwrap();
    holes.write_all_at(&noise(1, 70_000), 5 << 20).unwrap();
    holes.set_len(9 << 20).unwrap();
    let (image, source) = image(&[tar(&root)]);
    let erofs = Setup::of(Form::Erofs, &image, source.again(), None);
    let fuse = Setup::of(Form::Fuse, &image, source, None);
    same(&fuse.path("."), &root);
    same(&fuse.path("."), &erofs.path("."));
    for name in [".", "file1", "folder300", "also", "pipe", "link60", "empty"] {
        let of = |setup: &Setup| {
            let found = setup.path(name).symlink_metadata().unwrap();
            let times = (found.atime(), found.mtime_nsec(), found.ctime());
            (found.ino(), found.size(), found.blocks(), found.blksize(), times)
        };
        assert_eq!(of(&fuse), of(&erofs), "{name}");
    }
    let amounts = |setup: &Setup| {
        let found = rustix::fs::statvfs(setup.path(".")).unwrap();
        (found.f_blocks, found.f_bfree, found.f_bavail, found.f_bsize, found.f_namemax)
    };
    assert_eq!(amounts(&fuse), amounts(&erofs));
    let missing = fs::read(fuse.path("folder1/none")).unwrap_err();
    assert_eq!(missing.kind(), std::io::ErrorKind::NotFound);
    let refused = fs::write(fuse.path("new"), "x").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
}

/// Each name with the offset at which the listing continues, read with buffers of `room` bytes.
fn listed(path: &Path, from: u64, room: usize) -> Vec<(Vec<u8>, u64, u64)> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(path, flags, Mode::empty()).unwrap();
    seek(&folder, SeekFrom::Start(from)).unwrap();
    let mut buffer = Vec::with_capacity(room);
    let mut entries = RawDir::new(folder, buffer.spare_capacity_mut());
    let mut found = Vec::new();
    while let Some(entry) = entries.next() {
        let entry = entry.unwrap();
        found.push((entry.file_name().to_bytes().to_vec(), entry.ino(), entry.next_entry_cookie()));
    }
    found
}

#[test]
fn a_large_folder_can_be_listed_from_any_offset() {
    if !is_root() {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let many: Vec<String> = (0..3000).map(|n| format!("{n:04}-{}", "n".repeat(n % 200))).collect();
    many.iter().for_each(|name| fs::write(scratch.path().join(name), "x").unwrap());
    let (image, source) = image(&[archive(scratch.path())]);
    let setup = Setup::of(Form::Fuse, &image, source, None);
    let whole = listed(&setup.path("."), 0, 1 << 20);
    let names: Vec<&[u8]> = whole.iter().map(|(name, ..)| name.as_slice()).collect();
    let expected = [".", ".."].into_iter().chain(many.iter().map(String::as_str));
    assert!(names.iter().copied().eq(expected.map(str::as_bytes)));
    assert_eq!(listed(&setup.path("."), 0, 600), whole);
    for at in [0, 1, 2, 100, 299, 300, 2000, 2999, 3001] {
        assert!(listed(&setup.path("."), whole[at].2, 4096) == whole[at + 1..], "{at}");
    }
    for (name, number, _) in whole.iter().skip(2).step_by(211) {
        let path = setup.path(std::str::from_utf8(name).unwrap());
        assert_eq!(fs::metadata(path).unwrap().ino(), *number);
    }
}

#[test]
fn repeated_accesses_cause_no_requests() {
    if !is_root() {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    fs::create_dir_all(scratch.path().join("a/b")).unwrap();
    fs::write(scratch.path().join("a/b/file"), noise(1, 300_000)).unwrap();
    std::os::unix::fs::symlink("b/file", scratch.path().join("a/link")).unwrap();
    let (image, source) = image(&[archive(scratch.path())]);
    let setup = Setup::of(Form::Fuse, &image, source, None);
    let start = || {
        assert!(fs::read(setup.path("a/link")).unwrap() == noise(1, 300_000));
        assert_eq!(fs::read_dir(setup.path("a")).unwrap().count(), 2);
        assert!(!setup.path("a/none").exists());
    };
    start();
    let before = setup.mount.request_count();
    start();
    assert_eq!(setup.mount.request_count(), before);
}

/// Reads a file of the mount as an unprivileged user.
fn reads(setup: &Setup, name: &str) -> bool {
    let root = format!("/proc/{}/fd/{}", std::process::id(), setup.mount.root().as_raw_fd());
    let script = format!(
        "cd {root}/. && exec setpriv --reuid 65534 --regid 65534 --clear-groups cat {name}"
    );
    Command::new("sh").args(["-c", &script]).output().unwrap().status.success()
}

#[test]
fn modes_owners_and_acls_are_enforced() {
    if !is_root() {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    fs::write(scratch.path().join("secret"), "x").unwrap();
    fs::set_permissions(
        scratch.path().join("secret"),
        std::os::unix::fs::PermissionsExt::from_mode(0o600),
    )
    .unwrap();
    fs::copy(scratch.path().join("secret"), scratch.path().join("own")).unwrap();
    chown(scratch.path().join("own"), Some(65_534), None).unwrap();
    fs::write(scratch.path().join("open"), "x").unwrap();
    let mut upper = tar::Builder::new(Vec::new());
    // Version 2; owner rw, user 65534 r, group none, mask r, others none.
    let mut acl = vec![2, 0, 0, 0];
    for (tag, rights, id) in
        [(1u16, 6u16, !0u32), (2, 4, 65_534), (4, 0, !0), (16, 4, !0), (32, 0, !0)]
    {
        acl.extend([tag.to_le_bytes(), rights.to_le_bytes()].concat());
        acl.extend(id.to_le_bytes());
    }
    let key = "SCHILY.xattr.system.posix_acl_access";
    upper.append_pax_extensions([(key, acl.as_slice())]).unwrap();
    let mut header = tar::Header::new_gnu();
    header.set_size(1);
    header.set_mode(0o640);
    upper.append_data(&mut header, "granted", &b"x"[..]).unwrap();
    let (image, source) = image(&[archive(scratch.path()), upper.into_inner().unwrap()]);
    for form in FORMS {
        let setup = Setup::of(form, &image, source.again(), None);
        let found = ["open", "own", "granted", "secret"].map(|name| reads(&setup, name));
        assert_eq!(found, [true, true, true, false], "{form:?}");
    }
}

#[test]
fn damage_fails_only_the_damaged_file() {
    if !is_root() {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    for (seed, name) in [(1, "a"), (2, "b")] {
        fs::write(scratch.path().join(name), noise(seed, 300_000)).unwrap();
    }
    let (image, mut source) = image(&[archive(scratch.path())]);
    // The first block of the layer contains only the first file.
    let layer = source.blobs.iter_mut().find(|(name, _)| *name == image.layers[0].digest).unwrap();
    let mut bytes = layer.1.to_vec();
    bytes[1000] ^= 1;
    layer.1 = bytes.into();
    for form in FORMS {
        let setup = Setup::of(form, &image, source.again(), None);
        let found = ["a", "b"].map(|name| fs::read(setup.path(name)).map_err(|e| e.raw_os_error()));
        let damaged = found.iter().filter(|found| found.is_err()).count();
        assert_eq!(damaged, 1, "{form:?}");
        let error = Some(rustix::io::Errno::IO.raw_os_error());
        assert!(found.contains(&Err(error)), "{form:?}");
    }
}

#[test]
fn a_failed_lookup_can_be_repeated() {
    if !is_root() {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    fs::write(scratch.path().join("a"), "text").unwrap();
    let (image, source) = image(&[archive(scratch.path())]);
    let setup = Setup::of(Form::Fuse, &image, source, None);
    *setup.source.faults.lock().unwrap() = vec![Fault::Fail; 1000];
    let error = fs::metadata(setup.path("a")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()));
    setup.source.faults.lock().unwrap().clear();
    assert_eq!(fs::read_to_string(setup.path("a")).unwrap(), "text");
}
