//! Plans as text, for EXPLAIN, the profile and the golden tests.

use std::sync::Arc;

use datafusion::physical_plan::{ExecutionPlan, displayable};

use super::cut::{Cut, Output, Stage};
use super::leaves::{count, file_scan};
use crate::exchange::Reach;
use crate::faster::{calls_together, orders_calls};

/// Maximum length of an operator's line.
const MAX_LINE: usize = 160;

/// The workers' programs, stage by stage, and the medium of the exchanges between them.
pub(super) fn workers(cut: &Cut, reach: Reach) -> String {
    let program = |(index, stage): (usize, &Stage)| {
        let partitions = count(stage.body());
        let output = match &stage.output {
            Output::Results(_) => "results for the driver".to_owned(),
            Output::Exchange(exchange) => {
                let readers = cut.stages.iter().enumerate();
                let readers = readers.filter(|(_, it)| it.reads.contains(&(index as u32)));
                let readers: Vec<String> = readers.map(|(reader, _)| reader.to_string()).collect();
                let medium = exchange.text(reach, reach);
                format!("exchange by {medium} for stage {}", readers.join(" and "))
            }
        };
        let head = format!("stage {index}: {partitions} partitions, {output}\n");
        format!("{head}{}", tree(&stage.plan))
    };
    cut.stages.iter().enumerate().map(program).collect()
}

/// The driver's part.
pub(super) fn driver(cut: &Cut) -> String {
    tree(&cut.driver)
}

fn tree(plan: &Arc<dyn ExecutionPlan>) -> String {
    let mut text = String::new();
    write_tree(plan, 0, &mut text);
    text
}

fn write_tree(plan: &Arc<dyn ExecutionPlan>, depth: usize, text: &mut String) {
    text.push_str(&"  ".repeat(depth));
    text.push_str(&operator(plan, usize::MAX));
    text.push('\n');
    for child in plan.children() {
        write_tree(child, depth + 1, text);
    }
}

/// Describes an operator in a line. Scans show the number of their files, because there may be
/// thousands.
pub(crate) fn operator_line(plan: &Arc<dyn ExecutionPlan>) -> String {
    operator(plan, MAX_LINE)
}

fn operator(plan: &Arc<dyn ExecutionPlan>, limit: usize) -> String {
    let whole = displayable(plan.as_ref()).one_line().to_string();
    let whole = whole.trim();
    let text = match (file_scan(plan), whole.find("projection=[")) {
        (Some(scan), Some(rest)) => {
            let partitions = scan.file_groups.len();
            let mut files: Vec<_> =
                scan.file_groups.iter().flat_map(|group| group.files()).map(|f| f.path()).collect();
            files.sort();
            files.dedup();
            let files = files.len();
            let format = match scan.file_source().file_type() {
                "csv" => "Csv",
                "json" => "Json",
                "arrow" => "Arrow",
                _ => "Parquet",
            };
            format!("{format}Scan: {files} files in {partitions} partitions, {}", &whole[rest..])
        }
        _ if orders_calls(plan) => format!("{whole}, calls by cost"),
        _ if calls_together(plan) => format!("{whole}, calls together"),
        _ => whole.to_owned(),
    };
    // The name of a scan tells it.
    let format =
        file_scan(plan).map(|scan| format!(", file_type={}", scan.file_source().file_type()));
    shortened(&format.map_or(text.clone(), |format| text.replace(&format, "")), limit)
}

fn shortened(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
