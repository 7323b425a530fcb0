//! User code with all that an instance of it needs: interpreter, runtime, packages, code.
//!
//! Two units that differ in their code only share a zygote, which never holds anything that one of
//! them did not declare (the subset rule, SOCK 4.2).

use std::path::{Path, PathBuf};

use snowmelt_package::{Environment, Python, Runtime};
use snowmelt_sandbox::{Base, Bind, Root};
use snowmelt_types::Digest;

use crate::code::CODE_FILE;

const RUNTIME: &str = "/opt/snowmelt/runtime";
const PACKAGES: &str = "/opt/snowmelt/packages";
const CODE: &str = "/opt/snowmelt/code";

/// The function that a forked child runs.
pub(crate) const ENTRY: &str = "snowmelt._runtime.serve:main";

/// The module of [`ENTRY`], which every zygote imports.
const ENTRY_MODULE: &str = "snowmelt._runtime.serve";

/// User code with all that an instance of it needs.
#[derive(Clone, Debug)]
pub struct Unit {
    /// Names code, packages, interpreter and runtime.
    pub digest: Digest,
    /// Names what its zygote holds: all but the code.
    pub(crate) zygote: Digest,
    /// Interpreter, runtime and packages.
    pub(crate) base: Root,
    /// The interpreter inside the sandbox.
    pub(crate) python: PathBuf,
    /// Folders of importable modules inside the sandbox.
    pub(crate) python_path: Vec<String>,
    /// What the zygote imports.
    pub(crate) imports: Vec<String>,
    code_folder: PathBuf,
    // Its lease keeps the packages from being reclaimed while they are in use.
    _environment: Environment,
}

impl Unit {
    /// Puts the parts together.
    pub(crate) fn new(
        code: (Digest, PathBuf),
        environment: Environment,
        python: &Python,
        runtime: &Runtime,
        imports: Vec<String>,
    ) -> Self {
        let mut all = vec![ENTRY_MODULE.to_owned()];
        all.extend(imports);
        let version = format!("{}.{}", python.version.0, python.version.1);
        let mut named = vec![
            environment.digest.as_str().to_owned(),
            python.executable.display().to_string(),
            version,
            runtime.digest.as_str().to_owned(),
        ];
        named.extend(all.iter().cloned());
        let zygote = Digest::of_parts(&named);
        let (code_digest, code_folder) = code;
        Self {
            digest: Digest::of_parts([zygote.as_str(), code_digest.as_str()]),
            zygote,
            base: base(&environment, python, &runtime.path),
            python: python.executable.clone(),
            python_path: vec![RUNTIME.to_owned(), PACKAGES.to_owned()],
            imports: all,
            code_folder,
            _environment: environment,
        }
    }

    /// The root of an instance: the base and the code.
    pub(crate) fn root(&self) -> Root {
        let mut root = self.base.clone();
        root.binds.push(bind(&self.code_folder, CODE));
        root
    }

    /// Where an instance finds its code.
    pub fn code_path() -> String {
        format!("{CODE}/{CODE_FILE}")
    }
}

fn base(environment: &Environment, python: &Python, runtime: &Path) -> Root {
    let mut binds: Vec<Bind> = python.prefixes.iter().map(|prefix| bind(prefix, prefix)).collect();
    binds.push(bind(runtime, RUNTIME));
    binds.push(bind(&environment.path, PACKAGES));
    Root { base: Base::Host, binds }
}

fn bind(source: &Path, target: impl Into<PathBuf>) -> Bind {
    Bind { source: source.to_owned(), target: target.into() }
}
