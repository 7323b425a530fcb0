//! Starts zygotes: a root from an interpreter, every other from a zygote.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use snowmelt_package::{Environment, Installer};
use snowmelt_sandbox::{Bind, ImageBind, Limits, Root, Spawner, Zygote, ZygoteSpec};
use snowmelt_types::{ByteSize, Code, CpuMillis, ErrorReport, SandboxId, micros};
use snowmelt_udf::SHARED_SETUP;

use super::model::want::Set;
use super::running_zygote::ZygoteMember;
use crate::{Error, Result};

/// How long the imports of a zygote may take.
const IMPORTS_TAKE_AT_MOST: Duration = Duration::from_secs(120);

/// The memory limit of the imports of one zygote. Children are charged only for what they change.
const MEMORY: ByteSize = ByteSize::mib(2048);

/// All that is needed to start the zygotes of a function.
#[derive(Clone, Debug)]
pub(crate) struct ZygoteSource {
    /// The root folder of a bare zygote: the interpreter and the runtime.
    pub base: Root,
    /// The packages of the function.
    pub packages: Packages,
    /// The code of the function, for a zygote that runs its shared set-ups.
    pub code: CodeBinds,
    /// The path of the interpreter inside the sandbox.
    pub python: PathBuf,
    /// The folders of importable modules inside the sandbox.
    pub python_path: Vec<String>,
    /// The modules of the runtime that every zygote imports.
    pub runtime_modules: Vec<String>,
}

/// The folders that show a function's code and files inside a sandbox.
#[derive(Clone, Debug)]
pub(crate) struct CodeBinds {
    /// The folders of this host.
    pub binds: Vec<Bind>,
    /// The folders of a mounted code package.
    pub images: Vec<ImageBind>,
}

/// The place where the packages of a function are.
#[derive(Clone, Debug)]
pub(crate) enum Packages {
    /// Packages that are unpacked on this host.
    Unpacked {
        environment: Environment,
        /// The installer, which makes an environment of some of the packages.
        installer: Installer,
        /// The path at which the packages are shown inside the sandbox.
        target: PathBuf,
    },
    /// Packages that are mounted from a code package, all or none: the functions of a scope have
    /// the same ones, so no set of that scope has only a part of them.
    Mounted(ImageBind),
}

/// A zygote that has just done its imports, with the time that it took.
pub(super) struct Fresh {
    pub member: ZygoteMember,
    /// The time, in microseconds, from the order to the end of the imports.
    pub us: u64,
}

impl ZygoteSource {
    /// Starts the bare interpreter of a scope, which is the root of its zygotes.
    pub(super) async fn root(&self, spawner: &Spawner) -> Result<Fresh> {
        let begun = Instant::now();
        let spec = self.spec(self.base.clone(), self.runtime_modules.clone());
        let zygote = imported(spawner.start_zygote(spec), &[]).await?;
        Ok(Fresh { member: ZygoteMember::new(zygote, None, None)?, us: micros(begun.elapsed()) })
    }

    /// Grows, from `parent`, a zygote that sees and imports exactly the set `set`.
    pub(super) async fn grow(
        &self,
        spawner: &Spawner,
        parent: Arc<ZygoteMember>,
        set: &Set,
    ) -> Result<Fresh> {
        let (root, environment) = self.view(set).await?;
        let mut modules: Vec<String> = set.modules.iter().cloned().collect();
        // The shared set-up runs after the imports, which the code uses.
        modules.extend(set.code.is_some().then(|| SHARED_SETUP.to_owned()));
        let begun = Instant::now();
        let spec = self.spec(root, modules.clone());
        let zygote = imported(spawner.grow(parent.zygote(), spec), &modules).await?;
        let us = micros(begun.elapsed());
        Ok(Fresh { member: ZygoteMember::new(zygote, environment, Some(parent))?, us })
    }

    /// Returns the root folder of a zygote of this set, which shows nothing that the set does not
    /// have, and the environment to keep for it.
    async fn view(&self, set: &Set) -> Result<(Root, Option<Environment>)> {
        let mut root = self.base.clone();
        if set.code.is_some() {
            root.binds.extend(self.code.binds.iter().cloned());
            root.image_binds.extend(self.code.images.iter().cloned());
        }
        if set.wheels.is_empty() {
            return Ok((root, None));
        }
        match &self.packages {
            Packages::Mounted(bind) => {
                root.image_binds.push(bind.clone());
                Ok((root, None))
            }
            Packages::Unpacked { environment, installer, target } => {
                let keep = set.wheels.keys().cloned().collect();
                let environment = installer.subset(environment, &keep).await?;
                let source = environment.path.clone();
                root.binds.push(Bind { source, target: target.clone() });
                Ok((root, Some(environment)))
            }
        }
    }

    fn spec(&self, root: Root, imports: Vec<String>) -> ZygoteSpec {
        ZygoteSpec {
            id: SandboxId::new(),
            root,
            python: self.python.clone(),
            python_path: self.python_path.clone(),
            imports,
            env: Vec::new(),
            limits: Limits { memory: MEMORY, cpu: CpuMillis(2000), ..Limits::default() },
        }
    }
}

/// Waits for the imports of a zygote, for a limited time. Dropping the start kills the zygote.
async fn imported(
    start: impl Future<Output = snowmelt_sandbox::Result<Zygote>>,
    modules: &[String],
) -> Result<Zygote> {
    let started = tokio::time::timeout(IMPORTS_TAKE_AT_MOST, start).await;
    Ok(started.map_err(|_| took_too_long(modules))??)
}

fn took_too_long(modules: &[String]) -> Error {
    let seconds = IMPORTS_TAKE_AT_MOST.as_secs();
    let message = format!("importing {} took more than {seconds} s", modules.join(", "));
    let report = ErrorReport::new(Code::FUNCTION_LOAD, message);
    Error::Report(Box::new(report.hint("import what is slow inside the function")))
}
