//! A separate store for each test, and scripts that observe or replace `uv`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use snowmelt_package::{InstallProgress, Installer, Options, Python, Reporter, Uv};
use tempfile::TempDir;

pub struct Bench {
    pub folder: TempDir,
    pub python: Python,
    pub uv: PathBuf,
}

impl Bench {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let python = Python::discover(None, &folder.path().join("python")).unwrap();
        let named = std::env::var_os("SNOWMELT_UV").map(PathBuf::from);
        let uv = Uv::find(named.as_deref(), &python).expect("these tests need a real uv");
        let uv = uv.program().to_owned();
        Self { folder, python, uv }
    }

    pub fn store(&self) -> PathBuf {
        self.folder.path().join("packages")
    }

    pub fn options(&self) -> Options {
        let mut options = Options::from_environment(self.store(), self.python.clone()).unwrap();
        options.uv = Some(self.uv.clone());
        options.refresh = false;
        options
    }

    pub fn installer(&self) -> Installer {
        Installer::with(self.options()).unwrap()
    }

    /// An installer whose resolver always fails.
    pub fn without_uv(&self) -> Installer {
        let uv = self.script("no-uv", "echo 'error: uv was started' >&2; exit 1");
        Installer::with(Options { uv: Some(uv), ..self.options() }).unwrap()
    }

    pub fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// The interpreter's output with the environment on its path.
    pub fn run(&self, site: &Path, code: &str) -> String {
        let path = format!("import sys; sys.path.insert(0, {:?}); {code}", site.to_str().unwrap());
        let answer =
            Command::new(&self.python.executable).args(["-I", "-S", "-c", &path]).output().unwrap();
        assert!(answer.status.success(), "{}", String::from_utf8_lossy(&answer.stderr));
        String::from_utf8(answer.stdout).unwrap().trim().to_owned()
    }

    /// The number of entries in a folder of the store.
    pub fn entries(&self, folder: &str) -> usize {
        fs::read_dir(self.store().join(folder)).unwrap().count()
    }
}

pub fn list(requirements: &[&str]) -> Vec<String> {
    requirements.iter().map(|one| (*one).to_owned()).collect()
}

/// Stores the reported steps.
#[derive(Default)]
pub struct Steps(pub Mutex<Vec<InstallProgress>>);

impl Reporter for Steps {
    fn step(&self, progress: &InstallProgress) {
        self.0.lock().unwrap().push(progress.clone());
    }
}

impl Steps {
    pub fn unpackings(&self) -> usize {
        let steps = self.0.lock().unwrap();
        steps.iter().filter(|step| matches!(step, InstallProgress::Unpacking { .. })).count()
    }
}
