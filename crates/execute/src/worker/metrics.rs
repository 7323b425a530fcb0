//! Metrics of an executed plan.

use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::{MetricValue, MetricsSet};
use snowmelt_wire::{OperatorMetric, UdfUse};

use crate::operator_text::operator_line;
use crate::tree::file_scan;
use crate::udf;

/// DataFusion's metrics of what a scan leaves out because of statistics.
const PRUNING: [&str; 3] = [
    "files_ranges_pruned_statistics",
    "row_groups_pruned_statistics",
    "row_groups_pruned_bloom_filter",
];

/// The operators of a plan in preorder, with the rows and the time of all partitions that ran. Each
/// operator is followed by the UDFs that it calls, whose time is subtracted from its own.
pub fn operators(plan: &Arc<dyn ExecutionPlan>, mut used: Vec<UdfUse>) -> Vec<OperatorMetric> {
    let mut found = Vec::new();
    collect(plan, 0, &mut used, &mut found);
    found
}

fn collect(
    plan: &Arc<dyn ExecutionPlan>,
    depth: u32,
    used: &mut [UdfUse],
    found: &mut Vec<OperatorMetric>,
) {
    let metrics = plan.metrics().unwrap_or_default();
    let index = found.len();
    found.push(OperatorMetric {
        id: index as u32,
        depth,
        name: operator_line(plan),
        rows: metrics.output_rows().unwrap_or(0) as u64,
        compute_nanos: compute_nanos(plan, &metrics),
    });
    for name in udf::called_by(plan).unwrap_or_default().into_keys() {
        let (rows, nanos) = attributed(&name, found[index].compute_nanos, used);
        found[index].compute_nanos -= nanos;
        found.push(OperatorMetric {
            id: found.len() as u32,
            depth: depth + 1,
            name: format!("UDF: {name}"),
            rows,
            compute_nanos: nanos,
        });
    }
    for child in plan.children() {
        collect(child, depth + 1, used, found);
    }
}

/// The part of a UDF's use that belongs to an operator that computed for `most` nanoseconds; the
/// rest stays for the other operators that call it.
fn attributed(name: &str, most: u64, used: &mut [UdfUse]) -> (u64, u64) {
    let Some(it) = used.iter_mut().find(|used| used.name == name) else { return (0, 0) };
    let nanos = it.nanos.min(most);
    it.nanos -= nanos;
    (std::mem::take(&mut it.rows), nanos)
}

/// The compute time of an operator. A scan has a separate clock, which runs while it decodes.
fn compute_nanos(plan: &Arc<dyn ExecutionPlan>, metrics: &MetricsSet) -> u64 {
    let scanned = metrics.sum_by_name("time_elapsed_processing");
    match scanned.filter(|_| file_scan(plan).is_some()) {
        Some(scanned) => scanned.as_usize() as u64,
        None => metrics.elapsed_compute().unwrap_or(0) as u64,
    }
}

/// Parts of files and row groups that the scans of a plan left out.
pub(super) fn pruned(plan: &Arc<dyn ExecutionPlan>) -> u64 {
    let metrics = plan.metrics().unwrap_or_default();
    let mut own = 0;
    for metric in metrics.iter().filter(|_| file_scan(plan).is_some()) {
        if let MetricValue::PruningMetrics { name, pruning_metrics } = metric.value()
            && PRUNING.contains(&name.as_ref())
        {
            own += pruning_metrics.pruned() as u64;
        }
    }
    own + plan.children().into_iter().map(pruned).sum::<u64>()
}

/// Number of rows that the scans of a plan have produced so far.
pub(super) fn rows_read(plan: &Arc<dyn ExecutionPlan>) -> u64 {
    if file_scan(plan).is_some() {
        let rows = plan.metrics().and_then(|metrics| metrics.output_rows());
        return rows.unwrap_or(0) as u64;
    }
    plan.children().into_iter().map(rows_read).sum()
}
