//! Applies the filters that hash joins make while they run to the rows of scans.
//!
//! DataFusion passes such a filter, the keys of a join's build side, down to the scan of its probe
//! side, where it only prunes row groups. Applied to the rows as well, it saves the work of all
//! operators between scan and join.
//!
//! Invariant: only a filter whose join is in the same plan is applied, because a join in another
//! stage never fills it.

use std::sync::Arc;

use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::error::Result;
use datafusion::physical_expr::expressions::{Column, DynamicFilterPhysicalExpr};
use datafusion::physical_expr::utils::split_conjunction;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::{ChildrenPropertiesMode, ExecutionPlan, ReplaceChildrenOptions};

use super::row_filter::{RowFilter, RowFilterExec};
use crate::tree::file_scan;
use crate::udf;

/// The input of a hash join that its dynamic filter applies to.
const PROBE: usize = 1;

/// The largest share of rows, in percent, that may pass a filter. A filter that more rows pass
/// costs more than it saves: a lookup for each row, and a copy of each row that passes.
const MAX_PERCENT: usize = 50;

/// The limit in percent for the filter of the join that reads the scan, which only saves the join's
/// own lookups.
const MAX_PERCENT_OF_NEXT: usize = 25;

/// A join's filter, as seen from an operator below the join.
#[derive(Clone, Copy)]
struct JoinFilter {
    /// Number that identifies the filter's expression; equal numbers stay equal when a plan is
    /// decoded.
    id: u64,
    /// True if there is an operator between the scan and the join whose work the filter saves.
    saves_work: bool,
}

/// Adds the filters of hash joins to the scans that read them. To be called for the plan that runs,
/// after it was decoded.
pub(crate) fn apply_dynamic_filters(
    plan: Arc<dyn ExecutionPlan>,
) -> Result<Arc<dyn ExecutionPlan>> {
    apply(&plan, &[])
}

fn apply(node: &Arc<dyn ExecutionPlan>, joins: &[JoinFilter]) -> Result<Arc<dyn ExecutionPlan>> {
    if let Some(scan) = file_scan(node) {
        return Ok(match filters_of(scan, joins) {
            filters if filters.is_empty() => Arc::clone(node),
            filters => Arc::new(RowFilterExec::new(filters, Arc::clone(node))),
        });
    }
    let before = node.children();
    let below = before.iter().enumerate();
    let below = below.map(|(input, child)| apply(child, &seen_from(node, input, joins)?));
    let children = below.collect::<Result<Vec<_>>>()?;
    if children.iter().zip(before).all(|(after, before)| Arc::ptr_eq(after, before)) {
        return Ok(Arc::clone(node));
    }
    // A filtered scan has the properties of the scan. To keep those of the operators above also
    // keeps the filters that they share with scans: a sort that recomputes them makes another.
    let same = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep);
    Arc::clone(node).replace_children(children, same)
}

/// The filters of the joins above, seen from an input of `node`.
fn seen_from(
    node: &Arc<dyn ExecutionPlan>,
    input: usize,
    joins: &[JoinFilter],
) -> Result<Vec<JoinFilter>> {
    let works = !passes_on(node)?;
    let passed =
        joins.iter().map(|join| JoinFilter { saves_work: join.saves_work || works, ..*join });
    let mut seen: Vec<JoinFilter> = passed.collect();
    if node.is::<HashJoinExec>() && input == PROBE {
        let produced = node.dynamic_expressions_produced();
        let ids = produced.iter().filter_map(|filter| filter.expression_id());
        // A join looks up each row of its probe side itself: for it alone a filter saves nothing.
        seen.extend(ids.map(|id| JoinFilter { id, saves_work: false }));
    }
    Ok(seen)
}

/// True for operators that cost less than a lookup for each row.
fn passes_on(node: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    let is_cheap = match node.downcast_ref::<ProjectionExec>() {
        Some(projection) => projection.expr().iter().all(|column| column.expr.is::<Column>()),
        None => node.is::<FilterExec>() || node.is::<CooperativeExec>(),
    };
    Ok(is_cheap && udf::called_by(node)?.is_empty())
}

/// Returns the filters of `joins` with which a scan prunes row groups, in terms of the scan's
/// output.
///
/// If one of them saves work, the others are applied too: the rows that they drop need no lookup in
/// the first one.
fn filters_of(scan: &FileScanConfig, joins: &[JoinFilter]) -> Vec<RowFilter> {
    let source = scan.file_source();
    let Some(predicate) = source.filter() else { return Vec::new() };
    let mut filters = Vec::new();
    let mut saves_work = false;
    for part in split_conjunction(&predicate) {
        let id = part.expression_id().filter(|_| part.is::<DynamicFilterPhysicalExpr>());
        let Some(join) = joins.iter().find(|join| Some(join.id) == id) else { continue };
        // A predicate names the columns of the files, and may use some that are not in the output.
        let in_output = source.projection().map(|projection| projection.project_expr(part));
        let Ok(expression) = in_output.unwrap_or_else(|| Ok(Arc::clone(part))) else { continue };
        saves_work |= join.saves_work;
        let most_percent = if join.saves_work { MAX_PERCENT } else { MAX_PERCENT_OF_NEXT };
        filters.push((!join.saves_work, RowFilter { expression, most_percent }));
    }
    if !saves_work {
        return Vec::new();
    }
    // The filter of the next join first: its lookups are made in any case.
    filters.sort_by_key(|(is_of_next, _)| !is_of_next);
    filters.into_iter().map(|(_, filter)| filter).collect()
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
    use arrow::util::pretty::pretty_format_batches;
    use datafusion::execution::context::{SessionConfig, SessionContext};
    use datafusion::physical_plan::collect;
    use datafusion::prelude::ParquetReadOptions;
    use parquet::arrow::ArrowWriter;
    use tempfile::TempDir;

    use super::*;
    use crate::codec;
    use crate::context::execution_config;
    use crate::udf::UdfPool;

    /// `fact` has 20,000 rows; `mid` (1,000) and `few` (10) have its keys. All have nulls.
    fn write_tables(folder: &TempDir) {
        for (name, rows, step) in [("fact", 20_000_i64, 7), ("mid", 1_000, 1), ("few", 10, 37)] {
            let key = |n: i64, of: i64| Some(n % of).filter(|key| key % 11 != 5);
            let columns: [(&str, ArrayRef); 4] = [
                ("k", Arc::new((0..rows).map(|n| key(n * step, 1000)).collect::<Int64Array>())),
                ("m", Arc::new((0..rows).map(|n| key(n * step, 400)).collect::<Int64Array>())),
                ("n", Arc::new((0..rows).collect::<Int64Array>())),
                ("s", Arc::new((0..rows).map(|n| Some(format!("{n}"))).collect::<StringArray>())),
            ];
            let columns = columns.map(|(name, column)| (name, column, true));
            let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
            let file = File::create(folder.path().join(format!("{name}.parquet"))).unwrap();
            let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
            writer.write(&batch).unwrap();
            writer.close().unwrap();
        }
    }

    async fn session(folder: &TempDir, config: SessionConfig) -> SessionContext {
        let session = SessionContext::new_with_config(config);
        for name in ["fact", "mid", "few"] {
            let path = folder.path().join(format!("{name}.parquet")).display().to_string();
            session.register_parquet(name, path, ParquetReadOptions::default()).await.unwrap();
        }
        session
    }

    /// The filtered scans of a plan.
    fn filtered(plan: &Arc<dyn ExecutionPlan>) -> Vec<Arc<dyn ExecutionPlan>> {
        let own = plan.is::<RowFilterExec>().then(|| Arc::clone(plan));
        let below = plan.children().into_iter().flat_map(filtered);
        own.into_iter().chain(below).collect()
    }

    fn rows_of(plan: &Arc<dyn ExecutionPlan>) -> usize {
        plan.metrics().and_then(|metrics| metrics.output_rows()).unwrap()
    }

    async fn answer(plan: &Arc<dyn ExecutionPlan>, session: &SessionContext) -> Vec<String> {
        let batches = collect(Arc::clone(plan), session.task_ctx()).await.unwrap();
        let text = pretty_format_batches(&batches).unwrap().to_string();
        let mut rows: Vec<String> = text.lines().map(str::to_owned).collect();
        rows.sort();
        rows
    }

    /// The answer of a query must be the same with filtered scans in a plan that was sent. Returns
    /// these scans.
    async fn check(sql: &str) -> Vec<Arc<dyn ExecutionPlan>> {
        let folder = tempfile::tempdir().unwrap();
        write_tables(&folder);
        let config = execution_config(1, 512);
        let session = session(&folder, config.clone()).await;
        let plan = async || session.sql(sql).await.unwrap().create_physical_plan().await.unwrap();
        let bytes = codec::encode(&plan().await, &config).unwrap();
        let decoded = codec::decode(&bytes, &session.task_ctx(), UdfPool::empty()).unwrap();
        let ours = apply_dynamic_filters(decoded).unwrap();
        assert_eq!(answer(&ours, &session).await, answer(&plan().await, &session).await, "{sql}");
        filtered(&ours)
    }

    #[tokio::test]
    async fn a_scan_below_two_joins_is_filtered_after_the_plan_was_sent() {
        let filtered =
            check("select * from fact join mid on fact.k = mid.k join few on fact.m = few.m").await;
        assert!(!filtered.is_empty());
        for filter in filtered {
            let scan = filter.children()[0];
            assert!(rows_of(&filter) * 2 < rows_of(scan), "{}", rows_of(&filter));
        }
    }

    #[tokio::test]
    async fn answers_are_the_same_for_all_kinds_of_joins() {
        let mut filters = 0;
        for sql in [
            "select * from fact join (select m as k, k as m, n from mid) x on fact.k = x.k
                 join few on x.m = few.k",
            "select x.k, y.n from (select m as k, k as m from fact) x join mid y on x.m = y.m
                 join few z on x.k = z.m where y.n < 500",
            "select * from (select k, count(*), max(n) from fact group by k) f
                 join few on f.k = few.k",
            "select * from few left join (select fact.* from fact join mid on fact.k = mid.k) x
                 on few.k = x.m",
            "select * from few right join (select fact.* from fact join mid on fact.k = mid.k) x
                 on few.k = x.m where x.n < 3000",
            "select * from fact join mid on fact.k = mid.k where fact.m in (select m from few)",
            "select * from fact join mid on fact.k = mid.k where fact.m not in (select m from few)",
            "select * from fact join mid on fact.k = mid.k
                 where fact.m not in (select m from few where m is not null)",
            "select * from fact join mid on fact.k = mid.k
                 where not exists (select 1 from few where few.m = fact.m)",
            "select fact.k from fact join mid on fact.k = mid.k intersect select k from few",
            "select * from fact join mid on fact.k = mid.k and fact.m = mid.m
                 join few on fact.k = few.k and fact.n = few.n",
            "select * from fact join mid on fact.k = mid.k join few on fact.n + 1 = few.n",
            "select fact.n from fact join mid on fact.k = mid.k join few on fact.s = few.s",
            "select * from fact join mid on fact.k = mid.k join (select * from few where n < 0) x
                 on fact.m = x.m",
        ] {
            filters += check(sql).await.len();
        }
        assert!(filters > 8, "{filters}");
    }

    #[tokio::test]
    async fn a_filter_for_the_next_join_alone_or_of_a_sort_is_not_applied() {
        for sql in [
            "select * from fact join few on fact.k = few.k",
            "select fact.n, few.s from fact join few on fact.k = few.k where fact.n > 100",
            "select * from fact order by n limit 3",
            "select max(n) from fact",
        ] {
            assert!(check(sql).await.is_empty(), "{sql}");
        }
    }

    #[tokio::test]
    async fn a_filter_is_not_applied_without_its_join() {
        let folder = tempfile::tempdir().unwrap();
        write_tables(&folder);
        let session = session(&folder, execution_config(1, 512)).await;
        let sql = "select * from fact join mid on fact.k = mid.k join few on fact.m = few.m";
        let plan = session.sql(sql).await.unwrap().create_physical_plan().await.unwrap();
        assert!(!filtered(&apply_dynamic_filters(Arc::clone(&plan)).unwrap()).is_empty());
        let mut upper = plan;
        while !upper.is::<HashJoinExec>() {
            upper = Arc::clone(upper.children()[0]);
        }
        for input in upper.children() {
            let alone = apply_dynamic_filters(Arc::clone(input)).unwrap();
            assert!(filtered(&alone).is_empty());
        }
    }
}
