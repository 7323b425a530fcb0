//! Packages of the runtime that are installed where the platform is.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use snowmelt_package::{Installer, Options, Silent};

use crate::support::{Bench, list};

/// Unpacks the published wheel as pip does: with byte code, a program, and files of its own.
const INSTALL: &str = r#"
import os, sys, zipfile
wheel, site, tag = sys.argv[1:]
zipfile.ZipFile(wheel).extractall(site)
info = next(os.path.join(site, name) for name in os.listdir(site) if name.endswith(".dist-info"))
with open(os.path.join(info, "INSTALLER"), "w") as file:
    file.write("pip\n")
with open(os.path.join(info, "RECORD"), "a") as file:
    file.write("../../../bin/tool,sha256=00,2\npyarrow/__pycache__/lib.cpython-311.pyc,,\n")
with open(os.path.join(info, "WHEEL"), "a") as file:
    file.write(tag)
# Changed after the fact, so its line is, too.
record = open(os.path.join(info, "RECORD")).read().splitlines()
kept = [line for line in record if "/WHEEL," not in line]
with open(os.path.join(info, "RECORD"), "w") as file:
    file.write("\n".join(kept) + "\n")
"#;

/// A folder of packages with version 1.0 of this one.
fn installed(bench: &Bench, name: &str, tag: &str) -> PathBuf {
    let site = bench.folder.path().join(format!("site-{name}-{}", tag.len()));
    fs::create_dir(&site).unwrap();
    bench.publish(name, &[(&format!("{name}/__init__.py"), "VALUE = 'installed'")]);
    let wheel = bench.index().join(format!("{name}-1.0-py3-none-any.whl"));
    let mut install = Command::new(&bench.python.executable);
    install.args(["-I", "-S", "-c", INSTALL]).args([&wheel, &site]).arg(tag);
    assert!(install.status().unwrap().success());
    site
}

fn without_index(bench: &Bench, site: &Path) -> Installer {
    let uv = bench.script("no-uv", "echo 'error: uv was started' >&2; exit 1");
    let options = Options { uv: Some(uv), installed: vec![site.to_owned()], ..bench.options() };
    Installer::with(options).unwrap()
}

#[tokio::test]
async fn what_the_runtime_needs_is_taken_from_where_the_platform_is_installed() {
    let bench = Bench::new();
    let site = installed(&bench, "pyarrow", "");
    let installer = without_index(&bench, &site);
    let wanted = list(&["pyarrow>=1,<27"]);
    installer.resolve(&wanted, &Silent).await.unwrap();
    let made = installer.environment(&wanted, &Silent).await.unwrap();
    let shown: Vec<_> = made.packages.iter().map(ToString::to_string).collect();
    assert_eq!((shown, &made.modules), (list(&["pyarrow==1.0"]), &list(&["pyarrow"])));
    assert_eq!(bench.run(&made.path, "import pyarrow; print(pyarrow.VALUE)"), "installed");
    assert!(!made.path.join("pyarrow-1.0.dist-info/INSTALLER").exists());
    let version = "import importlib.metadata as m; print(m.version('pyarrow'))";
    assert_eq!(bench.run(&made.path, version), "1.0");
    assert!(installer.verify().unwrap().is_empty());
    // The copy is the platform's own.
    fs::remove_dir_all(site.join("pyarrow")).unwrap();
    assert_eq!(bench.run(&made.path, "import pyarrow; print(pyarrow.VALUE)"), "installed");
}

#[tokio::test]
async fn other_packages_versions_and_builds_are_left_to_the_resolver() {
    let bench = Bench::new();
    for (name, tag, requirement) in [
        // Nobody expects a function to depend on what else is installed.
        ("own", "", "own"),
        ("pyarrow", "", "pyarrow>=2"),
        // Built for one machine: its libraries are elsewhere on it.
        ("numpy", "Tag: cp311-cp311-linux_x86_64\n", "numpy"),
    ] {
        let site = installed(&bench, name, tag);
        let installer = without_index(&bench, &site);
        let refused = installer.environment(&list(&[requirement]), &Silent).await.unwrap_err();
        assert!(refused.to_string().contains("cannot be resolved"), "{requirement}: {refused}");
    }
    let site = installed(&bench, "pyarrow", "\n");
    let both = list(&["pyarrow", "own"]);
    assert!(without_index(&bench, &site).environment(&both, &Silent).await.is_err());
}

#[tokio::test]
async fn a_damaged_installed_package_is_fetched_from_the_index_instead() {
    let bench = Bench::new();
    let site = installed(&bench, "pyarrow", "");
    fs::write(site.join("pyarrow/__init__.py"), "VALUE = 'changed'  #").unwrap();
    let uv = Some(bench.local_uv(""));
    let options = Options { uv, installed: vec![site], ..bench.options() };
    let installer = Installer::with(options).unwrap();
    let made = installer.environment(&list(&["pyarrow"]), &Silent).await.unwrap();
    assert_eq!(bench.run(&made.path, "import pyarrow; print(pyarrow.VALUE)"), "installed");
}
