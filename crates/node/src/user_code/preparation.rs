//! The way from code and requirements to a [`Unit`] of which instances can be started: stores of
//! code and packages, interpreters, and mounted images.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use snowmelt_api::InstallFigures;
use snowmelt_package::{EnvironmentLease, Python, Reclaimed, Reporter};
use snowmelt_types::{Code, Digest, ErrorReport, Tenant};
use snowmelt_wire::SourceCode;

use super::interpreters::{Installed, Interpreters};
use super::programs;
use crate::files::function_files::Budget;
use crate::images::{ImageKeeper, TreePlace};
use crate::{CodeStore, Error, FileStore, InstanceLimits, Language, ProgramRequest, Result, Unit};

/// The stores, interpreters and images with which units are prepared.
#[derive(Debug)]
pub struct Preparation {
    /// The state folder: packages, code and the Python runtime live in it, by content.
    pub(crate) state_dir: PathBuf,
    pub(crate) interpreters: Interpreters,
    pub(crate) codes: CodeStore,
    /// The files of functions that clients have sent.
    pub(crate) files: FileStore,
    /// The files of functions that control has sent, where this host runs tasks for it.
    pub(crate) received: FileStore,
    pub(crate) images: Arc<ImageKeeper>,
}

impl Preparation {
    /// Opens the stores in a state folder; `SNOWMELT_FILES_MAX` is the budget of each tenant's
    /// files. What clients have sent is in the shared folder, if there is one.
    pub(crate) fn new(
        state_dir: PathBuf,
        shared_dir: Option<&Path>,
        interpreters: Interpreters,
        images: Arc<ImageKeeper>,
    ) -> Result<Self> {
        let shared_dir = shared_dir.unwrap_or(&state_dir);
        let codes = CodeStore::open(shared_dir.join("code"))?;
        let store = |folder: &Path, name: &str| FileStore::new(folder.join("files").join(name));
        let most = std::env::var("SNOWMELT_FILES_MAX").ok();
        let budget = Budget::from_setting(most.as_deref())?;
        let files = store(shared_dir, "own").with_budget(budget);
        let received = store(&state_dir, "received");
        Ok(Self { state_dir, interpreters, codes, files, received, images })
    }

    /// Prepares a unit of Python code: resolves and unpacks packages, and stores the code, so that
    /// an instance has all that it needs.
    pub async fn prepare(
        &self,
        tenant: &Tenant,
        code: &SourceCode,
        requirements: &[String],
        imports: &[String],
        reporter: &dyn Reporter,
    ) -> Result<Unit> {
        let installed = self.environment_of(requirements, imports, reporter).await?;
        let stored = self.codes.put(code)?;
        let held = CodeStore::hold(&stored.1)?;
        Ok(Unit::python(tenant, stored, installed).holding(held))
    }

    /// Keeps a wheel of a user's own, and returns the requirement that names the wheel by its
    /// content.
    pub async fn keep_wheel(&self, file: String, content: Vec<u8>) -> Result<String> {
        Ok(self.interpreters.default().await?.installer.keep_wheel(file, content).await?)
    }

    /// Finds out whether versions of packages go together, and remembers the versions that do;
    /// installs nothing.
    pub async fn resolve(&self, requirements: &[String], reporter: &dyn Reporter) -> Result<()> {
        let (interpreter, packages) = self.interpreters.of(requirements).await?;
        Ok(interpreter.installer.resolve(&packages, reporter).await?)
    }

    /// Installs packages for the interpreter that the requirements ask for.
    pub(crate) async fn environment_of(
        &self,
        requirements: &[String],
        imports: &[String],
        reporter: &dyn Reporter,
    ) -> Result<Installed> {
        let (interpreter, packages) = self.interpreters.of(requirements).await?;
        let environment = interpreter.installer.environment(&packages, reporter).await?;
        let mut modules = environment.modules.clone();
        let standard = &interpreter.python.stdlib_modules;
        modules.extend(snowmelt_udf::available(imports, standard, &environment.path));
        Ok(Installed { environment, interpreter, modules })
    }

    /// Returns the interpreter that runs code with these requirements, which may name versions of
    /// Python.
    pub async fn python_for(&self, requirements: &[String]) -> Result<Python> {
        Ok(self.interpreters.of(requirements).await?.0.python.clone())
    }

    /// Holds the packages of some requirements against removal, if they are installed; `None` if
    /// they are not.
    pub async fn hold_packages(&self, requirements: &[String]) -> Result<Option<EnvironmentLease>> {
        let (interpreter, packages) = self.interpreters.of(requirements).await?;
        blocking(move || Ok(interpreter.installer.hold(&packages)?)).await
    }

    /// Removes the installed packages that nothing holds; with `dry`, only counts them.
    pub async fn prune_packages(&self, dry: bool) -> Result<Reclaimed> {
        let interpreter = self.interpreters.default().await?;
        blocking(move || Ok(interpreter.installer.prune(dry)?)).await
    }

    /// Returns the store of code.
    pub fn codes(&self) -> &CodeStore {
        &self.codes
    }

    /// Stores code, to be prepared by the digest that is returned.
    pub fn store(&self, code: &SourceCode) -> Result<Digest> {
        Ok(self.codes.put(code)?.0)
    }

    /// Returns whether code of this digest is stored.
    pub fn has_code(&self, digest: &Digest) -> bool {
        self.codes.find(digest).is_ok()
    }

    /// Returns the stored files of a program, to give them to another host; blocks.
    pub fn stored_files(&self, digest: &Digest) -> Result<SourceCode> {
        self.codes.files(digest)
    }

    /// Prepares a unit of stored code that a program of another language runs. The blocks of its
    /// image are read from the host that `place` names, if there is one.
    pub async fn prepare_program(
        &self,
        tenant: &Tenant,
        code: &Digest,
        request: &ProgramRequest,
        limits: &InstanceLimits,
        place: Option<&TreePlace>,
    ) -> Result<Unit> {
        let stored = (code.clone(), self.codes.find(code)?);
        let began = Instant::now();
        let held = CodeStore::hold(&stored.1)?;
        let image = match &request.image {
            Some(image) => Some(self.images.mount_with_config(tenant, image, place).await?),
            None => None,
        };
        let mounted = image.as_ref().map(|(mounted, _)| mounted.at.clone());
        let python = match request.language {
            Language::Python => Some(self.interpreters.default().await?.runtime.path.clone()),
            _ => None,
        };
        let folder = self.state_dir.join("runtimes");
        let runtimes = programs::Runtimes { folder, python };
        let folder = stored.1.clone();
        let request = request.clone();
        let limits = limits.clone();
        // The first Java program has the runtime for Java compiled.
        let program = move || programs::prepare(&runtimes, &folder, &request, image, &limits);
        let prepared = tokio::task::spawn_blocking(program).await;
        let prepared = prepared.map_err(|error| Error::State {
            path: stored.1.clone(),
            source: std::io::Error::other(error),
        })?;
        match (prepared, mounted) {
            (Err(error), Some(image)) => match self.images.why(&image, began).await {
                Some(report) => Err(Error::Report(Box::new(report))),
                None => Err(error),
            },
            (prepared, _) => Ok(Unit::program(tenant, stored, prepared?).holding(held)),
        }
    }

    /// Returns why blocks of the image of a unit could not be read since `since`, if some could
    /// not. A function that failed meanwhile failed for that reason, without knowing it.
    pub async fn why_image_failed(&self, unit: &Unit, since: Instant) -> Option<ErrorReport> {
        for image in unit.images() {
            if let Some(report) = self.images.why(image, since).await {
                return Some(report);
            }
        }
        None
    }

    pub(crate) fn installs(&self) -> InstallFigures {
        self.interpreters.installs()
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
        let report = ErrorReport::new(Code::INTERNAL, error.to_string());
        Err(Error::Report(Box::new(report)))
    })
}
