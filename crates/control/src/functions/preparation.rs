//! A function that is ready to be called in this process: from its record to a unit that the node
//! can start, with the limits of its instances.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use snowmelt_api::{CallMode, FunctionSpec, PackRequest, Packed, Runtime, check_files};
use snowmelt_node::{
    InstanceLimits, Language, Node, PackageSource, ProgramRequest, Secrets, Unit, has_registry,
};
use snowmelt_package::WantedPython;
use snowmelt_tasks::agent::api::{FunctionCode, ProgramPart};
use snowmelt_types::{Code, Digest, ErrorReport, Report, Tenant};
use snowmelt_wire::{Load, Mode, SourceCode};
use tokio::sync::Semaphore;

use super::declarations::{Declared, declared};
use super::limits;
use crate::access::quotas::{RoomAmount, RoomHolder};
use crate::cluster::placements::{Callee, FunctionTransfer, Placements, Whose};
use crate::cluster::trees;
use crate::state::analysis_cache::AnalysisCache;
use crate::state::records::FunctionRecord;

/// The most instances of a function.
const MAX_INSTANCES: u32 = 10_000;

/// A function that is ready to be called.
#[derive(Debug)]
pub(crate) struct Live {
    pub record: FunctionRecord,
    /// The code in the form in which other hosts are sent it.
    pub code: FunctionCode,
    /// The tree of the function's image, if hosts read that from a registry.
    tree: Option<String>,
    /// The facts by which the scheduler places the function's calls.
    pub needs: Arc<snowmelt_schedule::CallDemand>,
    /// Values of the secrets that the function's instances have.
    secrets: Secrets,
    /// The program that instances of the function are started from on this host.
    pub unit: Unit,
    pub limits: Arc<InstanceLimits>,
    pub load: Load,
    /// The share of a call in the quotas of its tenant.
    pub room: RoomHolder,
    /// Permits for calls: as many as all instances together may take at once.
    pub permits: Semaphore,
    /// The code of the error with which an instance ended last, until a new instance is there.
    ended: Mutex<Option<String>>,
}

impl Live {
    /// Prepares everything that instances of the function need.
    pub async fn prepare(
        node: &Node,
        analysis: &AnalysisCache,
        placements: &Placements,
        record: FunctionRecord,
        secrets: Secrets,
    ) -> Result<Self, ErrorReport> {
        let mut code = code_of(node, analysis, &record).await?;
        code.secrets = (!secrets.is_empty()).then(|| secrets.fingerprint());
        let place = placements.own_tree_place(&record);
        let unit = code.prepare(node, place.as_ref(), secrets.clone()).await;
        let unit = unit.map_err(|error| error.report())?;
        if let Some(image) =
            code.program.as_mut().and_then(|program| program.request.image.as_mut())
        {
            // Other hosts take the image that the name leads to now.
            *image = pinned(image, &unit);
        }
        let load = code.load(&unit);
        let limits = Arc::new(code.limits.clone());
        let permits = Semaphore::new(most_calls(&limits, record.spec.options.instances));
        let only = is_bound_to_control(&record, &code).then(|| placements.own_name());
        let needs = Arc::new(snowmelt_schedule::CallDemand { only, ..needs(&record, &code) });
        let tree = trees::image(&record);
        let ended = Mutex::default();
        let room = instance_room(record.spec.name.as_str(), &limits);
        Ok(Self { code, tree, needs, secrets, unit, limits, load, room, permits, record, ended })
    }

    /// Returns the function in the form in which it is called.
    pub fn callee(&self) -> Callee<'_> {
        let Self { code, tree, needs, secrets, unit, limits, load, .. } = self;
        let sent = Some(FunctionTransfer { code, secrets: Some(secrets), tree: tree.as_deref() });
        Callee { whose: self.whose(), needs, unit, limits, load, sent }
    }

    /// Returns the name of the function for errors, and the time limit of a call.
    pub fn whose(&self) -> Whose<'_> {
        let spec = &self.record.spec;
        let limit = Duration::from_millis(spec.options.timeout_ms);
        Whose { function: spec.name.as_str(), limit }
    }

    /// Returns the number of running calls.
    pub fn calls(&self) -> usize {
        let most = most_calls(&self.limits, self.record.spec.options.instances);
        most.saturating_sub(self.permits.available_permits())
    }

    /// Remembers that an instance ended with a call.
    pub fn instance_ended(&self, error: &ErrorReport) {
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.code.clone());
    }

    /// Takes the error code with which the last instance ended, so that it is told once.
    pub fn take_ended(&self) -> Option<String> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Returns what a call of a function takes of the quotas of its tenant: an instance, which as many
/// calls share as it takes at once.
pub(crate) fn instance_room(function: &str, limits: &InstanceLimits) -> RoomHolder {
    let amount =
        RoomAmount { instances: 1, memory: limits.memory.bytes(), cpu_millis: limits.cpu.0.into() };
    let who = Arc::from(format!("function {function}"));
    RoomHolder { who, amount, shared_by: limits.concurrency.max(1).into() }
}

/// Checks a specification, fills in defaults, and stores the files of a program in the node.
pub(crate) fn accept(
    node: &Node,
    tenant: Tenant,
    mut spec: FunctionSpec,
    deployed_ms: u64,
) -> Result<FunctionRecord, ErrorReport> {
    let refused =
        |message: &str, hint: &str| Err(ErrorReport::new(Code::OPTION, message).hint(hint));
    check_files(&spec.files).map_err(|error| ErrorReport::new(Code::FUNCTION_FILE, error))?;
    limits::check(&spec.options, language(&spec).is_some())?;
    let is_inside = spec.root.is_some() || spec.image.is_some();
    // An image may name a command itself.
    let has_command =
        !spec.command.is_empty() || spec.runtime == Runtime::Command && spec.image.is_some();
    if (spec.runtime == Runtime::Command) != has_command {
        return refused(
            "a command goes with the runtime `command` and no other",
            "name either a runtime or a command (fn deploy --runtime, --command)",
        );
    }
    if spec.packed.is_some() {
        return accept_packed(tenant, spec, deployed_ms);
    }
    let Some(language) = language(&spec) else {
        spec.handler = if spec.handler.is_empty() { "handler".into() } else { spec.handler };
        return Ok(FunctionRecord { tenant, spec, deployed_ms, files: None, packed: None });
    };
    let empty = BTreeMap::new();
    let files = match (&spec.code, language) {
        (SourceCode::Files { files }, _) if language != Language::Python => files,
        (
            SourceCode::Source { .. } | SourceCode::Folder { .. } | SourceCode::Pickle { .. },
            Language::Python,
        ) => &empty,
        (SourceCode::Files { .. }, _) => {
            let hint = "name one Python file, or a folder with app.py";
            return refused("Python code is needed, and these are files of a program", hint);
        }
        _ => {
            let hint = "send {\"kind\": \"files\", \"files\": …}";
            return refused("a program needs the files of a folder, and this is Python code", hint);
        }
    };
    if !spec.packages.is_empty() && language == Language::Python {
        let hint = "build an image on it that has them (snowmelt image build --base … --python …)";
        return refused("a Python function in an image has the packages of that image", hint);
    }
    if !spec.packages.is_empty() || spec.mode == CallMode::Map && language != Language::Python {
        let hint = "bring what the program needs with its files, or in an image (--image)";
        return refused("packages and sm.map are for Python functions", hint);
    }
    if spec.root.is_some() && spec.image.is_some() {
        return refused("a root and an image are one too many", "leave --root or --image out");
    }
    if spec.root.as_ref().is_some_and(|root| !root.is_absolute()) {
        return refused("the root is not an absolute path", "name the folder from / on");
    }
    let needs_files = match language {
        Language::Python => false,
        // The program may be the image's.
        Language::Command => !is_inside,
        Language::Node | Language::Java | Language::Go => true,
    };
    if needs_files && files.is_empty() {
        return refused("there are no files of the code", "name a file, or a folder with files");
    }
    if spec.handler.is_empty() {
        spec.handler = language.default_handler(files.keys().map(String::as_str));
    }
    let digest = node.preparation().store(&spec.code).map_err(|error| error.report())?;
    spec.code = SourceCode::Files { files: BTreeMap::new() };
    Ok(FunctionRecord { tenant, spec, deployed_ms, files: Some(digest), packed: None })
}

fn accept_packed(
    tenant: Tenant,
    spec: FunctionSpec,
    deployed_ms: u64,
) -> Result<FunctionRecord, ErrorReport> {
    let has_code = !matches!(&spec.code, SourceCode::Files { files } if files.is_empty());
    let plain = spec.runtime == Runtime::Python && spec.root.is_none() && spec.image.is_none();
    if has_code || !plain || !spec.packages.is_empty() || spec.mode == CallMode::Map {
        let message = "a code package has the code and the packages of a Python function";
        let hint = "name the package alone, without code, packages, runtime, root or image";
        return Err(ErrorReport::new(Code::OPTION, message).hint(hint));
    }
    Ok(FunctionRecord { tenant, spec, deployed_ms, files: None, packed: None })
}

/// Finds the code package of a function that has one, and pins the manifest that its name refers to
/// now.
pub(crate) async fn pin(node: &Node, record: &mut FunctionRecord) -> Result<(), ErrorReport> {
    let Some(name) = &record.spec.packed else { return Ok(()) };
    let found = node.preparation().find_package(&record.tenant, name).await;
    let (at, handler) = found.map_err(|error| error.report())?;
    if record.spec.handler.is_empty() {
        record.spec.handler = handler;
    }
    record.packed = Some(at);
    Ok(())
}

/// Makes a code package of a tenant.
pub(crate) async fn pack(
    node: &Node,
    analysis: &AnalysisCache,
    tenant: &Tenant,
    request: PackRequest,
) -> Result<Packed, ErrorReport> {
    let PackRequest { name, code, handler, packages } = request;
    if matches!(code, SourceCode::Files { .. }) {
        let message = "a code package is of Python code, and these are files of a program";
        let hint = "put a program into an image (snowmelt image convert) and name that (--image)";
        return Err(ErrorReport::new(Code::OPTION, message).hint(hint));
    }
    let Declared { packages, imports, .. } = declared(node, analysis, &code, &packages).await?;
    let handler = if handler.is_empty() { "handler" } else { &handler };
    let source = PackageSource { code: &code, handler, requirements: &packages, imports: &imports };
    let packed = node.preparation().pack(tenant, &name, source, &snowmelt_package::Silent).await;
    packed.map_err(|error| error.report())
}

/// Returns the code of a function with all that a host needs to run it.
pub(crate) async fn code_of(
    node: &Node,
    analysis: &AnalysisCache,
    record: &FunctionRecord,
) -> Result<FunctionCode, ErrorReport> {
    let spec = &record.spec;
    let program = match language(spec).filter(|_| record.packed.is_none()) {
        None => None,
        Some(language) => {
            let missing =
                || ErrorReport::new(Code::STATE, "the record of the function has no files");
            let files = record.files.clone().ok_or_else(missing)?;
            Some(ProgramPart { files, request: program_request(spec, language) })
        }
    };
    let Declared { packages, imports, .. } = match program.is_some() || record.packed.is_some() {
        true => Declared::default(),
        false => declared(node, analysis, &spec.code, &spec.packages).await?,
    };
    Ok(FunctionCode {
        tenant: record.tenant.clone(),
        code: spec.code.clone(),
        program,
        packed: record.packed.clone(),
        handler: spec.handler.clone(),
        mode: if spec.mode == CallMode::Map { Mode::Map } else { Mode::Function },
        packages,
        imports,
        files: spec.files.clone(),
        secrets: None,
        batches: None,
        limits: InstanceLimits::from(&spec.options),
    })
}

/// Returns the name of an image with the digest that it led to, if other hosts can read it by that.
pub(crate) fn pinned(name: &str, unit: &Unit) -> String {
    match unit.image() {
        Some(digest) if has_registry(name) && !name.contains('@') => format!("{name}@{digest}"),
        _ => name.to_owned(),
    }
}

/// Returns the facts by which the scheduler places the calls of a function.
fn needs(record: &FunctionRecord, code: &FunctionCode) -> snowmelt_schedule::CallDemand {
    let image = trees::image(record).or_else(|| record.spec.image.clone());
    needs_of(&record.tenant, code.digest(), image, &code.packages, &code.limits)
}

/// Returns the facts by which the scheduler places calls of a function in an image or with
/// packages.
pub(crate) fn needs_of(
    tenant: &Tenant,
    function: Digest,
    image: Option<String>,
    packages: &[String],
    limits: &InstanceLimits,
) -> snowmelt_schedule::CallDemand {
    let image = image.or_else(|| environment_of(packages));
    snowmelt_schedule::CallDemand {
        tenant: tenant.clone(),
        function,
        image: image.map(Digest::of),
        memory: limits.memory.bytes(),
        cpu_millis: limits.cpu.0,
        concurrency: limits.concurrency,
        idle: limits.idle,
        only: None,
        near_first: false,
    }
}

/// Returns a key for what hosts have to read or install for packages: their zygotes and
/// environments are shared by functions with the same packages. A version of Python alone, as each
/// pickled function requires, gives `None`: nothing is installed for it.
fn environment_of(packages: &[String]) -> Option<String> {
    let is_installed = match WantedPython::split(packages) {
        Ok((_, installed)) => !installed.is_empty(),
        Err(_) => true,
    };
    is_installed.then(|| packages.join("\n"))
}

/// Returns whether only control's own host can run a function: it runs in a folder of that host, in
/// an image that is in no registry, or with a wheel of a user's own.
fn is_bound_to_control(record: &FunctionRecord, code: &FunctionCode) -> bool {
    let in_no_registry = |name: &str| !has_registry(name);
    record.spec.root.is_some()
        || record.spec.image.as_deref().is_some_and(in_no_registry)
        || record.packed.as_ref().is_some_and(|at| in_no_registry(&at.name))
        || has_own_wheels(&code.packages)
}

/// Returns whether some packages are wheels of a user's own, which only control's host has.
pub(crate) fn has_own_wheels(packages: &[String]) -> bool {
    packages.iter().any(|package| package.contains(" @ sha256:"))
}

fn program_request(spec: &FunctionSpec, language: Language) -> ProgramRequest {
    ProgramRequest {
        language,
        command: spec.command.clone(),
        root: spec.root.clone(),
        image: spec.image.clone(),
        handler: spec.handler.clone(),
    }
}

/// Returns the language of a function's program; `None` if it is forked from a zygote of the
/// platform's Python.
fn language(spec: &FunctionSpec) -> Option<Language> {
    let is_inside = spec.root.is_some() || spec.image.is_some();
    match spec.runtime {
        Runtime::Python if is_inside && spec.packed.is_none() => Some(Language::Python),
        Runtime::Python => None,
        Runtime::Node => Some(Language::Node),
        Runtime::Java => Some(Language::Java),
        Runtime::Go => Some(Language::Go),
        Runtime::Command => Some(Language::Command),
    }
}

fn most_calls(limits: &InstanceLimits, instances: u32) -> usize {
    instances.clamp(1, MAX_INSTANCES) as usize * limits.concurrency as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_of_python_alone_is_no_environment_that_hosts_have_to_read() {
        let of = |packages: &[&str]| {
            let packages: Vec<String> = packages.iter().map(|&one| one.to_owned()).collect();
            environment_of(&packages)
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&["python==3.11", "python>=3.10"]), None);
        assert_eq!(of(&["six", "python==3.11"]).as_deref(), Some("six\npython==3.11"));
    }
}
