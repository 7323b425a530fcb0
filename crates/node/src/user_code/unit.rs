//! User code with all that an instance of it needs: interpreter, runtime, packages, code; or a
//! program of another language that runs it.
//!
//! Two units that differ in their code only share zygotes, which never hold anything that one of
//! the units did not declare (the subset rule, SOCK 4.2), and never anything of another tenant.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use snowmelt_kernel::lock::Lock;
use snowmelt_package::{Python, Runtime};
use snowmelt_sandbox::{Bind, MountedImage, ProcessSettings, Root};
use snowmelt_types::{Digest, Tenant};
use snowmelt_udf::SHARED_SETUP;

use super::interpreters::{Installed, Interpreter};
use crate::Secrets;
use crate::files::code::CODE_FILE;
use crate::files::function_files::FileTree;
use crate::images;
use crate::import_cache::{CodeBinds, Packages, Set, Want, ZygoteScope, ZygoteSource};

pub(crate) const RUNTIME: &str = "/opt/snowmelt/runtime";
pub(crate) const PACKAGES: &str = "/opt/snowmelt/packages";
pub(crate) const CODE: &str = "/opt/snowmelt/code";

/// The path at which a program finds its files; `PROGRAM_RUNTIME` is that of the runtime which the
/// platform brings for the program. Both are beneath `/run`, which is ours in every root: nothing
/// is made in an image.
pub(crate) const PROGRAM_CODE: &str = "/run/snowmelt/code";
pub(crate) const PROGRAM_RUNTIME: &str = "/run/snowmelt/runtime";

/// The path at which an instance finds the files of its function; `FILES_VARIABLE` is the variable
/// with that path.
const FILES: &str = "/run/snowmelt/files";
const FILES_VARIABLE: &str = "SNOWMELT_FILES";

/// The entry of the runtime that a forked child runs.
pub(crate) const ENTRY: &str = "snowmelt._runtime.serve:main";

/// The variable that names the code which a new instance executes before the first connection; the
/// runtime takes it out of the environment.
pub(crate) const LOAD_AHEAD: &str = "SNOWMELT_LOAD_AHEAD";

/// The modules of the runtime that every zygote imports: those that [`ENTRY`] and pickled code
/// need, the one that ranks ask for their job, and the one with which a zygote and its children do
/// a first call before there is one.
pub(crate) const RUNTIME_MODULES: [&str; 4] = [
    "snowmelt._runtime.serve",
    "snowmelt._runtime.warm_up_call",
    "snowmelt._vendor.cloudpickle",
    "snowmelt._job",
];

/// The module that runs a batch of each form once, for functions that have pyarrow.
const WARMS_ARROW: &str = "snowmelt._runtime.preload";

/// User code with all that an instance of it needs.
#[derive(Clone, Debug)]
pub struct Unit {
    /// The digest that names tenant, code, packages, interpreter and runtime, or the program.
    pub digest: Digest,
    /// The tenant whose code it is.
    pub tenant: Tenant,
    pub(crate) start: WarmStart,
    /// The root folder that an instance sees.
    pub(crate) root: Root,
    pub(crate) own: Own,
}

/// The parts of a unit that its own instances have, and that zygotes of several functions do not
/// have.
#[derive(Clone, Debug, Default)]
pub(crate) struct Own {
    /// The lock that keeps the code from being removed; `None` for code of an image, which is
    /// pinned.
    pub code: Option<Arc<Lock>>,
    pub files: Option<Arc<FileTree>>,
    pub secrets: Secrets,
}

impl Own {
    /// Returns the environment variables of each instance that lead to its files and secrets.
    pub fn environment(&self) -> impl Iterator<Item = (String, String)> {
        let files = self.files.iter().map(|_| (FILES_VARIABLE.to_owned(), FILES.to_owned()));
        files.chain(self.secrets.variable())
    }
}

/// The way in which an instance starts without starting from nothing.
#[derive(Clone, Debug)]
pub(crate) enum WarmStart {
    /// The instance is forked from a zygote.
    Zygote(Box<Forked>),
    /// The instance is executed, ahead of its use where the function says so, because its runtime
    /// cannot fork (Java, Node, Go).
    Program(Box<Program>),
}

#[derive(Clone, Debug)]
pub(crate) struct Forked {
    pub want: Want,
    pub source: ZygoteSource,
}

/// A program of any language that speaks the dialogue of `docs/reference/runtimes.md` over its
/// channel. The program finds its files where [`Unit::code`] says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The root folder that the program sees beside its code: the host's base, an unpacked image or
    /// a mounted one, and further folders.
    pub root: Root,
    /// The absolute path of the program inside the sandbox, and its arguments.
    pub command: Vec<String>,
    /// The environment variables beside those that the function's own options set.
    pub environment: Vec<(String, String)>,
    /// The user and the working folder with which the program starts.
    pub process: ProcessSettings,
    /// The path at which the program finds its code inside the sandbox.
    pub code: String,
}

impl Forked {
    /// Shows the files of the function to the zygote that runs its shared set-ups too. A zygote is
    /// never told secrets, so a function that has some runs its set-ups in each instance.
    fn set_up_with(&mut self, files: Option<&FileTree>, shown: Option<Bind>, secrets: &Secrets) {
        let Some(code) = self.want.set.code.take() else { return };
        if !secrets.is_empty() {
            return;
        }
        self.want.set.code = Some(match files {
            // A folder that is made again has another path, which a zygote could not find.
            Some(tree) => {
                let path = tree.path().to_string_lossy().into_owned();
                Digest::of_parts([code.as_str(), tree.digest().as_str(), &path])
            }
            None => code,
        });
        self.source.code.binds.extend(shown);
    }
}

impl Unit {
    /// Makes a unit of Python code, whose instances are forked from zygotes.
    pub(crate) fn python(tenant: &Tenant, code: (Digest, PathBuf), installed: Installed) -> Self {
        let Installed { environment, interpreter, modules } = installed;
        let Interpreter { python, installer, runtime } = &*interpreter;
        let scope = ZygoteScope { tenant: tenant.clone(), base: base_digest(python, runtime) };
        let wheels = environment.wheels.iter();
        let wheels = wheels.map(|wheel| (wheel.digest.clone(), names(&wheel.modules))).collect();
        let want = Want { scope, set: set(wheels, modules, &code.0) };
        let base = base(python, runtime);
        let mut root = base.clone();
        root.binds.push(bind(&environment.path, PACKAGES));
        root.binds.push(bind(&code.1, CODE));
        let digest = digest(&want, &environment.digest, &code.0);
        let source = ZygoteSource {
            base,
            packages: Packages::Unpacked {
                environment,
                installer: installer.clone(),
                target: PACKAGES.into(),
            },
            code: CodeBinds { binds: vec![bind(&code.1, CODE)], images: Vec::new() },
            python: python.executable.clone(),
            python_path: vec![RUNTIME.to_owned(), PACKAGES.to_owned()],
            runtime_modules: RUNTIME_MODULES.map(str::to_owned).to_vec(),
        };
        let start = WarmStart::Zygote(Box::new(Forked { want, source }));
        Self { digest, tenant: tenant.clone(), start, root, own: Own::default() }
    }

    /// Adds files, which the instances of the unit see, and secrets; the digest changes with them.
    pub(crate) fn with(mut self, files: Option<FileTree>, secrets: Secrets) -> Self {
        let named = files.iter().map(FileTree::digest).cloned();
        let told = (!secrets.is_empty()).then(|| secrets.fingerprint());
        let parts: Vec<Digest> = named.chain(told).collect();
        if !parts.is_empty() {
            let parts = std::iter::once(&self.digest).chain(&parts).map(Digest::as_str);
            self.digest = Digest::of_parts(parts);
        }
        let files = files.map(Arc::new);
        let shown = files.as_deref().map(|tree| bind(tree.path(), FILES));
        if let WarmStart::Zygote(forked) = &mut self.start {
            forked.set_up_with(files.as_deref(), shown.clone(), &secrets);
        }
        self.root.binds.extend(shown);
        self.own = Own { files, secrets, ..self.own };
        self
    }

    /// Adds the lock of the code, so that the code stays as long as the unit.
    pub(crate) fn holding(mut self, code: Lock) -> Self {
        self.own.code = Some(Arc::new(code));
        self
    }

    /// Returns the digest of the image whose blocks the unit needs to start; `None` if it needs
    /// none.
    pub fn image(&self) -> Option<String> {
        self.images().next().map(|image| image.digest.clone())
    }

    /// Returns all images that an instance sees.
    pub(crate) fn images(&self) -> impl Iterator<Item = &MountedImage> {
        images::shown_in(&self.root)
    }

    /// Makes a unit of code that a program runs.
    pub(crate) fn program(tenant: &Tenant, code: (Digest, PathBuf), program: Program) -> Self {
        let text = format!("{program:?}");
        let digest = Digest::of_parts([tenant.as_str(), code.0.as_str(), &text]);
        let mut root = program.root.clone();
        root.binds.push(bind(&code.1, PROGRAM_CODE));
        let start = WarmStart::Program(Box::new(program));
        let own = Own::default();
        Self { digest, tenant: tenant.clone(), start, root, own }
    }

    /// Returns the path at which an instance finds Python code.
    pub fn code_path() -> String {
        format!("{CODE}/{CODE_FILE}")
    }

    /// Returns the path at which an instance finds its code: a file with Python code, or the folder
    /// of a program.
    pub fn code(&self) -> String {
        match &self.start {
            WarmStart::Zygote(_) => Self::code_path(),
            WarmStart::Program(program) => program.code.clone(),
        }
    }
}

/// Returns the set that a zygote of this function may see, import and set up. `code` is the digest
/// of the function's code.
pub(crate) fn set(
    wheels: BTreeMap<Digest, Arc<BTreeSet<String>>>,
    imports: Vec<String>,
    code: &Digest,
) -> Set {
    let mut modules: BTreeSet<String> = imports.into_iter().collect();
    let code = modules.remove(SHARED_SETUP).then(|| code.clone());
    let mut set = Set { wheels, modules, code };
    if set.provides("pyarrow") {
        set.modules.insert(WARMS_ARROW.to_owned());
    }
    set
}

fn names(modules: &[String]) -> Arc<BTreeSet<String>> {
    Arc::new(modules.iter().cloned().collect())
}

/// Returns the digest that names an interpreter and a runtime.
pub(crate) fn base_digest(python: &Python, runtime: &Runtime) -> Digest {
    let executable = python.executable.display().to_string();
    Digest::of_parts([executable.as_str(), &python.minor_version(), runtime.digest.as_str()])
}

pub(crate) fn digest(want: &Want, packages: &Digest, code: &Digest) -> Digest {
    let mut parts = vec![
        want.scope.tenant.as_str(),
        want.scope.base.as_str(),
        packages.as_str(),
        code.as_str(),
    ];
    parts.extend(want.set.modules.iter().map(String::as_str));
    Digest::of_parts(parts)
}

/// Returns the root folder with an interpreter and a runtime. The host's own packages are hidden: a
/// function has the packages that it declares, the same on every host.
pub(crate) fn base(python: &Python, runtime: &Runtime) -> Root {
    let mut binds: Vec<Bind> = python.prefixes.iter().map(|prefix| bind(prefix, prefix)).collect();
    let shown = |site: &PathBuf| {
        let beneath = |prefix: &PathBuf| site.starts_with(prefix);
        site.starts_with("/usr") || python.prefixes.iter().any(beneath)
    };
    let sites: BTreeSet<PathBuf> =
        python.sites.iter().filter_map(|site| site.canonicalize().ok()).filter(shown).collect();
    binds.extend(sites.into_iter().map(|site| bind(&runtime.empty(), site)));
    binds.push(bind(&runtime.path, RUNTIME));
    Root { binds, ..Root::default() }
}

pub(crate) fn bind(source: &Path, target: impl Into<PathBuf>) -> Bind {
    Bind { source: source.to_owned(), target: target.into() }
}
