//! The output forms of a query's profile: one line, text, and an HTML page.
//!
//! Boundary: the driver computes the metrics and the findings; this folder only formats them.

mod cost;
mod escape;
mod graph;
mod lanes;
mod lanes_by_stage;
mod operators;
mod page;
mod scans;
mod stages;
mod text_form;

use snowmelt_api::Profile;
use snowmelt_types::ByteSize;

use crate::terminal::text;

pub use page::page;
pub use text_form::text;

/// The summary line of a query: its rows and the resources that it used.
pub fn summary(profile: &Profile) -> String {
    let totals = &profile.totals;
    let mut parts = vec![
        format!("{} in {}", text::counted(profile.rows, "row"), text::micros(profile.wall_us)),
        format!("{:.2} function-seconds", totals.function_seconds),
        format!("{} read", ByteSize(totals.progress.bytes_read)),
        format!("{} exchanged", ByteSize(totals.bytes_exchanged)),
        text::counted(totals.cold.into(), "cold start"),
    ];
    if totals.peak_memory > 0 {
        parts.push(format!("peak {}", ByteSize(totals.peak_memory)));
    }
    parts.push(format!("cost {}", text::dollars(profile.cost.functions.total)));
    parts.push(profile.query.clone());
    parts.join(" · ")
}

/// `part / whole`, from 0 to 1.
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { (part as f64 / whole as f64).min(1.0) }
}

#[cfg(test)]
mod sample;
