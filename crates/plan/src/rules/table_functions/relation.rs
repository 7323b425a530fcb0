//! Plans a call of a table function in FROM.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::{DFSchema, plan_err};
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::logical_expr::{Expr, ScalarUDF};
use datafusion::sql::sqlparser::ast::{
    FunctionArg, FunctionArgExpr, Ident, ObjectName, ObjectNamePart, TableAlias, TableFactor,
};
use snowmelt_execute::udf::{RemoteUdf, UdfPool};
use snowmelt_wire::{Signature, UdfKind};

use super::rows;
use crate::Result;

/// The table functions of a query, by name in lower case.
#[derive(Debug)]
pub(crate) struct TableFunctions {
    functions: HashMap<String, Arc<ScalarUDF>>,
}

impl TableFunctions {
    /// Collects the table functions of `signatures`. They are called through `pool`.
    pub(crate) fn of(signatures: &[Signature], pool: &Arc<UdfPool>) -> Result<Self> {
        let tables = signatures.iter().filter(|signature| signature.kind == UdfKind::Table);
        let function = |signature: &Signature| {
            let remote = RemoteUdf::from_signature(signature, Arc::clone(pool))?;
            Ok((signature.name.to_lowercase(), Arc::new(ScalarUDF::from(remote))))
        };
        Ok(Self { functions: tables.map(function).collect::<Result<_>>()? })
    }

    fn called<'a>(&self, name: &'a ObjectName) -> Option<(&'a Ident, &Arc<ScalarUDF>)> {
        let [ObjectNamePart::Identifier(name)] = name.0.as_slice() else { return None };
        Some((name, self.functions.get(&name.value.to_lowercase())?))
    }
}

impl RelationPlanner for TableFunctions {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> DfResult<RelationPlanning> {
        let TableFactor::Function { name, args, alias, .. } = &relation else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        let Some((name, function)) = self.called(name) else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        let args = args.iter().map(|argument| value(argument, context));
        let plan = rows::called(function, args.collect::<DfResult<_>>()?)?;
        let alias = alias.clone().unwrap_or_else(|| TableAlias {
            explicit: false,
            name: name.clone(),
            columns: Vec::new(),
            at: None,
        });
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, Some(alias)))))
    }
}

/// A value. A name that no table around the call has stays a column: the join reports it, which
/// knows the columns that there are.
fn value(argument: &FunctionArg, context: &mut dyn RelationPlannerContext) -> DfResult<Expr> {
    match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expression)) => {
            context.sql_expr_to_logical_expr(expression.clone(), &DFSchema::empty())
        }
        other => plan_err!("{other} is not a value"),
    }
}
