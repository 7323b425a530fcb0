//! Finds the operators of a plan that may run on workers.
//!
//! An operator must survive the codec unchanged. An operator that does not runs in the driver, and
//! so do all operators that read it: the driver feeds no worker.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::execution::config::SessionConfig;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use snowmelt_execute::codec;
use snowmelt_execute::exchange::{ExchangeReadExec, Facts};
use snowmelt_execute::tree::{address, file_scan, with_children};

use crate::operators::SharedExec;
use crate::{Error, Result};

/// The operators that may run on workers, by address.
pub(crate) struct Sendable(HashSet<usize>);

impl Sendable {
    /// Tries the codec with each operator of a plan.
    ///
    /// # Errors
    /// A scan would be changed: the driver reads no files.
    pub(crate) fn of(plan: &Arc<dyn ExecutionPlan>, config: &SessionConfig) -> Result<Self> {
        let mut found = Self(HashSet::new());
        found.add(plan, config)?;
        Ok(found)
    }

    fn add(&mut self, node: &Arc<dyn ExecutionPlan>, config: &SessionConfig) -> Result<()> {
        if let Some(shared) = node.downcast_ref::<SharedExec>() {
            self.add(shared.part(), config)?;
            if self.is(shared.part()) {
                self.0.insert(address(node));
            }
            return Ok(());
        }
        let mut inputs = true;
        for child in node.children() {
            self.add(child, config)?;
            inputs &= self.is(child);
        }
        let alone = match inputs {
            true => alone(node)?,
            false => return Ok(()),
        };
        match codec::encode(&alone, config) {
            Ok(_) => _ = self.0.insert(address(node)),
            Err(why) if file_scan(node).is_some() => return Err(Error::ScanChanged { why }),
            Err(why) => tracing::debug!(%why, "an operator stays with the driver"),
        }
        Ok(())
    }

    /// True if the operator and everything below it may run on workers.
    pub(crate) fn is(&self, node: &Arc<dyn ExecutionPlan>) -> bool {
        self.0.contains(&address(node))
    }
}

/// The operator over leaves with the properties of its inputs.
fn alone(node: &Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let leaf = |child: &Arc<dyn ExecutionPlan>| -> Result<Arc<dyn ExecutionPlan>> {
        let facts = Facts::of_partitions(child.equivalence_properties());
        let partitioning = child.output_partitioning().clone();
        Ok(Arc::new(ExchangeReadExec::new(0, child.schema(), partitioning, facts)?))
    };
    Ok(with_children(node, node.children().into_iter().map(leaf).collect::<Result<_>>()?)?)
}
