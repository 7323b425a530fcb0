//! One folder per wheel, shared by all sets that contain it.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use snowmelt_package::{
    Environment, Error, InstallProgress, Installer, Options, Silent, WheelConflict,
};
use snowmelt_types::Digest;

use crate::support::{Bench, Steps, list};

fn inode(path: &Path) -> u64 {
    fs::metadata(path).unwrap().ino()
}

/// Unpacked packages, in the order in which unpacking started.
fn unpacked(steps: &Steps) -> Vec<String> {
    let steps = steps.0.lock().unwrap();
    let names = steps.iter().filter_map(|step| match step {
        InstallProgress::Unpacking { packages } => {
            Some(packages.iter().map(|one| one.name.clone()))
        }
        _ => None,
    });
    names.flatten().collect()
}

fn digest_of(environment: &Environment, name: &str) -> Digest {
    environment.wheels.iter().find(|wheel| wheel.name == name).unwrap().digest.clone()
}

#[tokio::test]
async fn a_second_set_unpacks_only_new_wheels() {
    let bench = Bench::new();
    let installer = bench.installer();
    let one = installer.environment(&list(&["six"]), &Silent).await.unwrap();
    let steps = Steps::default();
    let two = installer.environment(&list(&["six", "idna"]), &steps).await.unwrap();
    assert_eq!(unpacked(&steps), ["idna"]);
    let wheel = bench.store().join("wheels").join(digest_of(&one, "six").as_str()).join("site");
    assert_eq!(digest_of(&one, "six"), digest_of(&two, "six"));
    let byte_code = bench.run(&two.path, "import six; print(six.__cached__)");
    let byte_code = Path::new(&byte_code).strip_prefix(&two.path).unwrap();
    for file in [Path::new("six.py"), byte_code] {
        let inodes = [&one.path, &two.path, &wheel].map(|folder| inode(&folder.join(file)));
        assert_eq!([inodes[0]; 3], inodes, "{}", file.display());
    }
    assert_eq!(bench.run(&two.path, "import idna, six; print(six.__name__)"), "six");
    let counts = installer.counts();
    assert_eq!((counts.environment_hits, counts.environment_misses), (0, 2));
    assert_eq!((counts.wheel_hits, counts.wheel_misses), (1, 2));
    assert!(counts.bytes.bytes() > 100_000 && counts.bytes <= installer.size());
}

#[tokio::test]
async fn compiled_modules_work_and_private_modules_are_listed() {
    let bench = Bench::new();
    let made = bench.installer().environment(&list(&["cffi"]), &Silent).await.unwrap();
    assert_eq!(made.modules, ["cffi"], "only public modules of requested packages");
    let wheels: Vec<_> = made.wheels.iter().map(|one| (&*one.name, one.modules.clone())).collect();
    assert_eq!(wheels[0], ("cffi", list(&["_cffi_backend", "cffi"])));
    assert_eq!(wheels[1], ("pycparser", list(&["pycparser"])));
    let native = bench.run(&made.path, "import _cffi_backend as b; print(b.__file__)");
    assert!(native.ends_with(".so") && Path::new(&native).starts_with(&made.path), "{native}");
}

#[tokio::test]
async fn a_subset_contains_exactly_its_wheels_and_needs_no_resolver() {
    let bench = Bench::new();
    let whole = bench.installer().environment(&list(&["cffi", "six"]), &Silent).await.unwrap();
    let keep = BTreeSet::from([digest_of(&whole, "pycparser"), digest_of(&whole, "six")]);
    let installer = bench.without_uv();
    let from = whole.clone();
    let kept = keep.clone();
    let task =
        tokio::spawn(
            async move { (installer.subset(&from, &kept).await.unwrap(), installer.counts()) },
        );
    let (part, counts) = task.await.unwrap();
    assert_eq!((counts.environment_misses, counts.wheel_hits, counts.wheel_misses), (1, 2, 0));
    assert_eq!(part.modules, ["six"], "pycparser was not requested");
    assert_eq!(part.wheels.iter().map(|one| one.digest.clone()).collect::<BTreeSet<_>>(), keep);
    assert!(part.size < whole.size);
    let finds = "import importlib.util as u; \
                 print([bool(u.find_spec(m)) for m in ('six', 'pycparser', 'cffi', '_cffi_backend')])";
    assert_eq!(bench.run(&part.path, finds), "[True, True, False, False]");

    let installer = bench.without_uv();
    assert_eq!(installer.subset(&whole, &keep).await.unwrap().path, part.path);
    assert_eq!(installer.counts().environment_hits, 1);
    let all = whole.wheels.iter().map(|one| one.digest.clone()).collect();
    assert_eq!(installer.subset(&whole, &all).await.unwrap().path, whole.path);
    let nothing = installer.subset(&whole, &BTreeSet::new()).await.unwrap();
    assert!(nothing.packages.is_empty() && fs::read_dir(&nothing.path).unwrap().next().is_none());
    let foreign = installer.subset(&part, &BTreeSet::from([digest_of(&whole, "cffi")])).await;
    assert!(matches!(foreign, Err(Error::NoSuchWheel { .. })), "{foreign:?}");
}

#[tokio::test]
async fn conflicting_files_are_resolved_by_name_and_recorded() {
    let bench = Bench::new();
    let same = ("shared/same.py", "SAME = True\n");
    bench.publish("bravo", &[same, ("shared/__init__.py", "OF = 'bravo'\n"), ("shared/b.py", "")]);
    bench.publish("alpha", &[same, ("shared/__init__.py", "OF = 'alpha'\n"), ("shared/a.py", "")]);
    let options = Options { uv: Some(bench.local_uv("")), ..bench.options() };
    let installer = Installer::with(options).unwrap();
    let made = installer.environment(&list(&["bravo", "alpha"]), &Silent).await.unwrap();
    let conflict = WheelConflict {
        file: "shared/__init__.py".to_owned(),
        kept: "alpha".to_owned(),
        lost: "bravo".to_owned(),
    };
    assert_eq!(made.conflicts, [conflict]);
    let code =
        "import shared, shared.a, shared.b, shared.same; print(shared.OF, shared.__cached__)";
    let said = bench.run(&made.path, code);
    assert!(said.starts_with("alpha /"), "{said}");
    // A subset without the conflict is complete.
    let alone = BTreeSet::from([digest_of(&made, "bravo")]);
    let alone = installer.subset(&made, &alone).await.unwrap();
    assert_eq!(
        (alone.conflicts.len(), bench.run(&alone.path, "import shared; print(shared.OF)")),
        (0, "bravo".to_owned())
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_sets_share_their_common_wheel() {
    let bench = Bench::new();
    for name in ["alpha", "bravo", "common"] {
        bench.publish(name, &[(&format!("{name}.py"), "")]);
    }
    let uv = bench.local_uv("");
    let steps = Arc::new(Steps::default());
    let tasks: Vec<_> = ["alpha", "bravo"]
        .map(|name| {
            // One installer each, like two processes.
            let options = Options { uv: Some(uv.clone()), ..bench.options() };
            let installer = Installer::with(options).unwrap();
            let steps = Arc::clone(&steps);
            tokio::spawn(async move {
                installer.environment(&list(&[name, "common"]), &*steps).await.unwrap()
            })
        })
        .into();
    for (task, name) in tasks.into_iter().zip(["alpha", "bravo"]) {
        bench.run(&task.await.unwrap().path, &format!("import common, {name}"));
    }
    let mut unpacked = unpacked(&steps);
    unpacked.sort();
    assert_eq!(unpacked, ["alpha", "bravo", "common"]);
}

#[tokio::test]
async fn an_uploaded_wheel_is_installed_by_its_content() {
    let bench = Bench::new();
    let installer = Installer::with(Options { uv: Some(bench.local_uv("")), ..bench.options() });
    let installer = installer.unwrap();
    let mut given = Vec::new();
    for text in ["VALUE = 1\n", "VALUE = 2\n"] {
        bench.publish("own_pkg", &[("own_pkg.py", text)]);
        let file = "own_pkg-1.0-py3-none-any.whl";
        let content = fs::read(bench.index().join(file)).unwrap();
        fs::remove_file(bench.index().join(file)).unwrap();
        given.push(installer.keep_wheel(file.to_owned(), content).await.unwrap());
    }
    assert_ne!(given[0], given[1], "one name and version, two contents");
    for (requirement, value) in given.iter().zip(["1", "2"]) {
        let made = installer.environment(&list(&[requirement.as_str()]), &Silent).await.unwrap();
        assert_eq!(bench.run(&made.path, "import own_pkg; print(own_pkg.VALUE)"), value);
        assert_eq!(made.modules, ["own_pkg"]);
        assert_eq!(made.packages[0].to_string(), "own-pkg==1.0");
    }
    // A missing wheel is reported, and no file of the host is read instead.
    let absent = given[0].replace("sha256:", "sha256:0").replace(".whl", "");
    for wrong in [absent, "own-pkg @ file:///etc/own_pkg-1.0-py3-none-any.whl".to_owned()] {
        let refused = installer.environment(&[wrong], &Silent).await.unwrap_err();
        assert!(matches!(refused, Error::Requirement { .. }), "{refused}");
    }
    let unknown = format!("own @ sha256:{}/own-1-py3-none-any.whl", "0".repeat(64));
    let refused = installer.environment(&[unknown], &Silent).await.unwrap_err();
    assert!(matches!(refused, Error::UploadedWheelMissing { .. }), "{refused}");
}
