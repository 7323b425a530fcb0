//! The size limit of the store.

use std::fs;
use std::path::PathBuf;

use snowmelt_package::{Environment, Installer, Options, Silent};
use snowmelt_types::ByteSize;

use crate::support::{Bench, list};

fn wheel(bench: &Bench, environment: &Environment) -> PathBuf {
    bench.store().join("wheels").join(environment.wheels[0].digest.as_str())
}

#[tokio::test]
async fn frees_space_in_lru_order_and_keeps_environments_in_use() {
    let bench = Bench::new();
    let installer = bench.installer();
    let used = installer.environment(&list(&["six"]), &Silent).await.unwrap();
    let unused = installer.environment(&list(&["idna"]), &Silent).await.unwrap();
    let gone = [wheel(&bench, &unused), unused.path.clone()];
    drop(unused);
    let before = installer.size();
    let done = installer.gc(ByteSize(0)).unwrap();
    assert_eq!((done.environments, done.wheels), (1, 1));
    assert!(used.path.is_dir() && wheel(&bench, &used).is_dir(), "{done:?}");
    assert!(gone.iter().all(|path| !path.exists()));
    assert!(!bench.store().join("cache").exists());
    assert_eq!(done.freed.bytes() + done.left.bytes(), before.bytes());
    assert_eq!(installer.size(), done.left);
    assert!(installer.counts().bytes <= done.left);
    assert_eq!(bench.run(&used.path, "import six; print(six.__name__)"), "six");
    drop(used);
    assert_eq!(installer.gc(ByteSize::mib(1024)).unwrap().environments, 0);
    let done = installer.gc(ByteSize(0)).unwrap();
    assert_eq!((done.environments, done.wheels), (1, 1));
    assert_eq!(installer.counts().bytes, ByteSize(0));
}

/// Functions that are deployed and do not run hold no environment.
#[tokio::test]
async fn pruning_removes_what_it_counted_and_keeps_what_is_held() {
    let bench = Bench::new();
    for name in ["deployed", "unused"] {
        bench.publish(name, &[(&format!("{name}.py"), "")]);
    }
    let uv = Some(bench.local_uv(""));
    let installer = Installer::with(Options { uv, ..bench.options() }).unwrap();
    let install = async |name: &str| installer.environment(&list(&[name]), &Silent).await.unwrap();
    let [kept, gone] = [install("deployed").await.path, install("unused").await.path];
    assert!(installer.hold(&list(&["never-installed"])).unwrap().is_none());
    let held = installer.hold(&list(&["deployed"])).unwrap().expect("it is installed");
    let counted = installer.prune(true).unwrap();
    assert!(kept.is_dir() && gone.is_dir(), "a count removes nothing");
    let removed = installer.prune(false).unwrap();
    assert_eq!((removed.environments, removed.wheels), (1, 1));
    assert_eq!((counted.environments, counted.wheels), (1, 1));
    assert!(kept.is_dir() && !gone.exists());
    assert!(removed.freed.bytes() > 0);
    let missed = installer.counts().environment_misses;
    install("deployed").await;
    assert_eq!(installer.counts().environment_misses, missed, "it needs no index");
    drop(held);
    assert_eq!(installer.prune(true).unwrap().environments, 1);
}

#[tokio::test]
async fn removes_the_least_recently_used_environment_first() {
    let bench = Bench::new();
    let filler = "x".repeat(1 << 16);
    for name in ["first", "second", "third"] {
        bench.publish(name, &[(&format!("{name}.txt"), &filler), (&format!("{name}.py"), "")]);
    }
    let uv = Some(bench.local_uv(""));
    let installer = Installer::with(Options { uv, ..bench.options() }).unwrap();
    let install = async |name: &str| installer.environment(&list(&[name]), &Silent).await.unwrap();
    for name in ["first", "second", "third", "first"] {
        install(name).await;
    }
    installer.gc(ByteSize(installer.counts().bytes.bytes() - 1)).unwrap();
    let missed = installer.counts().environment_misses;
    for (name, made) in [("first", 0), ("third", 0), ("second", 1)] {
        install(name).await;
        assert_eq!(installer.counts().environment_misses, missed + made, "{name}");
    }
}

#[tokio::test]
async fn an_installation_above_the_limit_removes_unused_packages() {
    let bench = Bench::new();
    for name in ["used", "unused", "last"] {
        bench.publish(name, &[(&format!("{name}.py"), "")]);
    }
    let options =
        Options { uv: Some(bench.local_uv("")), max_size: ByteSize(1), ..bench.options() };
    let installer = Installer::with(options).unwrap();
    let used = installer.environment(&list(&["used"]), &Silent).await.unwrap();
    let unused = installer.environment(&list(&["unused"]), &Silent).await.unwrap().path;
    assert!(unused.is_dir(), "it was in use when its own installation checked the limit");
    let last = installer.environment(&list(&["last"]), &Silent).await.unwrap();
    assert!(used.path.is_dir() && last.path.is_dir() && !unused.exists());
    assert_eq!((bench.entries("environments"), bench.entries("wheels")), (2, 2));
    // A cache hit creates nothing and therefore removes nothing.
    let hit = installer.environment(&list(&["used"]), &Silent).await.unwrap();
    assert_eq!(hit.path, used.path);
    assert_eq!(fs::read_dir(bench.store().join("tmp")).unwrap().count(), 0);
}

#[tokio::test]
async fn a_shared_wheel_is_removed_with_the_last_environment_that_has_it() {
    let bench = Bench::new();
    for name in ["common", "other"] {
        bench.publish(name, &[(&format!("{name}.py"), "")]);
    }
    let uv = Some(bench.local_uv(""));
    let installer = Installer::with(Options { uv, ..bench.options() }).unwrap();
    let alone = installer.environment(&list(&["common"]), &Silent).await.unwrap();
    let both = installer.environment(&list(&["common", "other"]), &Silent).await.unwrap();
    let common = wheel(&bench, &alone);
    drop(alone);
    let done = installer.gc(ByteSize(0)).unwrap();
    assert_eq!((done.environments, done.wheels), (1, 0));
    assert!(common.is_dir());
    drop(both);
    let done = installer.gc(ByteSize(0)).unwrap();
    assert_eq!((done.environments, done.wheels), (1, 2));
    assert!(!common.exists());
}
