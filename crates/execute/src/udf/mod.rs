//! UDFs in a plan: the functions that DataFusion sees, and the connections for their calls.

mod aggregate;
mod aggregate_calls;
mod aggregate_pool;
mod coercion;
mod float_arguments;
mod pool;
mod remote_function;
mod repeats;
mod result_cache;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use arrow::datatypes::{DataType, Fields};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result as DfResult;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::prelude::SessionContext;
use snowmelt_wire::{Signature, UdfConnection, UdfKind};

pub(crate) use aggregate::RemoteAggregate;
pub use aggregate_calls::CheckAggregateCalls;
pub use coercion::refused_call;
pub use pool::UdfPool;
pub use remote_function::RemoteUdf;
pub(crate) use remote_function::call_together;

use crate::{Error, Result};

/// Makes a UDF callable in a session. It is called through `pool`.
pub fn register(
    session: &SessionContext,
    signature: &Signature,
    pool: &Arc<UdfPool>,
) -> Result<()> {
    let pool = Arc::clone(pool);
    match signature.kind {
        UdfKind::Scalar => {
            session.register_udf(RemoteUdf::from_signature(signature, pool)?.into());
        }
        // Found by the planner of FROM alone.
        UdfKind::Table => (),
        UdfKind::Aggregate => {
            // The planner looks for a function of rows first, and for one of windows before OVER.
            for name in [signature.name.clone(), signature.name.to_lowercase()] {
                session.deregister_udf(&name);
                session.deregister_udwf(&name);
            }
            session.register_udaf(RemoteAggregate::from_signature(signature, pool)?.into());
        }
    }
    Ok(())
}

/// The declared types of the arguments of functions, by their names in lower case.
pub fn declared_types(signatures: &[Signature]) -> Result<HashMap<String, Vec<DataType>>> {
    let types = |signature: &Signature| {
        let (arguments, _) = remote_function::schemas(signature)?;
        let types = arguments.fields().iter().map(|field| field.data_type().clone()).collect();
        Ok((signature.name.to_lowercase(), types))
    };
    signatures.iter().map(types).collect()
}

/// The columns of a table function; `None` for other functions.
pub fn table_columns(signature: &Signature) -> Result<Option<Fields>> {
    if signature.kind != UdfKind::Table {
        return Ok(None);
    }
    let (_, result) = remote_function::schemas(signature)?;
    if let DataType::List(row) = result.data_type()
        && let DataType::Struct(columns) = row.data_type()
    {
        return Ok(Some(columns.clone()));
    }
    let why = "its result is not a list of rows".to_owned();
    Err(Error::Signature { function: signature.name.clone(), why })
}

/// Adds a connection to an instance of a UDF to a pool.
pub fn connect(pool: &UdfPool, signature: &Signature, connection: UdfConnection) -> Result<()> {
    match signature.kind {
        UdfKind::Scalar => {
            let (arguments, _) = remote_function::schemas(signature)?;
            let arguments = signature.deterministic.then_some(arguments.as_ref());
            pool.insert(&signature.name, remote_function::open(signature, connection)?, arguments);
        }
        UdfKind::Table => {
            let client = remote_function::open(signature, connection)?.in_parts();
            pool.insert(&signature.name, client, None);
        }
        UdfKind::Aggregate => {
            pool.aggregates.insert(&signature.name, aggregate::open(signature, connection)?);
        }
    }
    Ok(())
}

/// Names of the UDFs that a plan calls.
pub fn names_in(plan: &Arc<dyn ExecutionPlan>) -> Result<BTreeSet<String>> {
    Ok(signatures_in(plan)?.into_keys().collect())
}

/// The UDFs that a plan calls, by name.
pub fn signatures_in(plan: &Arc<dyn ExecutionPlan>) -> Result<BTreeMap<String, Signature>> {
    let mut found = BTreeMap::new();
    plan.apply(|node| {
        found.extend(called_by(node)?);
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

/// The UDFs that one operator calls directly, by name.
pub fn called_by(operator: &Arc<dyn ExecutionPlan>) -> DfResult<BTreeMap<String, Signature>> {
    let mut found = BTreeMap::new();
    operator.apply_expressions(&mut |expression| {
        found.extend(called_in(expression)?);
        Ok(TreeNodeRecursion::Continue)
    })?;
    let aggregates = operator.downcast_ref::<AggregateExec>().map(AggregateExec::aggr_expr);
    for function in aggregates.into_iter().flatten() {
        if let Some(remote) = RemoteAggregate::inside(function.fun()) {
            let signature = remote.wire_signature();
            found.insert(signature.name.clone(), signature.clone());
        }
    }
    Ok(found)
}

/// The UDFs that an expression calls, by name.
pub(crate) fn called_in(
    expression: &Arc<dyn PhysicalExpr>,
) -> DfResult<BTreeMap<String, Signature>> {
    let mut found = BTreeMap::new();
    expression.apply(|part| {
        let call = part.downcast_ref::<ScalarFunctionExpr>();
        if let Some(remote) = call.and_then(|call| RemoteUdf::inside(call.fun())) {
            let signature = remote.wire_signature();
            found.insert(signature.name.clone(), signature.clone());
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}
