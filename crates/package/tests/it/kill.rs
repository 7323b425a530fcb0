//! kill -9 of an installing process during and between its steps: published folders are complete,
//! and the next process continues.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use snowmelt_package::{InstallProgress, Installer, Options, Python, Silent};

use crate::support::{Bench, list};

const STORE: &str = "SNOWMELT_TEST_STORE";
const MARKER: &str = "SNOWMELT_TEST_MARKER";
/// The step at which the process creates the marker, from 1; and whether it waits there.
const STEP: &str = "SNOWMELT_TEST_STEP";
const STAYS: &str = "SNOWMELT_TEST_STAYS";

const WANTED: [&str; 2] = ["alpha", "bravo"];

fn variable(name: &str) -> PathBuf {
    std::env::var_os(name).unwrap().into()
}

#[test]
#[ignore = "started and killed by the other tests"]
fn child_that_installs() {
    let python = Python::discover(None, &variable(STORE)).unwrap();
    let installer = Installer::with(Options::from_environment(variable(STORE), python).unwrap());
    let step: usize = std::env::var(STEP).unwrap().parse().unwrap();
    let stays = std::env::var_os(STAYS).is_some();
    let steps = AtomicUsize::new(0);
    let reporter = |_: &InstallProgress| {
        if steps.fetch_add(1, Relaxed) + 1 == step {
            fs::write(variable(MARKER), "").unwrap();
            if stays {
                std::thread::sleep(Duration::from_secs(600));
            }
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(installer.unwrap().environment(&list(&WANTED), &reporter)).unwrap();
}

struct Victims {
    bench: Bench,
    uv: PathBuf,
    marker: PathBuf,
}

impl Victims {
    fn new() -> Self {
        let bench = Bench::new();
        let modules: Vec<String> = (0..200).map(|n| format!("alpha/m{n}.py")).collect();
        let mut files: Vec<_> = modules.iter().map(|path| (path.as_str(), "ONE = 1\n")).collect();
        files.push(("alpha/__init__.py", "from alpha import m0, m199\n"));
        bench.publish("alpha", &files);
        bench.publish("bravo", &[("bravo.py", "TWO = 2\n")]);
        let uv = bench.local_uv("");
        let marker = bench.folder.path().join("marker");
        Self { bench, uv, marker }
    }

    fn start(&self, step: usize, stays: bool) -> Child {
        let _ = fs::remove_file(&self.marker);
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "kill::child_that_installs", "--ignored"]);
        command.env(STORE, self.bench.store()).env(MARKER, &self.marker);
        command.env(STEP, step.to_string()).env("SNOWMELT_UV", &self.uv);
        command.env("SNOWMELT_PYTHON", &self.bench.python.executable);
        if stays {
            command.env(STAYS, "1");
        }
        command.stdout(std::process::Stdio::null()).spawn().unwrap()
    }

    /// Whether the child reached its step; false if it finished before.
    fn reached(&self, child: &mut Child) -> bool {
        while !self.marker.exists() {
            if let Some(status) = child.try_wait().unwrap() {
                assert!(status.success(), "the child failed");
                return self.marker.exists();
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        true
    }

    /// Published folders are complete, an installation succeeds, and nothing is left over.
    async fn recover(&self, wheels_before: usize) {
        let options = || Options { uv: Some(self.uv.clone()), ..self.bench.options() };
        let installer = Installer::with(options()).unwrap();
        assert_eq!(installer.verify().unwrap(), [], "an incomplete wheel was published");
        let made = installer.environment(&list(&WANTED), &Silent).await.unwrap();
        let unpacked = installer.counts().wheel_misses;
        assert_eq!(wheels_before as u64 + unpacked, 2, "complete wheels are not created again");
        let code = "import alpha, bravo; print(alpha.m0.ONE + alpha.m199.ONE + bravo.TWO)";
        assert_eq!(self.bench.run(&made.path, code), "4");
        assert_eq!(fs::read_dir(made.path.join("alpha")).unwrap().count(), 202);
        // A uv whose parent was killed may still write for a moment.
        while self.bench.entries("tmp") > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
            Installer::with(options()).unwrap();
        }
        drop(made);
        for folder in ["environments", "wheels"] {
            empty(&self.bench.store().join(folder));
        }
    }

    fn published(&self) -> usize {
        let wheels = fs::read_dir(self.bench.store().join("wheels"));
        // An existing environment needs no wheels, so none is requested.
        if fs::read_dir(self.bench.store().join("environments")).is_ok_and(|all| all.count() > 0) {
            return 2;
        }
        wheels.map_or(0, Iterator::count)
    }
}

fn empty(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap() {
        fs::remove_dir_all(entry.unwrap().path()).unwrap();
    }
}

#[tokio::test]
async fn killed_at_each_step() {
    let victims = Victims::new();
    for step in 1.. {
        let mut child = victims.start(step, true);
        let reached = victims.reached(&mut child);
        let _ = child.kill();
        child.wait().unwrap();
        victims.recover(victims.published()).await;
        if !reached {
            // Unpacking, verifying and compiling twice, linking; resolving only the first time.
            assert_eq!(step, 8, "the steps are {} now", step - 1);
            break;
        }
    }
}

#[tokio::test]
async fn killed_between_steps() {
    let victims = Victims::new();
    victims.recover(0).await;
    // While a wheel is flushed and renamed; while the environment is linked and renamed.
    for (step, delay) in [(5, 0), (6, 30), (6, 60), (7, 0), (7, 2), (7, 4), (7, 8)] {
        let mut child = victims.start(step, false);
        assert!(victims.reached(&mut child));
        std::thread::sleep(Duration::from_millis(delay));
        let _ = child.kill();
        child.wait().unwrap();
        victims.recover(victims.published()).await;
    }
}

#[tokio::test]
async fn two_processes_share_the_work() {
    let victims = Victims::new();
    let log = victims.bench.folder.path().join("log");
    victims.bench.local_uv(&format!("echo \"$2\" >>{}", log.display()));
    let mut children = [victims.start(usize::MAX, false), victims.start(usize::MAX, false)];
    for child in &mut children {
        assert!(child.wait().unwrap().success());
    }
    let log = fs::read_to_string(log).unwrap();
    let times = |what: &str| log.lines().filter(|line| *line == what).count();
    assert_eq!((times("compile"), times("install")), (1, 2), "{log}");
    victims.recover(2).await;
}
