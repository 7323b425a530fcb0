//! UDFs in a plan: the functions that DataFusion sees, and the connections for their calls.

mod coercion;
mod pool;
mod remote;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result as DfResult;
use datafusion::physical_expr::ScalarFunctionExpr;
use datafusion::physical_plan::ExecutionPlan;
use snowmelt_wire::Signature;

pub(crate) use coercion::refused_call;
pub(crate) use pool::UdfPool;
pub(crate) use remote::{RemoteUdf, open};

use crate::Result;

/// Names of the UDFs that a plan calls.
pub(crate) fn names_in(plan: &Arc<dyn ExecutionPlan>) -> Result<BTreeSet<String>> {
    Ok(signatures_in(plan)?.into_keys().collect())
}

/// The UDFs that a plan calls, by name.
pub(crate) fn signatures_in(plan: &Arc<dyn ExecutionPlan>) -> Result<BTreeMap<String, Signature>> {
    let mut found = BTreeMap::new();
    plan.apply(|node| {
        found.extend(called_by(node)?);
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

/// The UDFs that one operator calls directly, by name.
pub(crate) fn called_by(
    operator: &Arc<dyn ExecutionPlan>,
) -> DfResult<BTreeMap<String, Signature>> {
    let mut found = BTreeMap::new();
    operator.apply_expressions(&mut |expression| {
        expression.apply(|part| {
            let call = part.downcast_ref::<ScalarFunctionExpr>();
            if let Some(remote) = call.and_then(|call| RemoteUdf::inside(call.fun())) {
                let signature = remote.wire_signature();
                found.insert(signature.name.clone(), signature.clone());
            }
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(found)
}
