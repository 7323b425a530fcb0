//! From a user's code to UDFs that a query can call (CAGE 3, the registration service).
//!
//! Code is never executed outside a sandbox: what it requires is read from its text, and which UDFs
//! it defines is asked of an instance that has loaded it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use snowmelt_node::{InstanceLimits, Node, Unit, UdfBinding};
use snowmelt_types::{ByteSize, Code as ErrorCode, CpuMillis, ErrorReport, Report, parse_duration};
use snowmelt_wire::{Code, Load, Mode, OnError, Signature};

use crate::api::UdfSource;
use crate::progress::Events;

/// How long code may take to say which UDFs it defines.
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
}

/// Prepares UDFs and remembers the signatures of code that it has seen.
#[derive(Debug)]
pub(crate) struct UdfCatalog {
    node: Node,
    // A file for each piece of code that was asked for its signatures, by content.
    signatures: PathBuf,
}

impl UdfCatalog {
    pub fn new(node: Node, signatures: PathBuf) -> Self {
        Self { node, signatures }
    }

    /// Prepares all UDFs of a query; a name that two of them have is refused.
    pub async fn prepare(
        &self,
        sources: &[UdfSource],
        events: &Events,
    ) -> Result<UdfSet, ErrorReport> {
        let mut set = UdfSet::default();
        for source in sources {
            self.add(source, &mut set, events).await?;
        }
        Ok(set)
    }

    async fn add(
        &self,
        source: &UdfSource,
        set: &mut UdfSet,
        events: &Events,
    ) -> Result<(), ErrorReport> {
        let signatures = match &source.signatures {
            Some(signatures) => signatures.clone(),
            None => self.describe(source, events).await?,
        };
        let mut declared = source.packages.clone();
        declared.extend(signatures.iter().flat_map(|signature| signature.packages.clone()));
        let kinds: Vec<&str> =
            signatures.iter().map(|signature| signature.batch.as_str()).collect();
        let requirements = udf_requirements(&source.code, &declared, &kinds)?;
        let unit = self.unit(&source.code, &requirements, events).await?;
        for signature in signatures {
            if set.signatures.iter().any(|known| known.name == signature.name) {
                let message = format!("two UDFs are named `{}`", signature.name);
                return Err(ErrorReport::new(ErrorCode::FUNCTION_SIGNATURE, message)
                    .hint("rename one of them"));
            }
            set.bindings.push(binding(&unit, &signature)?);
            set.signatures.push(signature);
        }
        Ok(())
    }

    async fn unit(
        &self,
        code: &Code,
        requirements: &[String],
        events: &Events,
    ) -> Result<Unit, ErrorReport> {
        let prepared = self.node.prepare(code, requirements, &imports(code), events).await;
        prepared.map_err(|error| error.report())
    }

    /// Asks the code, in a sandbox, unless the same code was asked before.
    async fn describe(
        &self,
        source: &UdfSource,
        events: &Events,
    ) -> Result<Vec<Signature>, ErrorReport> {
        // A batch kind is not known yet: what any of them may need is there.
        let declared = declared_packages(&source.code, &source.packages)?;
        let requirements = udf_requirements(&source.code, &declared, &[])?;
        let unit = self.unit(&source.code, &requirements, events).await?;
        let path = self.signatures.join(format!("{}.json", unit.digest));
        if let Some(known) = read(&path) {
            return Ok(known);
        }
        let limits = limits(MEMORY);
        let leased = self.node.lease_instance(&unit, &limits).await;
        let lease = leased.map_err(|error| error.report())?;
        let described = lease.describe(&load(Mode::Describe), DESCRIBE_LIMIT).await;
        let signatures: Vec<Signature> = described
            .map_err(|error| error.report())?
            .parse()
            .map_err(|error: snowmelt_wire::Error| error.report())?;
        lease.give_back();
        if signatures.is_empty() {
            let message = "the code defines no UDF";
            return Err(ErrorReport::new(ErrorCode::FUNCTION_LOAD, message)
                .hint("mark a function with @sm.udf (import snowmelt as sm)"));
        }
        write(&path, &signatures);
        Ok(signatures)
    }
}

/// Requirements of a deployed function: what it declares and what its code's form needs.
pub(crate) fn requirements(code: &Code, packages: &[String]) -> Result<Vec<String>, ErrorReport> {
    let declared = declared_packages(code, packages)?;
    snowmelt_udf::function_requirements(code, &declared).map_err(|error| error.report())
}

/// Modules that the code imports: what its zygote should have imported.
pub(crate) fn imports(code: &Code) -> Vec<String> {
    match code {
        // Text that cannot be parsed is refused when it is loaded, with a traceback.
        Code::Source { text, .. } => snowmelt_udf::imports_of_source(text).unwrap_or_default(),
        Code::Pickle { .. } => Vec::new(),
    }
}

fn udf_requirements(
    code: &Code,
    declared: &[String],
    kinds: &[&str],
) -> Result<Vec<String>, ErrorReport> {
    snowmelt_udf::udf_requirements(code, declared, kinds).map_err(|error| error.report())
}

fn declared_packages(code: &Code, packages: &[String]) -> Result<Vec<String>, ErrorReport> {
    let mut all = packages.to_vec();
    if let Code::Source { text, .. } = code {
        all.extend(snowmelt_udf::packages_of_source(text).map_err(|error| error.report())?);
    }
    all.sort();
    all.dedup();
    Ok(all)
}

fn binding(unit: &Unit, signature: &Signature) -> Result<UdfBinding, ErrorReport> {
    let refused = |error: &dyn std::fmt::Display| {
        let message = format!("`{}`: {error}", signature.name);
        ErrorReport::new(ErrorCode::FUNCTION_SIGNATURE, message)
    };
    let memory = match &signature.memory {
        Some(text) => text.parse().map_err(|error| refused(&error))?,
        None => MEMORY,
    };
    let timeout = match &signature.timeout {
        Some(text) => parse_duration(text).map_err(|error| refused(&error))?,
        None => BATCH_LIMIT,
    };
    Ok(UdfBinding {
        name: signature.name.clone(),
        unit: unit.clone(),
        limits: limits(memory),
        load: Load {
            function: signature.name.clone(),
            batch: Some(signature.batch.clone()),
            on_error: signature.on_error,
            ..load(Mode::Udf)
        },
        timeout,
    })
}

fn load(mode: Mode) -> Load {
    Load {
        mode,
        code: Unit::code_path(),
        function: String::new(),
        batch: None,
        on_error: OnError::default(),
    }
}

fn limits(memory: ByteSize) -> InstanceLimits {
    InstanceLimits {
        memory,
        cpu: CpuMillis(1000),
        pids: 64,
        scratch: ByteSize::mib(64),
        environment: BTreeMap::new(),
        idle: KEPT,
    }
}

fn read(path: &std::path::Path) -> Option<Vec<Signature>> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

/// Only a shortcut for the next time: a folder that cannot be written costs no query its answer.
fn write(path: &std::path::Path, signatures: &[Signature]) {
    let written = || -> std::io::Result<()> {
        let folder = path.parent().unwrap_or(path);
        std::fs::create_dir_all(folder)?;
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        serde_json::to_writer(&mut file, signatures)?;
        file.persist(path)?;
        Ok(())
    };
    if let Err(error) = written() {
        tracing::debug!(%error, "cannot remember signatures");
    }
}
