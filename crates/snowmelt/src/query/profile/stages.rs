//! The stages of a query as tables, and remarkable facts about each.

use std::fmt::Write;

use snowmelt_api::{Profile, StageProfile};
use snowmelt_types::ByteSize;

use super::escape::Escaped;
use super::scans;
use crate::output::{Cell, TableLayout, draw};
use crate::terminal::text;

/// The multiple of the median number of rows from which a partition makes an output uneven.
const SKEWED_TIMES: u64 = 4;

/// The number of rows of a partition below which unevenness does not matter.
const SKEWED_ROWS: u64 = 10_000;

const HEADINGS: [&str; 11] = [
    "stage",
    ">tasks",
    ">attempts",
    ">time",
    ">cpu",
    ">rows",
    ">read",
    ">received",
    ">sent",
    ">left out",
    ">largest part",
];

/// True if one partition of the output has far more rows than the others.
pub fn is_skewed(stage: &StageProfile) -> bool {
    stage.largest.as_ref().is_some_and(|largest| {
        largest.rows >= SKEWED_ROWS && largest.rows > SKEWED_TIMES * largest.median_rows.max(1)
    })
}

/// All stages, for a terminal.
pub fn text_table(profile: &Profile, shown: &mut String) {
    if profile.stages.is_empty() {
        return;
    }
    let rows: Vec<Vec<Cell>> = profile
        .stages
        .iter()
        .map(|stage| cells(stage, profile).into_iter().map(Some).collect())
        .collect();
    let _ = write!(shown, "\n{}", draw(&HEADINGS, &rows, TableLayout::unlimited()));
}

/// All stages, for the page.
pub fn html_table(profile: &Profile) -> String {
    let mut shown = String::from("<table><thead><tr>");
    for heading in HEADINGS {
        let class = if heading.starts_with('>') { " class=n" } else { "" };
        let _ = write!(shown, "<th{class}>{}", heading.trim_start_matches('>'));
    }
    shown.push_str("</thead><tbody>");
    for stage in &profile.stages {
        shown.push_str("<tr>");
        for (index, cell) in cells(stage, profile).iter().enumerate() {
            let class = if index == 0 { "" } else { " class=n" };
            let _ = write!(shown, "<td{class}>{}", Escaped(cell));
        }
    }
    shown + "</tbody></table>"
}

fn cells(stage: &StageProfile, profile: &Profile) -> [String; 11] {
    let (pruned, _) = left_out_and_spilled(stage, profile);
    [
        name(stage),
        stage.tasks.to_string(),
        stage.attempts.to_string(),
        text::micros(stage.to_us.saturating_sub(stage.from_us)),
        text::micros(stage.cpu_us),
        text::count(stage.rows),
        ByteSize(stage.bytes_read).to_string(),
        ByteSize(stage.bytes_received).to_string(),
        ByteSize(stage.bytes_sent).to_string(),
        text::count(pruned),
        largest(stage).unwrap_or_else(|| "–".to_owned()),
    ]
}

fn name(stage: &StageProfile) -> String {
    let reads: Vec<String> = stage.reads.iter().map(u32::to_string).collect();
    match reads.is_empty() {
        true => stage.stage.to_string(),
        false => format!("{} after {}", stage.stage, reads.join(", ")),
    }
}

fn largest(stage: &StageProfile) -> Option<String> {
    let largest = stage.largest.as_ref()?;
    Some(format!("{:.0}% of the rows in 1 of {}", largest.share * 100.0, largest.of))
}

/// The numbers of parts of files and row groups that the stage's scans left out, and of bytes that
/// it spilled.
fn left_out_and_spilled(stage: &StageProfile, profile: &Profile) -> (u64, u64) {
    let lanes = profile.lanes.iter().filter(|lane| lane.stage == stage.stage);
    lanes.fold((stage.left_out, 0), |(pruned, spilled), lane| {
        (pruned + lane.progress.pruned, spilled + lane.progress.spilled_bytes)
    })
}

/// Everything about a stage, in lines.
pub fn tip(stage: &StageProfile, profile: &Profile) -> String {
    let mut tip = format!("stage {}", name(stage));
    let mut line = |text: String| {
        tip.push('\n');
        tip.push_str(&text);
    };
    line(format!("{}, {} attempts", text::counted(stage.tasks.into(), "task"), stage.attempts));
    for (count, why) in [
        (stage.retries, "after a lost worker"),
        (stage.remakes, "after a lost output"),
        (stage.twins, "because a task was slow"),
    ] {
        if count > 0 {
            line(format!("{} {why}", text::counted(count.into(), "attempt")));
        }
    }
    line(format!(
        "{} read, {} received, {} sent by {}",
        ByteSize(stage.bytes_read),
        ByteSize(stage.bytes_received),
        ByteSize(stage.bytes_sent),
        stage.medium
    ));
    if !stage.keys.is_empty() {
        line(format!("split by {}", stage.keys.join(", ")));
    }
    if let Some(largest) = largest(stage) {
        line(largest);
    }
    let (pruned, spilled) = left_out_and_spilled(stage, profile);
    if pruned > 0 {
        line(format!("{} left out by statistics", text::counted(pruned, "part")));
    }
    if let Some(scans) = scans::line(stage, profile) {
        line(scans);
    }
    if spilled > 0 {
        line(format!("{} spilled to scratch", ByteSize(spilled)));
    }
    line(format!("peak memory {}", ByteSize(stage.peak_memory)));
    tip
}

#[cfg(test)]
mod tests {
    use snowmelt_api::LargestPartition;

    use super::*;
    use crate::query::profile::sample;

    fn with_largest(rows: u64, median_rows: u64) -> StageProfile {
        let largest = LargestPartition { partition: 0, of: 4, rows, share: 0.5, median_rows };
        StageProfile { largest: Some(largest), ..StageProfile::default() }
    }

    #[test]
    fn a_partition_far_above_the_median_is_skewed() {
        assert!(is_skewed(&with_largest(90_000, 3_000)));
        assert!(!is_skewed(&with_largest(90_000, 30_000)));
        assert!(!is_skewed(&with_largest(900, 3)));
        assert!(!is_skewed(&StageProfile::default()));
    }

    #[test]
    fn the_tip_names_attempts_bytes_skew_and_what_was_left_out() {
        let profile = sample::profile();
        let tip = tip(&profile.stages[0], &profile);
        for part in ["lost worker", "sent by files", "l_returnflag", "left out", "spilled"] {
            assert!(tip.contains(part), "{part}: {tip}");
        }
    }
}
