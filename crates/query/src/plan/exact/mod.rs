//! Changes to logical plans whose answers would differ from SQL, because DataFusion plans them
//! without regard to duplicates, nulls or repeated keys. They are made before the first rule of the optimiser.

mod null_in;
mod set_operations;
mod unnested;

use datafusion::error::Result;
use datafusion::logical_expr::LogicalPlan;

/// A plan with the answer that SQL defines.
pub(super) fn exact(plan: LogicalPlan) -> Result<LogicalPlan> {
    null_in::respect_nulls(set_operations::count_duplicates(unnested::forget_keys(plan)?)?)
}
