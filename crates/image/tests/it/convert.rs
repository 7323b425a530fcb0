//! Images from other tools, converted from each origin, contain the files that those tools unpack.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use snowmelt_image::block::BlockSize;
use snowmelt_image::mount::mount_files;
use snowmelt_image::read::LocalSource;
use snowmelt_image::source::{
    ConversionSource, DockerArchive, FolderOrigin, ImagePlatform, LayoutOrigin, OciLayout,
};
use snowmelt_image::{Converted, Error, Options, convert};

use super::compare::describe;
use super::mounts::{is_root, scratch, unpack_blobs};

pub fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {stderr}");
}

/// A bundle of files, and two layers created from it by umoci, which writes real whiteouts.
pub fn layout_by_umoci(scratch: &Path) -> PathBuf {
    let layout = scratch.join("layout");
    let image = format!("{}:it", layout.display());
    let bundle = scratch.join("bundle");
    run("umoci", &["init", "--layout", layout.to_str().unwrap()]);
    run("umoci", &["new", "--image", &image]);
    run("umoci", &["unpack", "--image", &image, bundle.to_str().unwrap()]);
    let root = bundle.join("rootfs");
    fs::create_dir_all(root.join("usr/lib/deep")).unwrap();
    for name in ["a", "b", "usr/lib/gone", "usr/lib/deep/kept"] {
        fs::write(root.join(name), name.repeat(3000)).unwrap();
    }
    fs::hard_link(root.join("a"), root.join("usr/same")).unwrap();
    std::os::unix::fs::symlink("usr/lib", root.join("lib")).unwrap();
    run("umoci", &["repack", "--image", &image, "--refresh-bundle", bundle.to_str().unwrap()]);
    fs::remove_file(root.join("usr/lib/gone")).unwrap();
    fs::remove_file(root.join("b")).unwrap();
    fs::create_dir(root.join("b")).unwrap();
    fs::write(root.join("b/new"), "new").unwrap();
    run("umoci", &["repack", "--image", &image, "--refresh-bundle", bundle.to_str().unwrap()]);
    layout
}

pub fn check(converted: &Converted, store: &OciLayout, expected: &Path) {
    let scratch = tempfile::tempdir().unwrap();
    let source = LocalSource::new(store.folder());
    let paths = unpack_blobs(&converted.image, source, scratch.path());
    let root = mount_files(&paths[0], &paths[1..]).unwrap();
    let mounted = format!("/proc/self/fd/{}/.", std::os::fd::AsRawFd::as_raw_fd(&root));
    let found = describe(Path::new(&mounted));
    let expected = describe(expected);
    for (name, line) in &expected {
        assert_eq!(found.get(name), Some(line), "{name}");
    }
    assert_eq!(found.len(), expected.len());
}

fn options() -> Options {
    Options { block_size: BlockSize::MIN, ..Options::default() }
}

#[test]
fn an_image_of_umoci_has_the_same_files_from_each_origin() {
    if !is_root() {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let layout = layout_by_umoci(scratch.path());
    let again = scratch.path().join("again");
    let saved = scratch.path().join("saved.tar");
    let image = format!("{}:it", layout.display());
    run("umoci", &["unpack", "--image", &image, again.to_str().unwrap()]);
    let archive = format!("docker-archive:{}:it:latest", saved.display());
    run("skopeo", &["copy", "--insecure-policy", &format!("oci:{image}"), &archive]);
    let pressed = scratch.path().join("saved.tar.gz");
    run("sh", &["-c", "gzip -k \"$0\"", saved.to_str().unwrap()]);

    let layout = OciLayout::open(&layout).unwrap();
    let origins: [Box<dyn ConversionSource>; 3] = [
        Box::new(LayoutOrigin::open(layout, Some("it"), &ImagePlatform::here()).unwrap()),
        Box::new(DockerArchive::open(&saved, Some("it:latest")).unwrap()),
        Box::new(DockerArchive::open(&pressed, Some("it:latest")).unwrap()),
    ];
    let stores = origins.map(|origin| {
        let store = OciLayout::create(&tempfile::tempdir().unwrap().keep()).unwrap();
        let converted = convert(&*origin, &store, options()).unwrap();
        assert_eq!((converted.image.layers.len(), converted.reused), (2, 0));
        check(&converted, &store, &again.join("rootfs"));
        let second = convert(&*origin, &store, options()).unwrap();
        assert_eq!((second.manifest, second.reused), (converted.manifest.clone(), 2));
        (store, converted)
    });
    // The layers are equal for every container format.
    for (_, other) in &stores[1..] {
        assert_eq!(stores[0].1.image.layers, other.image.layers);
        assert_eq!(stores[0].1.image.metadata, other.image.metadata);
    }
    for (store, _) in stores {
        fs::remove_dir_all(store.folder()).unwrap();
    }
}

#[test]
fn a_folder_is_an_image_of_one_layer() {
    let Some((scratch, root)) = scratch() else { return };
    super::image_contents::fill(&root);
    let store = OciLayout::create(&scratch.path().join("store")).unwrap();
    let converted = convert(&FolderOrigin::open(&root).unwrap(), &store, options()).unwrap();
    check(&converted, &store, &root);
    let other = OciLayout::create(&scratch.path().join("other")).unwrap();
    let again = convert(&FolderOrigin::open(&root).unwrap(), &other, options()).unwrap();
    assert_eq!(again.manifest, converted.manifest, "equal input produces equal bytes");
    store.tag("it", &converted.manifest).unwrap();
    assert_eq!(store.find(Some("it")).unwrap().digest, converted.manifest.digest);
}

#[test]
fn concurrent_converters_produce_the_same_image() {
    if !is_root() {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let layout = layout_by_umoci(scratch.path());
    let store = scratch.path().join("store");
    let one = || {
        let layout = OciLayout::open(&layout).unwrap();
        let origin = LayoutOrigin::open(layout, Some("it"), &ImagePlatform::here()).unwrap();
        let store = OciLayout::create(&store).unwrap();
        let converted = convert(&origin, &store, options()).unwrap();
        store.tag("it", &converted.manifest).unwrap();
        converted.manifest
    };
    let manifests = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(one)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(manifests.windows(2).all(|pair| pair[0] == pair[1]));
    assert_eq!(
        OciLayout::open(&store).unwrap().find(Some("it")).unwrap().digest,
        manifests[0].digest
    );
}

#[test]
fn a_layer_with_a_wrong_digest_is_detected() {
    if !is_root() {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let folder = layout_by_umoci(scratch.path());
    let layout = OciLayout::open(&folder).unwrap();
    let open = || LayoutOrigin::open(layout.clone(), Some("it"), &ImagePlatform::here());
    let document = layout.read_blob(&layout.find(Some("it")).unwrap()).unwrap();
    let document: serde_json::Value = serde_json::from_slice(&document).unwrap();
    let digest =
        |index: usize| document["layers"][index]["digest"].as_str().unwrap().parse().unwrap();
    let first = layout.blob_path(&digest(0));
    let second = layout.blob_path(&digest(1));
    fs::copy(&first, &second).unwrap();
    let store = OciLayout::create(&scratch.path().join("store")).unwrap();
    let error = convert(&open().unwrap(), &store, options()).unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
    fs::remove_file(&second).unwrap();
    let error = convert(&open().unwrap(), &store, options()).unwrap_err();
    assert!(matches!(error, Error::Missing { .. }), "{error}");
}
