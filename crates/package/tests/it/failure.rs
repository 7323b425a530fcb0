//! Failed requests contain the resolver's messages and leave nothing behind.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use snowmelt_package::{Installer, Options, Silent};
use snowmelt_types::{ErrorReport, Report};

use crate::support::{Bench, list};

async fn refused(bench: &Bench, requirements: &[&str]) -> ErrorReport {
    let answer = bench.installer().environment(&list(requirements), &Silent).await;
    let report = answer.expect_err("it must be refused").report();
    for folder in ["environments", "memo", "tmp"] {
        assert_eq!(bench.entries(folder), 0, "left in {folder} by {requirements:?}");
    }
    report
}

#[tokio::test]
async fn an_unknown_package_is_reported() {
    let report = refused(&Bench::new(), &["snowmelt-no-such-package-1f3a", "six"]).await;
    assert_eq!(report.code, "SM-0301");
    assert!(report.message.contains("snowmelt-no-such-package-1f3a"), "{report}");
    assert!(report.excerpt.iter().any(|line| line.contains("was not found")), "{report}");
    assert!(report.hint.is_some());
}

#[tokio::test]
async fn an_unknown_version_and_a_contradiction_are_explained() {
    let bench = Bench::new();
    let unknown = refused(&bench, &["six==99.0"]).await;
    assert!(unknown.excerpt.iter().any(|line| line.contains("six==99.0")), "{unknown}");
    let contradiction = refused(&bench, &["idna<3", "idna>3"]).await;
    assert_eq!(contradiction.code, "SM-0301");
    assert!(contradiction.excerpt.iter().any(|l| l.contains("unsatisfiable")), "{contradiction}");
}

#[tokio::test]
async fn nothing_is_built_from_source() {
    let report = refused(&Bench::new(), &["sgmllib3k==1.0.0"]).await;
    assert_eq!(report.code, "SM-0301");
    assert!(report.hint.unwrap().contains("only wheels are used"));
}

#[tokio::test]
async fn an_option_never_reaches_the_resolver() {
    let bench = Bench::new();
    let marker = bench.folder.path().join("started");
    let uv = bench.script("watched-uv", &format!("touch {}; exit 1", marker.display()));
    let installer = Installer::with(Options { uv: Some(uv), ..bench.options() }).unwrap();
    for evil in [
        "--index-url=https://index.invalid/simple",
        "-r /etc/passwd",
        "six --hash=sha256:00",
        "six\n--index-url https://index.invalid",
        "pkg @ file:///etc",
        "../../somewhere",
        "six; python_version > '${HOME}'",
    ] {
        let refused = installer.environment(&list(&[evil]), &Silent).await.unwrap_err().report();
        assert_eq!(refused.code, "SM-0301", "{evil}");
        assert!(refused.hint.is_some() && !refused.message.contains('\n'), "{refused}");
    }
    assert!(!marker.exists());
}

#[tokio::test]
async fn an_unreachable_index_is_reported_as_such() {
    let bench = Bench::new();
    let text = format!(
        "UV_HTTP_RETRIES=0 UV_DEFAULT_INDEX=http://127.0.0.1:9/simple exec {} \"$@\"",
        bench.uv.display()
    );
    let away = bench.script("away-uv", &text);
    let options = |refresh| Options { uv: Some(away.clone()), refresh, ..bench.options() };
    let offline = Installer::with(options(false)).unwrap();
    let report = offline.environment(&list(&["six"]), &Silent).await.unwrap_err().report();
    assert_eq!(report.code, "SM-0304", "{report}");
    // Once the versions are cached, even a refresh works without the index.
    let known = bench.installer().environment(&list(&["six"]), &Silent).await.unwrap();
    let offline = Installer::with(options(true)).unwrap();
    let again = offline.environment(&list(&["six"]), &Silent).await.unwrap();
    assert_eq!(again.digest, known.digest);
}

#[tokio::test]
async fn a_missing_resolver_is_reported_with_the_command_to_install_it() {
    let bench = Bench::new();
    let options = Options { uv: Some("/nowhere/uv".into()), ..bench.options() };
    let answer = Installer::with(options).unwrap().environment(&list(&["six"]), &Silent).await;
    let report = answer.unwrap_err().report();
    assert_eq!(report.code, "SM-0303");
    assert!(report.message.contains("/nowhere/uv"), "{report}");
    let hint = report.hint.unwrap();
    assert!(hint.ends_with("-m pip install uv") || hint.contains("/usr/local/bin"), "{hint}");
}

#[tokio::test]
async fn a_hanging_resolver_is_killed() {
    let bench = Bench::new();
    let uv = bench.script("hanging-uv", "exec sleep 600");
    let resolve_limit = Duration::from_millis(50);
    let options = Options { uv: Some(uv), resolve_limit, ..bench.options() };
    let answer = Installer::with(options).unwrap().environment(&list(&["six"]), &Silent).await;
    assert!(answer.unwrap_err().to_string().starts_with("`resolving packages` did not end"));
}

/// A small file system, unmounted when this value is dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: PathBuf) -> Option<Self> {
        std::fs::create_dir(&at).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=2m,mode=700", "tmpfs"])
            .arg(&at)
            .status();
        mounted.is_ok_and(|status| status.success()).then_some(Self(at))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[tokio::test]
async fn a_full_disk_is_reported_and_leaves_nothing_incomplete() {
    let bench = Bench::new();
    let Some(_disk) = SmallDisk::mount(bench.store()) else {
        eprintln!("skipped: mounting a small file system needs root");
        return;
    };
    let wanted = list(&["phonenumbers==8.13.*"]);
    let report = bench.installer().environment(&wanted, &Silent).await.unwrap_err().report();
    assert_eq!(report.code, "SM-0506", "{report}");
    assert_eq!((bench.entries("environments"), bench.entries("tmp")), (0, 0));
}
