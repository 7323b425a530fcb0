//! Operators of a plan as text: a line for each.

use std::sync::Arc;

use datafusion::physical_plan::{ExecutionPlan, displayable};

use crate::operators::{calls_together, orders_calls};
use crate::tree::file_scan;

/// Maximum length of an operator's line.
const MAX_LINE: usize = 160;

/// Describes an operator in a line of limited length, for the profile.
pub(crate) fn operator_line(plan: &Arc<dyn ExecutionPlan>) -> String {
    operator_text(plan, MAX_LINE)
}

/// Describes an operator in at most `limit` characters. Scans show the number of their files, because
/// there may be thousands.
pub fn operator_text(plan: &Arc<dyn ExecutionPlan>, limit: usize) -> String {
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
