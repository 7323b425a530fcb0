//! kill -9 at the worst moment: incomplete results are never used, and the next start removes them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use snowmelt_package::{Installer, Options, Silent};

use crate::support::{Bench, list};

const STORE: &str = "SNOWMELT_TEST_STORE";

/// A uv that unpacks for real, removes one file, reports that, and then hangs.
fn interrupted_uv(bench: &Bench, unpacked: &Path) -> PathBuf {
    let text = format!(
        "if [ \"$2\" != install ]; then exec {uv} \"$@\"; fi\n\
         {uv} \"$@\" || exit 1\n\
         while [ $# -gt 0 ]; do [ \"$1\" = --target ] && rm \"$2/six.py\"; shift; done\n\
         echo $$ >{marker}.new; mv {marker}.new {marker}\n\
         exec sleep 600",
        uv = bench.uv.display(),
        marker = unpacked.display()
    );
    bench.script("interrupted-uv", &text)
}

#[test]
#[ignore = "started and killed by the next test"]
fn child_that_installs() {
    let store = std::env::var_os(STORE).unwrap();
    let uv = std::env::var_os("SNOWMELT_UV").unwrap();
    let python = snowmelt_package::Python::discover(None, Path::new(&store)).unwrap();
    let options = Options::from_environment(store.into(), python).unwrap();
    let installer = Installer::with(Options { uv: Some(uv.into()), ..options }).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _never = runtime.block_on(installer.environment(&list(&["six==1.17.0"]), &Silent));
}

fn start_child(bench: &Bench, uv: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::child_that_installs", "--ignored"])
        .env(STORE, bench.store())
        .env("SNOWMELT_UV", uv)
        .spawn()
        .unwrap()
}

fn wait_for(marker: &Path, child: &mut Child) {
    while !marker.exists() {
        assert!(child.try_wait().unwrap().is_none(), "the child ended before it unpacked");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn kill(pid: &str) {
    // It may have ended with its process.
    let _ = Command::new("kill").args(["-9", pid]).stderr(Stdio::null()).status().unwrap();
}

#[tokio::test]
async fn an_interrupted_installation_is_not_used_and_is_removed() {
    let bench = Bench::new();
    let marker = bench.folder.path().join("unpacked");
    let mut child = start_child(&bench, &interrupted_uv(&bench, &marker));
    wait_for(&marker, &mut child);
    // While its process runs, a second process neither uses nor removes it.
    let installer = bench.installer();
    assert_eq!((bench.entries("tmp"), bench.entries("environments")), (1, 0));
    child.kill().unwrap();
    child.wait().unwrap();
    kill(fs::read_to_string(&marker).unwrap().trim());
    assert_eq!(bench.entries("tmp"), 1, "no process has removed it yet");

    drop(installer);
    let installer = bench.installer();
    assert_eq!(bench.entries("tmp"), 0);
    let made = installer.environment(&list(&["six==1.17.0"]), &Silent).await.unwrap();
    assert_eq!(bench.run(&made.path, "import six; print(six.__version__)"), "1.17.0");
}

#[tokio::test]
async fn an_incomplete_package_is_detected_and_not_published() {
    let bench = Bench::new();
    let text = format!(
        "{uv} \"$@\" || exit 1\n\
         while [ $# -gt 0 ]; do [ \"$1\" = --target ] && rm \"$2/six.py\" && : >\"$2/six.py\"; shift; done",
        uv = bench.uv.display()
    );
    let uv = bench.script("damaging-uv", &text);
    let installer = Installer::with(Options { uv: Some(uv), ..bench.options() }).unwrap();
    let refused = installer.environment(&list(&["six"]), &Silent).await.unwrap_err().to_string();
    assert!(refused.contains("six.py") && refused.contains("0 bytes"), "{refused}");
    assert_eq!((bench.entries("environments"), bench.entries("tmp")), (0, 0));
    assert!(bench.installer().environment(&list(&["six"]), &Silent).await.is_ok());
}

#[tokio::test]
async fn dropping_the_future_leaves_nothing_behind() {
    let bench = Bench::new();
    let marker = bench.folder.path().join("unpacked");
    let uv = interrupted_uv(&bench, &marker);
    let installer = Installer::with(Options { uv: Some(uv), ..bench.options() }).unwrap();
    let seen = async {
        while !marker.exists() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let wanted = list(&["six"]);
    tokio::select! {
        answer = installer.environment(&wanted, &Silent) => panic!("ended: {answer:?}"),
        () = seen => {}
    }
    assert_eq!((bench.entries("environments"), bench.entries("tmp")), (0, 0));
    let pid = fs::read_to_string(&marker).unwrap();
    let stat = format!("/proc/{}/stat", pid.trim());
    while fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z")) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn an_environment_without_a_manifest_is_created_again() {
    let bench = Bench::new();
    let made = bench.installer().environment(&list(&["six"]), &Silent).await.unwrap();
    fs::write(made.path.parent().unwrap().join("environment.json"), "{").unwrap();
    fs::remove_file(made.path.join("six.py")).unwrap();
    let path = made.path.clone();
    let digest = made.digest.clone();
    drop(made);
    let again = bench.installer().environment(&list(&["six"]), &Silent).await.unwrap();
    assert_eq!((&again.digest, &again.path), (&digest, &path));
    assert!(path.join("six.py").is_file());
}
