//! Images from a base, packages and code: unchanged parts are neither read nor uploaded again.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use snowmelt_image::block::{BlobSummary, BlockSize, OciDigest};
use snowmelt_image::build::{
    Base, BlockBase, BuildSettings, LayerFolder, Recipe, Unpacked, build, build_with_progress,
    function,
};
use snowmelt_image::mount::mount_files;
use snowmelt_image::read::{BlockSource, LocalSource};
use snowmelt_image::source::{FolderOrigin, OciLayout};
use snowmelt_image::{Converted, Error, Options};

use super::mounts::{is_root, unpack_blobs};
use super::registry::{registry, serve};

fn options() -> Options {
    Options { block_size: BlockSize::MIN, ..Options::default() }
}

fn write(folder: &Path, files: &[(&str, &str)]) {
    for (name, content) in files {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
}

/// Waits until changes of files can be distinguished by the kernel's clock for file times.
fn settle() {
    std::thread::sleep(Duration::from_millis(50));
}

/// A base with the link `/lib`, packages with files in `/lib`, and code.
struct Folders {
    _scratch: tempfile::TempDir,
    base: PathBuf,
    packages: PathBuf,
    code: PathBuf,
}

impl Folders {
    fn new() -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let folder = |name: &str| scratch.path().join(name);
        let base = folder("base");
        let packages = folder("packages");
        let code = folder("code");
        write(&base, &[("usr/lib/base.so", "base"), ("etc/name", "base")]);
        symlink("usr/lib", base.join("lib")).unwrap();
        let library = "library".repeat(60_000);
        write(&packages, &[("lib/one.so", &library), ("usr/bin/tool", "tool")]);
        fs::set_permissions(packages.join("usr/bin/tool"), fs::Permissions::from_mode(0o4755))
            .unwrap();
        write(&code, &[("main.py", "print(1)"), ("model/weights", &"w".repeat(100_000))]);
        Self { _scratch: scratch, base, packages, code }
    }

    fn build(&self, layout: &OciLayout) -> Converted {
        let base = FolderOrigin::open(&self.base).unwrap();
        let parts = vec![
            LayerFolder::packages(&self.packages),
            LayerFolder::content(&self.code, "/app").unwrap(),
        ];
        let settings = BuildSettings {
            entrypoint: Some(vec!["python3".to_owned(), "/app/main.py".to_owned()]),
            ..BuildSettings::default()
        };
        let base = Some(Base::Origin(&base));
        build(&Recipe { base, parts, settings }, layout, options()).unwrap()
    }
}

fn blocks(blob: &BlobSummary) -> u64 {
    blob.block_size.count(blob.raw_size)
}

#[test]
fn a_change_of_code_compresses_and_uploads_only_the_code() {
    let folders = Folders::new();
    let store = tempfile::tempdir().unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let layout = OciLayout::create(store.path()).unwrap();
    settle();
    let first = folders.build(&layout);
    assert_eq!(first.written_blocks, first.image.blobs().map(blocks).sum::<u64>());
    assert_eq!(first.image.layers.len(), 3);

    fs::write(folders.code.join("main.py"), "print(22)").unwrap();
    settle();
    let second = folders.build(&layout);
    let code = &second.image.layers[2];
    assert!(second.written.contains(&code.digest));
    assert!(!second.written.contains(&second.image.layers[1].digest));
    // The base is a folder, so its layer is read before it is identified.
    let base = blocks(&second.image.layers[0]);
    assert_eq!(second.written_blocks - base, blocks(code) + blocks(&second.image.metadata));
    assert_eq!(second.reused, 1);
    assert_eq!(second.image.layers[..2], first.image.layers[..2]);
    assert_ne!(code, &first.image.layers[2]);

    let third = folders.build(&layout);
    assert_eq!((third.reused, &third.manifest), (2, &second.manifest), "nothing changed");

    let served = serve(scratch.path(), "");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let registry = registry(&served.address, None);
    let sent = |image: &Converted| {
        let image = image.image.clone();
        let all = image.blobs().map(|blob| &blob.digest).chain([&image.config.digest]);
        let is_sent = |digest: &&OciDigest| {
            let path = layout.blob_path(digest);
            runtime.block_on(registry.push_blob(digest, &path)).unwrap()
        };
        all.filter(is_sent).cloned().collect::<Vec<_>>()
    };
    assert_eq!(sent(&first).len(), 5);
    let changed = [&second.image.metadata.digest, &code.digest, &second.image.config.digest];
    assert_eq!(sent(&second).iter().collect::<Vec<_>>(), changed);
}

#[test]
fn a_built_image_has_the_files_that_a_package_manager_would_install() {
    if !is_root() {
        return;
    }
    let folders = Folders::new();
    let store = tempfile::tempdir().unwrap();
    let layout = OciLayout::create(store.path()).unwrap();
    let built = folders.build(&layout);
    let raw = tempfile::tempdir().unwrap();
    let files = unpack_blobs(&built.image, LocalSource::new(store.path()), raw.path());
    let root = mount_files(&files[0], &files[1..]).unwrap();
    let path = |name: &str| PathBuf::from(format!("/proc/self/fd/{}/{name}", root.as_raw_fd()));
    assert_eq!(fs::read_link(path("lib")).unwrap(), Path::new("usr/lib"), "the link is kept");
    assert!(path("usr/lib/one.so").is_file() && path("lib/base.so").is_file());
    assert_eq!(fs::read_to_string(path("app/main.py")).unwrap(), "print(1)");
    let mode = |name: &str| fs::metadata(path(name)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("usr/bin/tool"), mode("app/main.py"), mode("app")), (0o4755, 0o644, 0o755));
    let config = fs::read(layout.blob_path(&built.image.config.digest)).unwrap();
    let config: serde_json::Value = serde_json::from_slice(&config).unwrap();
    assert_eq!(config["config"]["Entrypoint"][1], "/app/main.py");
    assert_eq!(config["rootfs"]["diff_ids"].as_array().unwrap().len(), 3);
}

#[test]
fn equal_contents_produce_equal_bytes() {
    let manifests = [0o700, 0o775].map(|mode| {
        let scratch = tempfile::tempdir().unwrap();
        let code = scratch.path().join(format!("code{mode}"));
        write(&code, &[("a/b.py", "b"), ("run", "#!")]);
        fs::set_permissions(code.join("a"), fs::Permissions::from_mode(mode)).unwrap();
        fs::set_permissions(code.join("run"), fs::Permissions::from_mode(mode)).unwrap();
        let parts = vec![LayerFolder::content(&code, "app").unwrap()];
        let layout = OciLayout::create(&scratch.path().join("store")).unwrap();
        let recipe = Recipe { parts, ..Recipe::default() };
        build(&recipe, &layout, options()).unwrap().manifest
    });
    assert_eq!(manifests[0], manifests[1]);
}

#[test]
fn functions_with_the_same_wheel_share_its_layer() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = |name: &str| scratch.path().join(name);
    for name in ["numpy", "pandas", "one", "two"] {
        write(&folder(name), &[(&format!("{name}/__init__.py"), name)]);
    }
    let layout = OciLayout::create(&folder("store")).unwrap();
    settle();
    let make = |code: &str, wheels: &[&str]| {
        let named = |name: &&str| Unpacked { folder: folder(name), identity: (*name).to_owned() };
        let wheels: Vec<Unpacked> = wheels.iter().map(named).collect();
        build(&function(&named(&code), &wheels).unwrap(), &layout, options()).unwrap()
    };
    let one = make("one", &["numpy", "pandas"]);
    let two = make("two", &["numpy"]);
    assert_eq!((one.reused, two.reused), (0, 1));
    assert_eq!(one.image.layers[0], two.image.layers[0]);
    assert_ne!(one.image.layers[2], two.image.layers[1]);
    // Another hard link of a file does not change its content.
    fs::hard_link(folder("numpy/numpy/__init__.py"), folder("linked")).unwrap();
    let again = make("two", &["numpy"]);
    assert_eq!((again.reused, again.manifest), (2, two.manifest));
}

#[test]
fn a_build_on_a_block_image_does_not_need_its_layers() {
    let folders = Folders::new();
    let store = tempfile::tempdir().unwrap();
    let other = tempfile::tempdir().unwrap();
    let whole = folders.build(&OciLayout::create(store.path()).unwrap());
    let layers = &whole.image.layers;
    for layer in &layers[..2] {
        fs::remove_file(store.path().join("blobs/sha256").join(layer.digest.hex())).unwrap();
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let source: Arc<dyn BlockSource> = Arc::new(LocalSource::new(store.path()));
    let base = runtime.block_on(BlockBase::fetch(whole.image.clone(), source)).unwrap();
    let read = |path: &str, most| runtime.block_on(base.file(path, most));
    assert_eq!(read("/app/main.py", 100).unwrap().unwrap(), b"print(1)");
    assert_eq!((read("etc/none", 1).unwrap(), read("/app", 1).unwrap()), (None, None));
    assert!(matches!(read("/app/model/weights", 9), Err(Error::Limit { .. })));
    let model = other.path().join("model");
    write(&model, &[("weights", "new")]);
    let layout = OciLayout::create(&other.path().join("store")).unwrap();
    let parts = vec![LayerFolder::content(&model, "app/model").unwrap()];
    let recipe = Recipe { base: Some(Base::Blocks(&base)), parts, ..Recipe::default() };
    let built = build(&recipe, &layout, options()).unwrap();
    assert_eq!((built.reused, &built.image.layers[..3]), (3, &layers[..]));

    // The same manifest as with local layers.
    let parts = [&folders.packages, &folders.code].map(|folder| match folder == &folders.code {
        true => LayerFolder::content(folder, "app").unwrap(),
        false => LayerFolder::packages(folder),
    });
    let below = FolderOrigin::open(&folders.base).unwrap();
    let parts =
        parts.into_iter().chain([LayerFolder::content(&model, "app/model").unwrap()]).collect();
    let settings = BuildSettings::default();
    let recipe = Recipe { base: Some(Base::Origin(&below)), parts, settings };
    assert_eq!(build(&recipe, &layout, options()).unwrap().image.metadata, built.image.metadata);

    // The metadata part of another image.
    let mut mixed = whole.image.clone();
    mixed.layers.pop();
    let source: Arc<dyn BlockSource> = Arc::new(LocalSource::new(store.path()));
    let base = runtime.block_on(BlockBase::fetch(mixed, source)).unwrap();
    let recipe = Recipe { base: Some(Base::Blocks(&base)), ..Recipe::default() };
    assert!(matches!(build(&recipe, &layout, options()), Err(Error::Refused { .. })));
}

#[test]
fn damaged_cache_entries_and_missing_blobs_are_created_again() {
    let folders = Folders::new();
    let store = tempfile::tempdir().unwrap();
    let layout = OciLayout::create(store.path()).unwrap();
    settle();
    let first = folders.build(&layout);
    let whole = folders.build(&layout);
    assert_eq!(whole.reused, 2);
    let private = store.path().join(".snowmelt");
    for part in ["layers", "sources"] {
        for entry in fs::read_dir(private.join(part)).unwrap() {
            let path = entry.unwrap().path();
            let bytes = fs::read(&path).unwrap();
            fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        }
        let again = folders.build(&layout);
        assert_eq!((again.reused, &again.manifest), (0, &first.manifest), "{part}");
    }
    for entry in fs::read_dir(private.join("layers")).unwrap() {
        let path = entry.unwrap().path();
        let whole = fs::read(&path).unwrap();
        for at in (0..whole.len()).step_by(whole.len() / 9) {
            let mut damaged = whole.clone();
            damaged[at] ^= 4;
            fs::write(&path, damaged).unwrap();
            assert_eq!(folders.build(&layout).manifest, first.manifest, "byte {at}");
        }
    }
    fs::remove_file(layout.blob_path(&first.image.layers[1].digest)).unwrap();
    let again = folders.build(&layout);
    assert_eq!((again.reused, again.manifest), (1, first.manifest));
}

#[test]
fn a_cancelled_build_leaves_nothing_and_leftovers_are_removed() {
    let folders = Folders::new();
    let store = tempfile::tempdir().unwrap();
    let layout = OciLayout::create(store.path()).unwrap();
    let tmp = store.path().join(".snowmelt/tmp");
    let left = || fs::read_dir(&tmp).unwrap().count();
    let parts = vec![LayerFolder::content(&folders.code, "app").unwrap()];
    let recipe = Recipe { parts, ..Recipe::default() };
    let enough = |_: &str, bytes: u64| match bytes {
        0 => Ok(()),
        _ => Err(std::io::Error::other("enough")),
    };
    build_with_progress(&recipe, &layout, options(), &enough).unwrap_err();
    assert_eq!(left(), 0);

    fs::write(tmp.join("half"), "half").unwrap();
    let built = build(&recipe, &layout, options()).unwrap();
    assert_eq!(left(), 0);
    fs::write(tmp.join("half"), "half").unwrap();
    build(&recipe, &layout, options()).unwrap();
    assert_eq!(left(), 1, "it may belong to the active builder");
    drop(built);
    build(&recipe, &layout, options()).unwrap();
    assert_eq!(left(), 0);
}
