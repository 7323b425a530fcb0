//! Prepares the code of a function on a host.

use snowmelt_node::{Node, Result, Secrets, TreePlace, Unit};
use snowmelt_package::Silent;
use snowmelt_types::Digest;
use snowmelt_wire::Load;

use super::api::{BatchForm, FunctionCode, ProgramPart};

impl FunctionCode {
    /// Returns the digest of the function's code and limits: calls of functions with the same
    /// digest may use the same instances.
    pub fn digest(&self) -> Digest {
        // Maps of it are sorted, so equal values have equal texts.
        Digest::of(serde_json::to_vec(self).unwrap_or_default())
    }

    /// Prepares all that instances need. The image is read from the host that `place` names; the
    /// function's files must be on this host already.
    pub async fn prepare(
        &self,
        node: &Node,
        place: Option<&TreePlace>,
        secrets: Secrets,
    ) -> Result<Unit> {
        let unit = self.prepare_code(node, place).await?;
        match self.files.is_empty() && secrets.is_empty() {
            true => Ok(unit),
            false => node.give_here(unit, &self.files, secrets).await,
        }
    }

    async fn prepare_code(&self, node: &Node, place: Option<&TreePlace>) -> Result<Unit> {
        let Self { tenant, code, packages, imports, limits, .. } = self;
        if let Some(at) = &self.packed {
            return node.preparation().prepare_package(tenant, at, place).await;
        }
        match &self.program {
            None => node.preparation().prepare(tenant, code, packages, imports, &Silent).await,
            Some(program) => {
                let ProgramPart { files, request } = program;
                node.preparation().prepare_program(tenant, files, request, limits, place).await
            }
        }
    }

    /// Returns the request by which an instance loads the function.
    pub fn load(&self, unit: &Unit) -> Load {
        let BatchForm { batch, on_error } = self.batches.clone().unwrap_or_default();
        Load { mode: self.mode, code: unit.code(), function: self.handler.clone(), batch, on_error }
    }
}
