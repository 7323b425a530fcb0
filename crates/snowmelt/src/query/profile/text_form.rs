//! The profile as text, for a terminal or a log.

use std::fmt::Write;

use snowmelt_api::{Lane, Profile, Totals};
use snowmelt_types::ByteSize;
use snowmelt_wire::OperatorMetric;

use super::{cost, scans, share, stages};
use crate::output::{Cell, TableLayout, draw};
use crate::terminal::text;

/// Width in columns of the bar of an operator's share of the time.
const BAR: usize = 12;
/// Width in columns of an operator's description.
const DESCRIPTION: usize = 72;

/// Phases, findings, operators and lanes.
pub fn text(profile: &Profile) -> String {
    let mut shown = format!("profile of {}\n\nphases\n", profile.query);
    phases(profile, &mut shown);
    cost::table(&profile.cost, &mut shown);
    findings(profile, &mut shown);
    stages::text_table(profile, &mut shown);
    scans::text_lines(profile, &mut shown);
    operators("workers", &profile.operators, &mut shown);
    operators("driver", &profile.driver_operators, &mut shown);
    lanes(&profile.lanes, &mut shown);
    exchange(&profile.totals, &mut shown);
    printed(profile, &mut shown);
    shown
}

/// Writes the output that functions printed.
fn printed(profile: &Profile, shown: &mut String) {
    if !profile.printed.is_empty() {
        shown.push_str("\nprinted by functions\n");
    }
    for (function, text) in &profile.printed {
        for line in text.lines() {
            let _ = writeln!(shown, "  {function}: {}", text::visible(line));
        }
    }
}

/// Requests to object storage, each of which costs money there.
fn exchange(totals: &Totals, shown: &mut String) {
    let done = &totals.progress;
    if done.exchange_reads + done.exchange_writes > 0 {
        let _ = writeln!(
            shown,
            "\nexchange by objects\n  {} reads of {}, {} writes of {}, {} lists",
            text::count(done.exchange_reads),
            ByteSize(done.exchange_bytes_read),
            text::count(done.exchange_writes),
            ByteSize(done.exchange_bytes_written),
            text::count(totals.exchange_lists),
        );
    }
}

fn phases(profile: &Profile, shown: &mut String) {
    for phase in &profile.phases {
        let taken = phase.to_us.saturating_sub(phase.from_us);
        let part = share(taken, profile.wall_us);
        let name = &phase.phase;
        let taken = text::micros(taken);
        let _ =
            writeln!(shown, "  {name:<9}{taken:>10}  {:>3.0}%  {}", part * 100.0, bar(part, 30));
    }
}

fn findings(profile: &Profile, shown: &mut String) {
    if profile.findings.is_empty() {
        return;
    }
    shown.push_str("\nfindings\n");
    for (index, finding) in profile.findings.iter().enumerate() {
        let _ = writeln!(shown, "  {}. {}", index + 1, finding.title);
        let _ = writeln!(shown, "     {}", finding.evidence);
        let _ = writeln!(shown, "     → {}", finding.advice);
    }
}

fn operators(title: &str, operators: &[OperatorMetric], shown: &mut String) {
    if operators.is_empty() {
        return;
    }
    let longest = operators.iter().map(|operator| operator.compute_nanos).max().unwrap_or(0);
    let row = |operator: &OperatorMetric| -> Vec<Cell> {
        let indented = "  ".repeat(operator.depth as usize) + &operator.name;
        let part = share(operator.compute_nanos, longest);
        vec![
            Some(clipped(&indented, DESCRIPTION)),
            Some(text::count(operator.rows)),
            Some(text::micros(operator.compute_nanos / 1000)),
            Some(bar(part, BAR)),
        ]
    };
    let rows: Vec<_> = operators.iter().map(row).collect();
    let _ = write!(
        shown,
        "\n{}",
        draw(&[title, ">rows", ">time", ""], &rows, TableLayout::unlimited())
    );
}

fn lanes(lanes: &[Lane], shown: &mut String) {
    if lanes.is_empty() {
        return;
    }
    let row = |lane: &Lane| -> Vec<Cell> {
        let start = match lane.cold {
            true => text::micros(lane.ready_us.saturating_sub(lane.asked_us)),
            false => "warm".to_owned(),
        };
        let start = match lane.setup_us {
            0 => start,
            set_up => format!("{start}, set-up {}", text::micros(set_up)),
        };
        vec![
            Some(lane.name.clone()),
            Some(start),
            Some(text::micros(lane.ran_us())),
            Some(text::micros(lane.cpu_us)),
            Some(text::count(lane.rows)),
            Some(ByteSize(lane.progress.bytes_read).to_string()),
            Some(
                lane.peak_memory.map_or_else(|| "?".to_owned(), |peak| ByteSize(peak).to_string()),
            ),
            Some(lane.retries.to_string()),
        ]
    };
    let headings = ["sandbox", ">start", ">run", ">cpu", ">rows", ">read", ">peak", ">retries"];
    let rows: Vec<_> = lanes.iter().map(row).collect();
    let _ = write!(shown, "\n{}", draw(&headings, &rows, TableLayout::unlimited()));
}

/// A bar with a resolution of an eighth of a column.
fn bar(share: f64, columns: usize) -> String {
    let eighths = (share * columns as f64 * 8.0).round() as usize;
    let mut drawn = "█".repeat(eighths / 8);
    drawn.push_str(["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"][eighths % 8]);
    drawn
}

fn clipped(line: &str, columns: usize) -> String {
    if line.chars().count() <= columns {
        return line.to_owned();
    }
    line.chars().take(columns - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::profile::sample;

    #[test]
    fn shows_every_part() {
        let shown = text(&sample::profile());
        for part in
            ["phases", "cost", "stage", "findings", "workers", "driver", "sandbox", "worker 0", "→"]
                .into_iter()
                .chain(["printed by functions\n  score: model loaded"])
        {
            assert!(shown.contains(part), "{part} is missing in\n{shown}");
        }
    }

    #[test]
    fn a_bar_is_never_longer_than_its_columns() {
        assert_eq!(bar(1.0, 4), "████");
        assert_eq!(bar(0.5, 1), "▌");
        assert_eq!(bar(0.0, 4), "");
    }
}
