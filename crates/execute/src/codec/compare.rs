//! Detects what a plan loses when it is encoded and decoded.
//!
//! DataFusion's codec silently drops some properties of operators and expressions: the FILTER and
//! the IGNORE NULLS of window functions, the direction of a reversed one. So a decoded plan is
//! compared with the encoded one in all visible properties, and a plan that differs is not sent.
//!
//! Two kinds of differences are ignored: filters that operators fill while they run, which are
//! equal only to themselves, and hints about the order of reading, which the operator above uses
//! (see [`HINTS`]).

use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::physical_plan::{CsvSource, FileScanConfig, ParquetSource};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::DynamicFilterPhysicalExpr;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{DisplayFormatType, ExecutionPlan, ExecutionPlanProperties};

use crate::tree::file_scan;

/// A scan's hints about the order in which it reads, for a sort above it that stays in the plan.
const HINTS: [&str; 2] = ["sort_order_for_reorder=[", "reverse_row_groups=true"];

/// A description of the first difference; `None` if the plans are equal.
pub(super) fn difference(
    original: &Arc<dyn ExecutionPlan>,
    decoded: &Arc<dyn ExecutionPlan>,
) -> Option<String> {
    let lost = |what: &str| Some(format!("{what} of {}", original.name()));
    let ours = original.children();
    let theirs = decoded.children();
    if original.name() != decoded.name() || ours.len() != theirs.len() {
        return lost("the shape");
    }
    if let Some((what, _)) = ASPECTS.iter().find(|(_, same)| !same(original, decoded)) {
        return lost(what);
    }
    ours.into_iter().zip(theirs).find_map(|(ours, theirs)| difference(ours, theirs))
}

type Same = fn(&Arc<dyn ExecutionPlan>, &Arc<dyn ExecutionPlan>) -> bool;

const ASPECTS: [(&str, Same); 6] = [
    ("the text", |a, b| text(a) == text(b)),
    ("the schema", |a, b| a.schema() == b.schema()),
    ("the properties", |a, b| properties(a) == properties(b)),
    ("an expression", same_expressions),
    ("an aggregate or window function", |a, b| functions(a) == functions(b)),
    ("the files", |a, b| match (file_scan(a), file_scan(b)) {
        (Some(a), Some(b)) => same_scan(a, b),
        (a, b) => a.is_none() && b.is_none(),
    }),
];

/// All visible properties of an operator.
fn text(plan: &Arc<dyn ExecutionPlan>) -> String {
    struct Verbose<'a>(&'a dyn ExecutionPlan);
    impl fmt::Display for Verbose<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.fmt_as(DisplayFormatType::Verbose, f)
        }
    }
    let text = Verbose(plan.as_ref()).to_string();
    if file_scan(plan).is_none() {
        return text;
    }
    HINTS.iter().fold(text, |text, hint| without(&text, hint))
}

/// Removes a part of a text; if the part ends with a bracket, up to the closing bracket.
fn without(text: &str, part: &str) -> String {
    let Some(start) = text.find(part) else { return text.to_owned() };
    let end = match part.ends_with('[') {
        true => closing(text, start + part.len(), '[', ']'),
        false => start + part.len(),
    };
    format!("{}{}", text[..start].trim_end_matches(", "), &text[end..])
}

/// The index after the bracket that closes the one opened before `from`. Quoted text is skipped.
fn closing(text: &str, from: usize, open: char, close: char) -> usize {
    let mut depth = 1;
    let mut quoted = false;
    let mut escaped = false;
    for (at, c) in text[from..].char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ if quoted => (),
            c if c == open => depth += 1,
            c if c == close => depth -= 1,
            _ => (),
        }
        if depth == 0 {
            return from + at + c.len_utf8();
        }
    }
    text.len()
}

fn properties(plan: &Arc<dyn ExecutionPlan>) -> String {
    let ordering = plan.output_ordering().map(ToString::to_string);
    let partitions = plan.output_partitioning();
    let flow = plan.pipeline_behavior();
    format!("{partitions} {ordering:?} {flow:?} {:?}", plan.boundedness())
}

fn same_expressions(a: &Arc<dyn ExecutionPlan>, b: &Arc<dyn ExecutionPlan>) -> bool {
    let a = expressions(a);
    let b = expressions(b);
    a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| same(a, b))
}

fn expressions(plan: &Arc<dyn ExecutionPlan>) -> Vec<Arc<dyn PhysicalExpr>> {
    let mut found = Vec::new();
    let visited = plan.apply_expressions(&mut |expression| {
        found.push(Arc::clone(expression));
        Ok(TreeNodeRecursion::Continue)
    });
    debug_assert!(visited.is_ok(), "the visitor above never fails");
    found
}

fn same(a: &Arc<dyn PhysicalExpr>, b: &Arc<dyn PhysicalExpr>) -> bool {
    if a == b {
        return true;
    }
    let ours = a.children();
    let theirs = b.children();
    if ours.len() != theirs.len() || !ours.into_iter().zip(&theirs).all(|(a, b)| same(a, b)) {
        return false;
    }
    let dynamic =
        |e: &Arc<dyn PhysicalExpr>| e.downcast_ref::<DynamicFilterPhysicalExpr>().is_some();
    if dynamic(a) || theirs.is_empty() {
        return dynamic(a) && dynamic(b);
    }
    // Only the children differ, and they are equal by this definition: compare with equal children.
    let children = theirs.into_iter().cloned().collect();
    Arc::clone(a).with_new_children(children).is_ok_and(|a| &a == b)
}

/// Describes the functions of an operator with all their fields, some of which the operator's text
/// and expressions omit. Fields that are derived from others are left out ([`DERIVED`]).
fn functions(plan: &Arc<dyn ExecutionPlan>) -> Vec<String> {
    let windows = plan
        .downcast_ref::<WindowAggExec>()
        .map(WindowAggExec::window_expr)
        .or_else(|| plan.downcast_ref::<BoundedWindowAggExec>().map(|exec| exec.window_expr()));
    let mut found: Vec<String> =
        windows.into_iter().flatten().map(|window| format!("{window:?}")).collect();
    if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        found.extend(aggregate.aggr_expr().iter().map(|function| format!("{function:?}")));
        found.push(format!("{:?}", aggregate.limit_options()));
    }
    found.iter().map(|text| without_derived(text)).collect()
}

/// The copy of the planner's schema in each function (the operator's own schema is compared), and the
/// hash table of a CASE with constants, whose entries have another order each time.
const DERIVED: [&str; 2] = ["schema: Schema {", "map: {"];

fn without_derived(text: &str) -> String {
    DERIVED.iter().fold(text.to_owned(), |text, part| {
        let mut rest = text.as_str();
        let mut kept = String::with_capacity(text.len());
        while let Some(start) = rest.find(part) {
            kept.push_str(&rest[..start]);
            rest = &rest[closing(rest, start + part.len(), '{', '}')..];
        }
        kept + rest
    })
}

/// Compares what two scans read. The order of reading matters only together with a limit.
fn same_scan(a: &FileScanConfig, b: &FileScanConfig) -> bool {
    let options = |scan: &FileScanConfig| {
        let source = scan.file_source().downcast_ref::<ParquetSource>();
        source.map(|source| source.table_parquet_options().clone())
    };
    // Of JSON and Arrow sources nothing else is visible.
    let format = |scan: &FileScanConfig| {
        let source = scan.file_source();
        let kind = (source.file_type().to_owned(), scan.file_compression_type);
        (kind, source.downcast_ref::<CsvSource>().map(csv_options))
    };
    let files = |scan: &FileScanConfig| -> Vec<_> {
        let files = scan.file_groups.iter().flat_map(|group| group.files());
        let file = |file: &datafusion::datasource::listing::PartitionedFile| {
            let meta = &file.object_meta;
            (
                (meta.location.clone(), meta.size, meta.last_modified),
                (file.range.clone(), file.partition_values.clone()),
                (file.statistics.clone(), file.arrow_schema.clone()),
            )
        };
        files.map(file).collect()
    };
    a.object_store_url == b.object_store_url
        && a.file_schema() == b.file_schema()
        && (a.limit, a.batch_size) == (b.limit, b.batch_size)
        && (a.preserve_order == b.preserve_order || a.limit.is_none())
        && options(a) == options(b)
        && format(a) == format(b)
        && files(a) == files(b)
}

/// All options of a CSV source that its reader uses.
fn csv_options(source: &CsvSource) -> impl PartialEq + use<> {
    (
        (source.has_header(), source.truncate_rows(), source.newlines_in_values()),
        (source.delimiter(), source.quote()),
        (source.escape(), source.comment(), source.terminator()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_hints_are_removed() {
        let text = "p=x, sort_order_for_reorder=[a[1] ASC], reverse_row_groups=true, rest";
        let cut = HINTS.iter().fold(text.to_owned(), |text, hint| without(&text, hint));
        assert_eq!(cut, "p=x, rest");
    }

    #[test]
    fn what_is_derived_is_removed_even_if_column_names_contain_brackets() {
        let text = r#"f { schema: Schema { fields: [Field { name: "}\"{" }] }, filter: None }"#;
        assert_eq!(without_derived(text), "f { , filter: None }");
        assert_eq!(without_derived("no schema"), "no schema");
        let tables = ["{ map: {1: 0, 2: 1}, else: 2 }", "{ map: {2: 1, 1: 0}, else: 2 }"];
        assert_eq!(without_derived(tables[0]), without_derived(tables[1]));
    }
}
