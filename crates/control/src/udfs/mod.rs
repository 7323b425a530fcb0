//! From a user's code to UDFs that a query can call (CAGE 3, the registration service).
//!
//! Code is never executed outside a sandbox: its requirements are read from its text, and its UDFs
//! are described by an instance that has loaded it. Both results are cached by content. `image` is
//! the same for code that runs in an image, `definition` for functions that SQL defines. `files`
//! keeps the files that travel with the code, `dependencies` finds what can go, `orphans` has the
//! contents that wait for their last instance, `registry` and `log` are for registered functions.

mod definition;
mod dependencies;
mod files;
mod image;
mod log;
mod orphans;
mod registry;

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use snowmelt_api::{FileRefs, UdfSource, check_files};
use snowmelt_node::{InstanceLimits, Secrets, Unit};
use snowmelt_tasks::{TaskHost, UdfBinding, UdfSource as PortableUdf};
use snowmelt_types::{ByteSize, Code, Digest, ErrorReport, Report, Tenant};
use snowmelt_udf::{BatchKind, ParsedSignature, Registration, with_runtime};
use snowmelt_wire::{Load, Mode, OnError, Signature, SourceCode, UdfKind};

use crate::access::secrets::SecretSources;
use crate::cluster::trees::OwnPlaces;
use crate::functions::declarations::{Declared, declared};
use crate::reports::Events;
use crate::state::analysis_cache::AnalysisCache;

pub(crate) use files::blocking;
pub(crate) use log::UdfLogs;
pub(crate) use registry::UdfRegistry;

/// How long code may take to describe its UDFs.
const DESCRIBE_LIMIT: Duration = Duration::from_secs(120);

/// The most time for one batch, unless the user set another.
const BATCH_LIMIT: Duration = Duration::from_secs(60);

/// Memory of an instance, unless the user set another.
const MEMORY: ByteSize = ByteSize::mib(512);

/// How long an idle instance is kept.
const KEPT: Duration = Duration::from_secs(60);

/// The UDFs of one query.
#[derive(Debug, Default)]
pub(crate) struct UdfSet {
    pub signatures: Vec<Signature>,
    pub bindings: Vec<UdfBinding>,
    /// The names of the UDFs in the set that are registered.
    pub registered: Vec<String>,
}

/// The result of the analysis of a piece of code, as it is cached on disk.
#[derive(Debug, Serialize, Deserialize)]
struct CodeAnalysis {
    declared: Declared,
    signatures: Vec<Signature>,
    /// True if functions of the code require packages that conflict: each gets its own packages.
    apart: bool,
}

/// The files and secrets that instances of a piece of code have.
#[derive(Clone, Debug, Default)]
struct CodeInputs {
    files: FileRefs,
    secrets: Secrets,
}

/// The context of a piece of code: what it declares, and the files and secrets that its instances
/// are given.
#[derive(Clone, Copy, Debug)]
struct CodeContext<'a> {
    declared: &'a Declared,
    given: &'a CodeInputs,
}

impl CodeContext<'_> {
    /// Returns the modules that a zygote imports: not those among the files, which a zygote does
    /// not see.
    fn imports(&self) -> Vec<String> {
        let is_own = |module: &&String| {
            let top = module.split('.').next().unwrap_or(module);
            let is_of_top = |name: &String| {
                let rest = name.strip_prefix(top);
                rest.is_some_and(|rest| rest == ".py" || rest.starts_with('/'))
            };
            self.given.files.keys().any(is_of_top)
        };
        self.declared.imports.iter().filter(|module| !is_own(module)).cloned().collect()
    }
}

/// Prepares UDFs and caches the analysis of their code.
#[derive(Debug)]
pub(crate) struct UdfCatalog {
    host: TaskHost,
    analysis: AnalysisCache,
    secrets: SecretSources,
    places: OwnPlaces,
}

impl UdfSet {
    fn put(
        &mut self,
        unit: &Unit,
        signature: &Signature,
        parsed: &ParsedSignature,
        source: Option<Arc<PortableUdf>>,
    ) -> Result<(), ErrorReport> {
        let same = |known: &Signature| known.name.eq_ignore_ascii_case(&signature.name);
        if self.signatures.iter().any(same) {
            let message = format!("two UDFs are named `{}`", signature.name);
            return Err(
                ErrorReport::new(Code::FUNCTION_SIGNATURE, message).hint("rename one of them")
            );
        }
        self.bindings.push(UdfBinding { source, ..binding(unit, signature, parsed) });
        self.signatures.push(signature.clone());
        Ok(())
    }
}

impl UdfCatalog {
    pub fn new(
        host: TaskHost,
        analysis: AnalysisCache,
        secrets: SecretSources,
        places: OwnPlaces,
    ) -> Self {
        Self { host, analysis, secrets, places }
    }

    /// Prepares all UDFs of a query; a name that two of them have is refused.
    pub async fn prepare(
        &self,
        tenant: &Tenant,
        sources: &[UdfSource],
        events: &Events,
    ) -> Result<UdfSet, ErrorReport> {
        let mut set = UdfSet::default();
        for source in sources {
            self.add(tenant, source, &mut set, events).await?;
        }
        Ok(set)
    }

    async fn add(
        &self,
        tenant: &Tenant,
        source: &UdfSource,
        set: &mut UdfSet,
        events: &Events,
    ) -> Result<(), ErrorReport> {
        let given = self.given(tenant, source).await?;
        if let Some(image) = &source.image {
            return self.add_in_image(tenant, source, image, &given, set).await;
        }
        let known = self.known(tenant, source, &given, events).await?;
        let CodeAnalysis { declared, signatures, apart } = known;
        let together = register(&source.code, &declared.packages, signatures)?;
        let context = CodeContext { declared: &declared, given: &given };
        if !apart {
            return self.bind(tenant, &together, context, set, events).await;
        }
        for one in &together.signatures {
            let packages = declared.alone(&one.packages);
            let alone = register(&source.code, &packages, vec![one.clone()])?;
            self.bind(tenant, &alone, context, set, events).await?;
        }
        Ok(())
    }

    async fn bind(
        &self,
        tenant: &Tenant,
        registration: &Registration,
        context: CodeContext<'_>,
        set: &mut UdfSet,
        events: &Events,
    ) -> Result<(), ErrorReport> {
        let Registration { code, packages, .. } = registration;
        let unit = self.unit(tenant, code, packages, context, events).await?;
        let CodeInputs { files, secrets } = context.given.clone();
        let source = Arc::new(PortableUdf {
            code: code.clone(),
            packages: packages.clone(),
            imports: context.imports(),
            image: None,
            files,
            secrets,
        });
        for (signature, parsed) in registration.signatures.iter().zip(&registration.parsed) {
            set.put(&unit, signature, parsed, Some(Arc::clone(&source)))?;
        }
        Ok(())
    }

    async fn known(
        &self,
        tenant: &Tenant,
        source: &UdfSource,
        given: &CodeInputs,
        events: &Events,
    ) -> Result<CodeAnalysis, ErrorReport> {
        let asked = serde_json::to_string(source).unwrap_or_default();
        let key = Digest::of_parts(["udfs-5", &asked]);
        if let Some(known) = self.analysis.get(&key) {
            return Ok(known);
        }
        let declared =
            declared(self.host.node(), &self.analysis, &source.code, &source.packages).await?;
        let apart = self.go_apart(&declared, events).await?;
        let signatures = match &source.signatures {
            Some(signatures) => signatures.clone(),
            None => {
                let context = CodeContext { declared: &declared, given };
                self.describe(tenant, &source.code, context, apart, events).await?
            }
        };
        let known = CodeAnalysis { declared, signatures, apart };
        self.analysis.put(&key, &known);
        Ok(known)
    }

    /// Returns whether functions of a file require packages that cannot be resolved together, or
    /// versions of Python that differ.
    async fn go_apart(&self, declared: &Declared, events: &Events) -> Result<bool, ErrorReport> {
        if declared.groups.len() < 2 {
            return Ok(false);
        }
        let requirements = with_runtime(&declared.packages, [BatchKind::Scalar]);
        match self
            .host
            .node()
            .preparation()
            .resolve(&requirements, events)
            .await
            .map_err(|error| error.report())
        {
            Ok(()) => Ok(false),
            Err(report) => {
                let apart = [Code::PACKAGE_RESOLVE, Code::PYTHON_VERSION];
                if apart.contains(&report.known_code()) { Ok(true) } else { Err(report) }
            }
        }
    }

    async fn unit(
        &self,
        tenant: &Tenant,
        code: &SourceCode,
        requirements: &[String],
        context: CodeContext<'_>,
        events: &Events,
    ) -> Result<Unit, ErrorReport> {
        let imports = context.imports();
        let prepared = self
            .host
            .node()
            .preparation()
            .prepare(tenant, code, requirements, &imports, events)
            .await;
        self.give(prepared.map_err(|error| error.report())?, context.given).await
    }

    async fn give(&self, unit: Unit, given: &CodeInputs) -> Result<Unit, ErrorReport> {
        let CodeInputs { files, secrets } = given.clone();
        self.host.node().give(unit, &files, secrets).await.map_err(|error| error.report())
    }

    /// Returns the files and secrets that instances of the code have.
    async fn given(&self, tenant: &Tenant, source: &UdfSource) -> Result<CodeInputs, ErrorReport> {
        let UdfSource { files, secrets, .. } = source;
        check_files(files).map_err(|reason| ErrorReport::new(Code::FUNCTION_FILE, reason))?;
        let secrets = self.secrets.read(tenant, secrets).await?;
        Ok(CodeInputs { files: files.clone(), secrets })
    }

    /// Asks the code, in a sandbox, which UDFs it defines.
    async fn describe(
        &self,
        tenant: &Tenant,
        code: &SourceCode,
        context: CodeContext<'_>,
        apart: bool,
        events: &Events,
    ) -> Result<Vec<Signature>, ErrorReport> {
        let declared = context.declared;
        let first = || declared.alone(declared.groups.first().map_or(&[], Vec::as_slice));
        let packages = if apart { first() } else { declared.packages.clone() };
        let requirements = with_runtime(&packages, [BatchKind::Scalar]);
        let unit = self.unit(tenant, code, &requirements, context, events).await?;
        self.ask(&unit).await
    }

    /// Asks an instance of a unit which UDFs its code defines.
    async fn ask(&self, unit: &Unit) -> Result<Vec<Signature>, ErrorReport> {
        let leased = self.host.node().lease_instance(unit, &limits(MEMORY)).await;
        let lease = leased.map_err(|error| error.report())?;
        let described = lease.describe(&load(unit, Mode::Describe), DESCRIBE_LIMIT).await;
        let signatures: Vec<Signature> = described
            .map_err(|error| error.report())?
            .parse()
            .map_err(|error: snowmelt_wire::Error| error.report())?;
        lease.give_back();
        Ok(signatures)
    }
}

fn register(
    code: &SourceCode,
    packages: &[String],
    signatures: Vec<Signature>,
) -> Result<Registration, ErrorReport> {
    Registration::new(code.clone(), packages, signatures).map_err(|error| error.report())
}

fn binding(unit: &Unit, signature: &Signature, parsed: &ParsedSignature) -> UdfBinding {
    let mode = match signature.kind {
        UdfKind::Scalar | UdfKind::Table => Mode::Udf,
        UdfKind::Aggregate => Mode::Aggregate,
    };
    UdfBinding {
        name: signature.name.clone(),
        unit: unit.clone(),
        limits: limits(memory(parsed)),
        load: Load {
            function: signature.name.clone(),
            batch: Some(signature.batch.clone()),
            on_error: signature.on_error,
            ..load(unit, mode)
        },
        timeout: parsed.timeout.unwrap_or(BATCH_LIMIT),
        source: None,
    }
}

fn memory(parsed: &ParsedSignature) -> ByteSize {
    parsed.memory.unwrap_or(MEMORY)
}

fn load(unit: &Unit, mode: Mode) -> Load {
    Load {
        mode,
        code: unit.code(),
        function: String::new(),
        batch: None,
        on_error: OnError::default(),
    }
}

fn limits(memory: ByteSize) -> Arc<InstanceLimits> {
    Arc::new(InstanceLimits { memory, idle: KEPT, ..InstanceLimits::default() })
}

#[cfg(test)]
mod tests {
    use snowmelt_api::FileRef;

    use super::*;

    #[test]
    fn modules_among_the_files_are_not_imported_by_a_zygote() {
        let imports = ["statistics", "numpy.linalg", "own.deep", "owner", "json"];
        let imports = imports.map(str::to_owned).to_vec();
        let declared = Declared { imports, ..Declared::default() };
        let file = FileRef { digest: "0".repeat(64), size: 1 };
        let names = ["statistics.py", "own/deep.py", "json.txt", "data/numpy.py"];
        let files = names.map(|name| (name.to_owned(), file.clone())).into_iter().collect();
        let given = CodeInputs { files, ..CodeInputs::default() };
        let context = CodeContext { declared: &declared, given: &given };
        assert_eq!(context.imports(), ["numpy.linalg", "owner", "json"]);
        let without = CodeContext { given: &CodeInputs::default(), ..context };
        assert_eq!(without.imports(), declared.imports);
    }
}
