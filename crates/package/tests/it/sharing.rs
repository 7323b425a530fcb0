//! Packages are unpacked once and shared by content.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use snowmelt_package::{Installer, Options, Pinned, Silent};
use snowmelt_types::ByteSize;

use crate::support::{Bench, Steps, list};

#[tokio::test]
async fn unpacks_importable_packages_once() {
    let bench = Bench::new();
    let wanted = list(&["phonenumbers==8.13.*", "six"]);
    let made = bench.installer().environment(&wanted, &Silent).await.unwrap();
    assert_eq!(made.modules, ["phonenumbers", "six"]);
    let names: Vec<&str> = made.packages.iter().map(|one: &Pinned| one.name.as_str()).collect();
    assert_eq!(names, ["phonenumbers", "six"]);
    assert!(made.packages[0].version.starts_with("8.13."));
    let region = "import phonenumbers as p; \
                  print(p.region_code_for_number(p.parse('+41446681800')))";
    assert_eq!(bench.run(&made.path, region), "CH");
    let cached = bench.run(&made.path, "import six; print(six.__cached__)");
    assert!(Path::new(&cached).is_file(), "{cached}");
    assert!(made.size.bytes() > 1 << 20, "{}", made.size);

    let steps = Steps::default();
    let reordered = list(&["six", "phonenumbers==8.13.*"]);
    let again = bench.without_uv().environment(&reordered, &steps).await.unwrap();
    assert_eq!((again.digest, again.path), (made.digest, made.path));
    assert!(steps.0.into_inner().unwrap().is_empty());
}

#[tokio::test]
async fn the_store_is_readable_for_all_and_writable_for_its_owner() {
    let bench = Bench::new();
    let made = bench.installer().environment(&list(&["six"]), &Silent).await.unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
    assert_eq!(mode(&made.path), 0o755);
    assert_eq!(mode(made.path.parent().unwrap()), 0o755);
    assert_eq!(mode(&made.path.join("six.py")), 0o644);
    assert!(!made.path.join(".lock").exists());
    // uv's cache contains world-writable files, so its folder is private.
    assert_eq!(mode(&bench.store().join("cache")), 0o700);
    let writable = std::process::Command::new("find")
        .arg(bench.store())
        .args(["-name", "cache", "-prune", "-o", "-perm", "/022", "!", "-type", "l", "-print"])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&writable.stdout), "");
}

#[tokio::test]
async fn an_empty_list_needs_no_resolver() {
    let bench = Bench::new();
    let empty = bench.without_uv().environment(&[], &Silent).await.unwrap();
    assert!(empty.path.is_dir() && empty.packages.is_empty() && empty.modules.is_empty());
    let also = bench.installer().environment(&[], &Silent).await.unwrap();
    assert_eq!(also.digest, empty.digest);
}

#[tokio::test]
async fn requirements_with_the_same_versions_share_an_environment() {
    let bench = Bench::new();
    let installer = bench.installer();
    let loose = installer.environment(&list(&["six==1.17.0"]), &Silent).await.unwrap();
    let exact = installer.environment(&list(&["six>=1.17,<=1.17.0"]), &Silent).await.unwrap();
    assert_eq!(loose.path, exact.path);
    assert_eq!(bench.entries("environments"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_tasks_unpack_once() {
    let bench = Bench::new();
    // Four share an installer; four have one each, like separate processes.
    let shared = bench.installer();
    let installers = (0..8).map(|n| if n < 4 { shared.clone() } else { bench.installer() });
    let steps = Arc::new(Steps::default());
    let tasks: Vec<_> = installers
        .map(|installer: Installer| {
            let steps = Arc::clone(&steps);
            tokio::spawn(async move { installer.environment(&list(&["idna"]), &*steps).await })
        })
        .collect();
    let mut paths = Vec::new();
    for task in tasks {
        paths.push(task.await.unwrap().unwrap().path);
    }
    paths.dedup();
    assert_eq!((paths.len(), steps.unpackings()), (1, 1));
    assert_eq!((bench.entries("environments"), bench.entries("tmp")), (1, 0));
}

#[tokio::test]
async fn a_refresh_runs_the_resolver_again() {
    let bench = Bench::new();
    bench.installer().environment(&list(&["six"]), &Silent).await.unwrap();
    let failing = bench.script("failing-uv", "echo 'error: asked again' >&2; exit 1");
    let options = Options { uv: Some(failing), refresh: true, ..bench.options() };
    let asked = Installer::with(options).unwrap().environment(&list(&["six"]), &Silent).await;
    assert!(format!("{:?}", asked.unwrap_err()).contains("asked again"));
}

#[tokio::test]
async fn a_removed_environment_is_created_again_from_the_cached_lock() {
    let bench = Bench::new();
    let installer = bench.installer();
    let first = installer.environment(&list(&["six"]), &Silent).await.unwrap().digest;
    installer.gc(ByteSize(0)).unwrap();
    let steps = Steps::default();
    let again = installer.environment(&list(&["six"]), &steps).await.unwrap();
    assert_eq!((again.digest, steps.unpackings()), (first, 1));
}
