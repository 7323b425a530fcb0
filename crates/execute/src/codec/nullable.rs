//! Columns that a union declares nullable.
//!
//! A union casts the columns of an input without nulls to the same type with nulls, if another
//! input has nulls. DataFusion's codec keeps only the type of a cast, so that the union of the
//! decoded plan would differ. Here such a cast is an expression of its own, which the codec keeps.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, FieldRef, Schema};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::CastExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};

/// The values of an expression, declared nullable.
#[derive(Clone, Debug, Eq)]
pub(crate) struct Nullable {
    value: Arc<dyn PhysicalExpr>,
}

// Derived, both would move the value: a known fault of the compiler with `Arc<dyn _>`.
impl PartialEq for Nullable {
    fn eq(&self, other: &Self) -> bool {
        self.value.eq(&other.value)
    }
}

impl Hash for Nullable {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.value.hash(state);
    }
}

impl Nullable {
    /// Declares an expression nullable, and leaves its values as they are.
    pub(crate) fn new(value: Arc<dyn PhysicalExpr>) -> Self {
        Self { value }
    }
}

impl fmt::Display for Nullable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.value)
    }
}

impl PhysicalExpr for Nullable {
    fn data_type(&self, schema: &Schema) -> Result<DataType> {
        self.value.data_type(schema)
    }

    fn nullable(&self, _: &Schema) -> Result<bool> {
        Ok(true)
    }

    fn return_field(&self, schema: &Schema) -> Result<FieldRef> {
        let field = self.value.return_field(schema)?;
        Ok(Arc::new(field.as_ref().clone().with_nullable(true)))
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        self.value.evaluate(batch)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.value]
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        Ok(Arc::new(Self { value: Arc::clone(&children[0]) }))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt_sql(f)
    }
}

/// Replaces casts to nullable fields. To be placed before the rules that move projections.
#[derive(Debug)]
pub struct KeepNullable;

impl PhysicalOptimizerRule for KeepNullable {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| match node.downcast_ref::<ProjectionExec>() {
            Some(projection) if projection.expr().iter().any(|expr| is_to_nullable(&expr.expr)) => {
                let replaced =
                    projection.expr().iter().map(replaced).collect::<Result<Vec<_>>>()?;
                let input = Arc::clone(projection.input());
                Ok(Transformed::yes(Arc::new(ProjectionExec::try_new(replaced, input)?)))
            }
            _ => Ok(Transformed::no(node)),
        })
        .data()
    }

    fn name(&self) -> &str {
        "keep_nullable"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn is_to_nullable(expr: &Arc<dyn PhysicalExpr>) -> bool {
    expr.downcast_ref::<CastExpr>().is_some_and(|cast| {
        cast.target_nullable() == Some(true) && cast.target_field().metadata().is_empty()
    })
}

fn replaced(projected: &ProjectionExpr) -> Result<ProjectionExpr> {
    let replaced = Arc::clone(&projected.expr).transform_up(|expr| {
        let Some(cast) = expr.downcast_ref::<CastExpr>().filter(|_| is_to_nullable(&expr)) else {
            return Ok(Transformed::no(expr));
        };
        let value = Arc::clone(cast.expr());
        let data_type = cast.cast_type().clone();
        let plain = CastExpr::new(value, data_type, Some(cast.cast_options().clone()));
        let nullable: Arc<dyn PhysicalExpr> = Arc::new(Nullable::new(Arc::new(plain)));
        Ok(Transformed::yes(nullable))
    });
    Ok(ProjectionExpr { expr: replaced.data()?, alias: projected.alias.clone() })
}
