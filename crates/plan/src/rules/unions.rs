//! Orders of unions whose inputs have different constants.
//!
//! A column that is a constant in each input of a UNION ALL, but not the same one, differs from
//! partition to partition. DataFusion removes such a column from the keys of a sort above the
//! union, and from those of the merge of the sorted partitions too, so that the merged rows have no
//! order by that column. Here the union has no known constants while sorts are planned.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::physical_expr::AcrossPartitions;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::ensure_requirements::EnsureRequirements;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::union::UnionExec;

use crate::operators::PlanningOnlyExec;

type Rule = Arc<dyn PhysicalOptimizerRule + Send + Sync>;

/// A rule of DataFusion, which sees no constants of unions that differ between their inputs.
#[derive(Debug)]
pub(crate) struct HideConstants(Rule);

impl HideConstants {
    /// Puts itself around the rule that enforces orders.
    pub(crate) fn within(rules: &mut [Rule]) {
        let orders = EnsureRequirements::new();
        for rule in rules.iter_mut().filter(|rule| rule.name() == orders.name()) {
            *rule = Arc::new(Self(Arc::clone(rule)));
        }
    }
}

impl PhysicalOptimizerRule for HideConstants {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let hidden = plan.transform_up(|node| match node.downcast_ref::<UnionExec>() {
            Some(union) if constants_differ(union) => {
                Ok(Transformed::yes(PlanningOnlyExec::without_orders(node)))
            }
            _ => Ok(Transformed::no(node)),
        });
        PlanningOnlyExec::uncovered(self.0.optimize(hidden.data()?, config)?)
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }
}

/// True if a constant may differ between the inputs of a union, also because its value is not
/// known.
fn constants_differ(union: &UnionExec) -> bool {
    let constants = union.properties().eq_properties.constants();
    constants
        .iter()
        .any(|constant| !matches!(constant.across_partitions, AcrossPartitions::Uniform(Some(_))))
}
