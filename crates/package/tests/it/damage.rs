//! Files that a disk or another process changed after they were verified.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use snowmelt_package::{Environment, Error, Silent};

use crate::support::{Bench, list};

fn wheel_of(bench: &Bench, environment: &Environment) -> PathBuf {
    bench.store().join("wheels").join(environment.wheels[0].digest.as_str())
}

#[tokio::test]
async fn a_changed_file_is_detected_and_fetched_again() {
    let bench = Bench::new();
    let installer = bench.installer();
    let made = installer.environment(&list(&["six"]), &Silent).await.unwrap();
    assert_eq!(installer.verify().unwrap(), []);
    // Changed in place: the same file is in the environment and in uv's cache.
    let text = fs::read_to_string(made.path.join("six.py")).unwrap();
    fs::write(made.path.join("six.py"), text.replacen("Benjamin", "Benjamim", 1)).unwrap();

    let found = installer.verify().unwrap();
    assert_eq!((found.len(), found[0].package.as_deref()), (1, Some("six")));
    assert!(found[0].reason.contains("six.py") && !found[0].removed, "{found:?}");
    assert!(made.path.is_dir(), "it is in use");
    drop(made);
    assert!(installer.verify().unwrap()[0].removed);
    assert_eq!((bench.entries("wheels"), bench.entries("environments")), (0, 0));

    let again = installer.environment(&list(&["six"]), &Silent).await.unwrap();
    assert_eq!(fs::read_to_string(again.path.join("six.py")).unwrap(), text);
    assert_eq!(installer.verify().unwrap(), []);
}

#[tokio::test]
async fn a_wheel_with_missing_files_is_not_linked() {
    let bench = Bench::new();
    let installer = bench.installer();
    let six = installer.environment(&list(&["six", "idna"]), &Silent).await.unwrap();
    let digest = six.wheels.iter().find(|one| one.name == "six").unwrap().digest.clone();
    let six_py = bench.store().join("wheels").join(digest.as_str()).join("site/six.py");
    fs::remove_file(&six_py).unwrap();
    let keep = BTreeSet::from([digest]);
    let refused = installer.subset(&six, &keep).await;
    assert!(matches!(refused, Err(Error::WheelMissing { .. })), "{refused:?}");
    // An installer with access to the index fetches it again; then the subset can be created.
    let made = installer.environment(&list(&["six"]), &Silent).await.unwrap();
    assert!(made.path.join("six.py").is_file() && six_py.is_file());
    assert!(installer.subset(&six, &keep).await.is_ok());
}

#[tokio::test]
async fn a_wheel_without_a_manifest_is_created_again() {
    let bench = Bench::new();
    let installer = bench.installer();
    let made = installer.environment(&list(&["six"]), &Silent).await.unwrap();
    let wheel = wheel_of(&bench, &made);
    fs::write(wheel.join("wheel.json"), "{").unwrap();
    fs::write(wheel.join("site/evil.py"), "").unwrap();
    drop(made);
    fs::remove_dir_all(bench.store().join("environments")).unwrap();
    bench.installer();
    assert!(!wheel.exists(), "it cannot be used");
    let again = bench.installer().environment(&list(&["six"]), &Silent).await.unwrap();
    assert!(!wheel.join("site/evil.py").exists() && !again.path.join("evil.py").exists());
}
