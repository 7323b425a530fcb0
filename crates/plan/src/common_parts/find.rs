//! Finds the parts of a plan that several others read.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNodeRecursion};
use datafusion::datasource::provider_as_source;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Projection, SubqueryAlias};

use super::table::SharedTable;

/// A part of a plan, and the table that stands for it.
pub(crate) struct SharedPart {
    pub(crate) table: Arc<SharedTable>,
    /// The part over tables that stand for others.
    pub(crate) body: LogicalPlan,
    pub(crate) whole: Arc<LogicalPlan>,
}

impl SharedPart {
    /// True if the part is a union of several queries. Conditions of its readers may leave out some
    /// of these: then each reader makes few of the part's rows.
    pub(crate) fn is_union(&self) -> bool {
        let mut node = &self.body;
        while let LogicalPlan::Projection(Projection { input, .. })
        | LogicalPlan::SubqueryAlias(SubqueryAlias { input, .. }) = node
        {
            node = input;
        }
        matches!(node, LogicalPlan::Union(_))
    }
}

/// Divides a plan: returns the plan over tables that stand for parts, and these parts, each before
/// the parts that it reads. Parts in `alone` stay where they are.
pub(crate) fn divide(
    plan: &LogicalPlan,
    alone: &HashSet<Arc<LogicalPlan>>,
) -> Result<(LogicalPlan, Vec<SharedPart>)> {
    let mut readers = HashMap::new();
    count(plan, alone, &mut readers)?;
    readers.retain(|_, readers| *readers > 1);
    if readers.is_empty() {
        return Ok((plan.clone(), Vec::new()));
    }
    let mut divider = Divider { readers, tables: HashMap::new(), parts: Vec::new() };
    let plan = divider.over_tables(plan.clone())?;
    divider.parts.reverse();
    Ok((plan, divider.parts))
}

/// Counts for each part the places that read it. A part that is read only by another part counts
/// once, although the other part is read twice.
fn count(
    plan: &LogicalPlan,
    alone: &HashSet<Arc<LogicalPlan>>,
    readers: &mut HashMap<Arc<LogicalPlan>, u32>,
) -> Result<()> {
    plan.apply_with_subqueries(|node| {
        let Some(body) = part(node)?.filter(|body| !alone.contains(*body)) else {
            return Ok(TreeNodeRecursion::Continue);
        };
        let count = readers.entry(Arc::clone(body)).or_default();
        *count += 1;
        Ok(if *count == 1 { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Jump })
    })?;
    Ok(())
}

struct Divider {
    readers: HashMap<Arc<LogicalPlan>, u32>,
    tables: HashMap<Arc<LogicalPlan>, Arc<SharedTable>>,
    // Each behind those that it reads.
    parts: Vec<SharedPart>,
}

impl Divider {
    fn over_tables(&mut self, plan: LogicalPlan) -> Result<LogicalPlan> {
        plan.transform_down_with_subqueries(|node| {
            let Some(body) = part(&node)?.filter(|body| self.readers.contains_key(*body)) else {
                return Ok(Transformed::no(node));
            };
            let body = Arc::clone(body);
            let LogicalPlan::SubqueryAlias(SubqueryAlias { alias, .. }) = node else {
                return Ok(Transformed::no(node));
            };
            let table = self.table(body)?;
            let source = provider_as_source(Arc::clone(&table) as _);
            let scan = LogicalPlanBuilder::scan(table.name.as_str(), source, None)?.build()?;
            let named = SubqueryAlias::try_new(Arc::new(scan), alias)?;
            let named = LogicalPlan::SubqueryAlias(named);
            Ok(Transformed::new(named, true, TreeNodeRecursion::Jump))
        })
        .data()
    }

    fn table(&mut self, body: Arc<LogicalPlan>) -> Result<Arc<SharedTable>> {
        if let Some(table) = self.tables.get(&body) {
            return Ok(Arc::clone(table));
        }
        let number = self.tables.len();
        let table = Arc::new(SharedTable::new(number, body.schema()));
        self.tables.insert(Arc::clone(&body), Arc::clone(&table));
        let over = self.over_tables(body.as_ref().clone())?;
        self.parts.push(SharedPart { table: Arc::clone(&table), body: over, whole: body });
        Ok(table)
    }
}

/// Returns the plan to which a node gives another name, if it may be a part: it costs more to
/// compute than to read again, and has the same rows each time.
fn part(node: &LogicalPlan) -> Result<Option<&Arc<LogicalPlan>>> {
    let LogicalPlan::SubqueryAlias(SubqueryAlias { input, .. }) = node else { return Ok(None) };
    // A second name for the same rows.
    if matches!(input.as_ref(), LogicalPlan::SubqueryAlias(_) | LogicalPlan::TableScan(_)) {
        return Ok(None);
    }
    let mut is_costly = false;
    let mut is_repeatable = !input.contains_outer_reference();
    input.apply_with_subqueries(|node| {
        is_costly |= matches!(
            node,
            LogicalPlan::Aggregate(_)
                | LogicalPlan::Distinct(_)
                | LogicalPlan::Join(_)
                | LogicalPlan::Union(_)
                | LogicalPlan::Window(_)
        );
        // A table of work has other rows in each round.
        is_repeatable &=
            !matches!(node, LogicalPlan::RecursiveQuery(_) | LogicalPlan::Extension(_));
        is_repeatable &= !node.expressions().iter().any(Expr::is_volatile);
        Ok(if is_repeatable { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    })?;
    Ok((is_costly && is_repeatable && has_plain_names(input)).then_some(input))
}

/// True if each column has a name of its own, as those of a table have.
fn has_plain_names(plan: &LogicalPlan) -> bool {
    let mut names: Vec<&String> = plan.schema().fields().iter().map(|field| field.name()).collect();
    names.sort_unstable();
    names.windows(2).all(|pair| pair[0] != pair[1]) && !names.is_empty()
}
