//! A UDF that is leased, as the scheduler and other hosts know it.

use std::collections::BTreeMap;
use std::sync::Arc;

use snowmelt_node::ProgramRequest;
use snowmelt_schedule::CallDemand;
use snowmelt_tasks::UdfBinding;
use snowmelt_tasks::agent::api::{BatchForm, FunctionCode, ProgramPart};
use snowmelt_types::Tenant;
use snowmelt_wire::SourceCode;

use crate::cluster::placements::{Callee, FunctionTransfer, Placements, Whose};
use crate::functions::preparation::{has_own_wheels, needs_of};

/// A UDF that is leased.
pub(super) struct LeasedUdf<'b> {
    binding: &'b UdfBinding,
    /// The code in the form in which other hosts are sent it; `None` if no other host can run it,
    /// or there is none.
    code: Option<FunctionCode>,
    needs: Arc<CallDemand>,
}

impl<'b> LeasedUdf<'b> {
    pub fn new(tenant: &Tenant, binding: &'b UdfBinding, placements: &Placements) -> Self {
        // On a platform of one host nothing is placed, and code may be long.
        let code = (!placements.is_alone()).then(|| code(tenant, binding)).flatten();
        let code = code.filter(|code| !has_own_wheels(&code.packages));
        let only = code.is_none().then(|| placements.own_name());
        let needs = Arc::new(CallDemand { only, ..needs(tenant, binding, code.as_ref()) });
        Self { binding, code, needs }
    }

    /// Returns the UDF in the form in which it is leased.
    pub fn callee(&self) -> Callee<'_> {
        let UdfBinding { name, unit, limits, load, timeout, source } = self.binding;
        let source = source.as_deref();
        let sent = self.code.as_ref().map(|code| FunctionTransfer {
            code,
            secrets: source.map(|source| &source.secrets),
            tree: source.and_then(|source| source.image.as_ref()).map(|image| image.tree.as_str()),
        });
        let whose = Whose { function: name, limit: *timeout };
        Callee { whose, needs: &self.needs, unit, limits, load, sent }
    }
}

/// Makes the code in the form in which other hosts are sent it; `None` if it has no source.
fn code(tenant: &Tenant, binding: &UdfBinding) -> Option<FunctionCode> {
    let source = binding.source.as_ref()?;
    let load = &binding.load;
    let program = source.image.as_ref().map(|image| ProgramPart {
        files: image.code.clone(),
        request: ProgramRequest::python_in(image.name.clone()),
    });
    // Those of a program are sent apart, once.
    let code = match program {
        Some(_) => SourceCode::Files { files: BTreeMap::new() },
        None => source.code.clone(),
    };
    Some(FunctionCode {
        tenant: tenant.clone(),
        code,
        program,
        packed: None,
        handler: load.function.clone(),
        mode: load.mode,
        packages: source.packages.clone(),
        imports: source.imports.clone(),
        files: source.files.clone(),
        secrets: (!source.secrets.is_empty()).then(|| source.secrets.fingerprint()),
        batches: Some(BatchForm { batch: load.batch.clone(), on_error: load.on_error }),
        limits: (*binding.limits).clone(),
    })
}

/// Makes the facts by which the scheduler places leases of the UDF.
fn needs(tenant: &Tenant, binding: &UdfBinding, code: Option<&FunctionCode>) -> CallDemand {
    let UdfBinding { unit, limits, source, .. } = binding;
    let tree =
        source.as_ref().and_then(|source| source.image.as_ref()).map(|image| image.tree.clone());
    let packages = source.as_ref().map_or(&[][..], |source| &source.packages);
    let function = code.map_or_else(|| unit.digest.clone(), FunctionCode::digest);
    CallDemand { near_first: true, ..needs_of(tenant, function, tree, packages, limits) }
}
