//! From code and requirements to a [`Unit`] that instances can be started of: stores of code and
//! packages, the interpreter, and mounted images.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use snowmelt_api::InstallFigures;
use snowmelt_package::{Environment, Installer, Python, Reporter, Runtime};
use snowmelt_types::{Digest, ErrorReport, Tenant};
use snowmelt_wire::SourceCode;

use crate::function_files::Budget;
use crate::images::{Images, TreePlace};
use crate::{
    CodeStore, Error, FileStore, InstanceLimits, Language, ProgramRequest, Result, Unit, programs,
};

/// What units are prepared with.
#[derive(Debug)]
pub(crate) struct Preparation {
    /// Packages, code and the Python runtime live here, by content.
    pub state_dir: PathBuf,
    /// The interpreter that the user chose.
    python: Option<PathBuf>,
    pub codes: CodeStore,
    /// Files of functions that clients have sent.
    pub files: FileStore,
    /// Those that control has sent, where this host runs tasks for it.
    pub received: FileStore,
    pub images: Arc<Images>,
    // Asked for at the first user function only: a plain query needs none.
    interpreter: tokio::sync::OnceCell<Interpreter>,
}

#[derive(Debug)]
struct Interpreter {
    python: Python,
    installer: Installer,
    runtime: Runtime,
}

impl Preparation {
    /// Opens the stores in a state folder.
    pub fn new(state_dir: PathBuf, python: Option<PathBuf>, images: Arc<Images>) -> Result<Self> {
        let codes = CodeStore::open(state_dir.join("code"))?;
        let store = |name: &str| FileStore::new(state_dir.join("files").join(name));
        let most = std::env::var("SNOWMELT_FILES_MAX").ok();
        let budget = Budget::from_setting(most.as_deref())?;
        let (files, received) = (store("own").with_budget(budget), store("received"));
        let interpreter = tokio::sync::OnceCell::new();
        Ok(Self { state_dir, python, codes, files, received, images, interpreter })
    }

    /// Resolves and unpacks packages, stores the code: all that an instance needs.
    pub async fn prepare(
        &self,
        tenant: &Tenant,
        code: &SourceCode,
        requirements: &[String],
        imports: &[String],
        reporter: &dyn Reporter,
    ) -> Result<Unit> {
        let prepared = self.environment_of(requirements, imports, reporter).await?;
        let (environment, installer, modules) = prepared;
        let stored = self.codes.put(code)?;
        let interpreter = self.interpreter_and_runtime().await?;
        Ok(Unit::python(tenant, stored, environment, installer, interpreter, modules))
    }

    /// Keeps a wheel of a user's own, and gives the requirement that names it by its content.
    pub async fn keep_wheel(&self, file: String, content: Vec<u8>) -> Result<String> {
        Ok(self.interpreter().await?.installer.keep_wheel(file, content).await?)
    }

    /// Finds out whether versions of packages go together, and remembers which; installs nothing.
    pub async fn resolve(&self, requirements: &[String], reporter: &dyn Reporter) -> Result<()> {
        let Interpreter { installer, .. } = self.interpreter().await?;
        Ok(installer.resolve(requirements, reporter).await?)
    }

    /// Installed packages, their installer, and the modules that a zygote imports of them and of
    /// the standard library.
    pub(crate) async fn environment_of(
        &self,
        requirements: &[String],
        imports: &[String],
        reporter: &dyn Reporter,
    ) -> Result<(Environment, &Installer, Vec<String>)> {
        let Interpreter { python, installer, .. } = self.interpreter().await?;
        let environment = installer.environment(requirements, reporter).await?;
        let mut all = environment.modules.clone();
        all.extend(snowmelt_udf::available(imports, &python.stdlib_modules, &environment.path));
        Ok((environment, installer, all))
    }

    /// Stores code, to be prepared by its digest.
    pub fn store(&self, code: &SourceCode) -> Result<Digest> {
        Ok(self.codes.put(code)?.0)
    }

    /// Whether code of this digest was stored.
    pub fn has_code(&self, digest: &Digest) -> bool {
        self.codes.find(digest).is_ok()
    }

    /// The files of a program that were stored, to give them to another host; blocks.
    pub fn stored_files(&self, digest: &Digest) -> Result<SourceCode> {
        self.codes.files(digest)
    }

    /// Finds what a program of another language needs to run code that was stored. Its image is read
    /// from the host that `place` names, if it is known.
    pub async fn prepare_program(
        &self,
        tenant: &Tenant,
        code: &Digest,
        request: &ProgramRequest,
        limits: &InstanceLimits,
        place: Option<&TreePlace>,
    ) -> Result<Unit> {
        let (stored, began) = ((code.clone(), self.codes.find(code)?), Instant::now());
        let image = match &request.image {
            Some(image) => Some(self.images.mount_with_config(image, place).await?),
            None => None,
        };
        let mounted = image.as_ref().map(|(mounted, _)| mounted.at.clone());
        let python = match request.language {
            Language::Python => Some(self.interpreter_and_runtime().await?.1.path.clone()),
            _ => None,
        };
        let folder = self.state_dir.join("runtimes");
        let runtimes = programs::Runtimes { folder, python };
        let (folder, request, limits) = (stored.1.clone(), request.clone(), limits.clone());
        // The first one of Java compiles the runtime.
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
            (prepared, _) => Ok(Unit::program(tenant, stored, prepared?)),
        }
    }

    /// Why blocks of the image of a unit could not be had since then, if that was so: what failed
    /// in it failed for that reason, without knowing it.
    pub async fn why_image_failed(&self, unit: &Unit, since: Instant) -> Option<ErrorReport> {
        for image in unit.images() {
            if let Some(report) = self.images.why(image, since).await {
                return Some(report);
            }
        }
        None
    }

    /// The interpreter that runs user code.
    pub async fn python(&self) -> Result<&Python> {
        Ok(&self.interpreter().await?.python)
    }

    pub(crate) async fn interpreter_and_runtime(&self) -> Result<(&Python, &Runtime)> {
        let interpreter = self.interpreter().await?;
        Ok((&interpreter.python, &interpreter.runtime))
    }

    async fn interpreter(&self) -> Result<&Interpreter> {
        self.interpreter.get_or_try_init(|| self.open_interpreter()).await
    }
    async fn open_interpreter(&self) -> Result<Interpreter> {
        let state = &self.state_dir;
        let python = Python::discover(self.python.as_deref(), state)?;
        let installer = Installer::new(state.join("packages"), python.clone())?;
        let runtime = snowmelt_package::runtime_files(state, &python)?;
        Ok(Interpreter { python, installer, runtime })
    }

    pub fn installs(&self) -> InstallFigures {
        let Some(interpreter) = self.interpreter.get() else { return InstallFigures::default() };
        let counts = interpreter.installer.counts();
        InstallFigures {
            environment_hits: counts.environment_hits,
            environment_misses: counts.environment_misses,
            wheel_hits: counts.wheel_hits,
            wheel_misses: counts.wheel_misses,
            bytes: counts.bytes.bytes(),
        }
    }
}
