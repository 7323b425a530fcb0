//! The Python interpreters of user code: the platform's own, and others for code that asks for
//! another version. Each has its own installer and runtime, over the same stores.
//!
//! Invariant: the choice depends on the requirements alone, so the same code gets the same
//! interpreter on one host, whoever prepares it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use snowmelt_api::InstallFigures;
use snowmelt_package::{Environment, Installer, Python, Runtime, WantedPython};
use tokio::sync::OnceCell;

use crate::Result;

/// An interpreter with all that its functions need of the platform.
#[derive(Debug)]
pub(crate) struct Interpreter {
    pub python: Python,
    pub installer: Installer,
    pub runtime: Runtime,
}

/// Installed packages, with the interpreter that they are for.
#[derive(Debug)]
pub(crate) struct Installed {
    pub environment: Environment,
    pub interpreter: Arc<Interpreter>,
    /// The modules of the packages and of the standard library that a zygote imports.
    pub modules: Vec<String>,
}

/// The opened interpreters by the paths of their programs: at most one for each version that is
/// looked for. A cell is empty while its interpreter is being opened.
type OpenedInterpreters = HashMap<PathBuf, Arc<OnceCell<Arc<Interpreter>>>>;

/// The interpreters of a node, opened when they are needed.
#[derive(Debug)]
pub(crate) struct Interpreters {
    state_dir: PathBuf,
    /// The program that the user chose as the platform's interpreter; `None` to look for one.
    named: Option<PathBuf>,
    /// The user besides root and that of the process to whom packages may belong.
    trusted: Option<u32>,
    // Asked for at the first user function only: a plain query needs none.
    default: OnceCell<Python>,
    opened: Mutex<OpenedInterpreters>,
}

impl Interpreters {
    pub fn new(state_dir: PathBuf, named: Option<PathBuf>, trusted: Option<u32>) -> Self {
        Self { state_dir, named, trusted, default: OnceCell::new(), opened: Mutex::default() }
    }

    /// Returns the interpreter for code with these requirements, and the requirements that are
    /// packages.
    pub async fn of(&self, requirements: &[String]) -> Result<(Arc<Interpreter>, Vec<String>)> {
        let (wanted, packages) = WantedPython::split(requirements)?;
        let default = self.default_python().await?;
        let python = match wanted.is_any() {
            true => default.clone(),
            false => Python::choose(&wanted, default, &self.state_dir).await?,
        };
        Ok((self.open(python).await?, packages))
    }

    /// Returns the platform's own interpreter.
    pub async fn default(&self) -> Result<Arc<Interpreter>> {
        self.open(self.default_python().await?.clone()).await
    }

    async fn default_python(&self) -> Result<&Python> {
        let find = async || Python::discover(self.named.as_deref(), &self.state_dir);
        Ok(self.default.get_or_try_init(find).await?)
    }

    async fn open(&self, python: Python) -> Result<Arc<Interpreter>> {
        let cell = Arc::clone(self.opened().entry(python.executable.clone()).or_default());
        let state = &self.state_dir;
        let open = async || -> Result<Arc<Interpreter>> {
            let packages = state.join("packages");
            let installer = Installer::trusting(packages, python.clone(), self.trusted)?;
            let runtime = snowmelt_package::runtime_files(state, &python)?;
            Ok(Arc::new(Interpreter { python: python.clone(), installer, runtime }))
        };
        Ok(Arc::clone(cell.get_or_try_init(open).await?))
    }

    /// Returns the sums of the install figures of all interpreters; the bytes are those of the one
    /// store that they share.
    pub fn installs(&self) -> InstallFigures {
        let mut figures = InstallFigures::default();
        for interpreter in self.opened().values().filter_map(|cell| cell.get()) {
            let counts = interpreter.installer.counts();
            figures.environment_hits += counts.environment_hits;
            figures.environment_misses += counts.environment_misses;
            figures.wheel_hits += counts.wheel_hits;
            figures.wheel_misses += counts.wheel_misses;
            figures.bytes = figures.bytes.max(counts.bytes.bytes());
        }
        figures
    }

    fn opened(&self) -> std::sync::MutexGuard<'_, OpenedInterpreters> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn code_that_asks_for_the_default_version_shares_the_default_interpreter() {
        let state = tempfile::tempdir().unwrap();
        let interpreters = Interpreters::new(state.path().to_owned(), None, None);
        let default = interpreters.default().await.unwrap();
        let version = format!("python=={}", default.python.minor_version());
        let asked = ["six".to_owned(), version, "python>=3.10".to_owned()];
        let (found, packages) = interpreters.of(&asked).await.unwrap();
        assert!(Arc::ptr_eq(&found, &default));
        assert_eq!(packages, ["six"]);
        let (found, packages) = interpreters.of(&[]).await.unwrap();
        assert!(Arc::ptr_eq(&found, &default) && packages.is_empty());
        let refused = interpreters.of(&["python==3.9".to_owned()]).await.unwrap_err();
        assert!(refused.to_string().contains("python==3.9"), "{refused}");
    }
}
