//! The timeline of the profile page: a lane for each worker and UDF instance, as inline SVG.
//!
//! Positions are percentages, so that the picture fills the width of the window without stretching
//! its text.

use std::fmt::Write;

use snowmelt_api::{Lane, Profile};
use snowmelt_types::ByteSize;

use super::escape::Escaped;
use crate::terminal::text;

/// The prefix of the names of attempts that did not count.
const LOST: &str = "task ";
/// Pixels between the tops of two lanes.
const PITCH: usize = 20;
/// Height of a lane in pixels.
const THICKNESS: usize = 13;
/// Maximum number of ticks on the axis.
const TICKS: u64 = 8;

/// The axis, the names of the lanes and the lanes.
pub fn timeline(profile: &Profile) -> String {
    let wall = profile.wall_us.max(1);
    let lanes: Vec<Lane> = profile.lanes.iter().cloned().chain(discarded(profile)).collect();
    let height = lanes.len() * PITCH;
    let mut shown = String::from("<div class=\"timeline\"><div class=\"names\">");
    for lane in &lanes {
        let _ = write!(shown, "<div>{}</div>", Escaped(&lane.name));
    }
    let _ = write!(shown, "</div><div class=\"lanes\"><svg height=\"{height}\" role=\"img\">");
    shown.push_str("<title>What each sandbox did, over time</title>");
    grid(profile, wall, height, &mut shown);
    for (index, lane) in lanes.iter().enumerate() {
        bars(lane, index * PITCH + (PITCH - THICKNESS) / 2, wall, &mut shown);
    }
    let _ = write!(shown, "</svg><div class=\"axis\">{}</div></div></div>", axis(wall));
    shown
}

/// The attempts that did not count, as lanes of their own.
pub fn discarded(profile: &Profile) -> Vec<Lane> {
    let lanes = profile.stages.iter().flat_map(|stage| {
        stage.discarded.iter().map(|attempt| Lane {
            name: format!("{LOST}{}, attempt {}: {}", attempt.task, attempt.attempt, attempt.why),
            stage: stage.stage,
            asked_us: attempt.from_us,
            ready_us: attempt.from_us,
            done_us: attempt.to_us,
            ..Lane::default()
        })
    });
    lanes.collect()
}

/// The colour of a lane that runs.
pub fn running_class(lane: &Lane) -> &'static str {
    match (lane.name.starts_with(LOST), is_udf(lane)) {
        (true, _) => "lost",
        (false, true) => "udf",
        (false, false) => "work",
    }
}

/// The legend of the timeline's colours.
pub fn legend(profile: &Profile) -> String {
    let mut shown = String::from("<p class=\"legend\">");
    let udfs = profile.lanes.iter().any(is_udf);
    for (class, label, present) in [
        ("cold", "cold start", profile.lanes.iter().any(|lane| lane.cold)),
        ("wait", "waiting for the task's other sandboxes", profile.lanes.iter().any(waits)),
        ("work", "worker running", true),
        ("udf", "UDF instance running", udfs),
        ("lost", "attempt that did not count", !discarded(profile).is_empty()),
    ] {
        if present {
            let _ = write!(shown, "<span><i class=\"{class}\"></i>{label}</span>");
        }
    }
    shown + "</p>"
}

/// The metrics of the lanes as a table.
pub fn table(profile: &Profile) -> String {
    let mut shown = String::from(
        "<table><thead><tr><th>sandbox<th class=n>start<th class=n>run<th class=n>cpu\
         <th class=n>rows<th class=n>read<th class=n>requests<th class=n>UDF rows\
         <th class=n>peak memory<th class=n>retries</thead><tbody>",
    );
    for lane in &profile.lanes {
        let _ = write!(shown, "<tr><td>{}", Escaped(&lane.name));
        for metric in metrics(lane) {
            let _ = write!(shown, "<td class=n>{metric}");
        }
    }
    shown + "</tbody></table>"
}

fn metrics(lane: &Lane) -> [String; 9] {
    let progress = &lane.progress;
    [
        start(lane),
        text::micros(lane.ran_us()),
        text::micros(lane.cpu_us),
        text::count(lane.rows),
        ByteSize(progress.bytes_read).to_string(),
        text::count(progress.requests),
        text::count(progress.udf_rows),
        lane.peak_memory.map_or_else(|| "–".to_owned(), |peak| ByteSize(peak).to_string()),
        lane.retries.to_string(),
    ]
}

/// True if the time between ready and the start of the task is about a pixel wide or more.
fn waits(lane: &Lane) -> bool {
    lane.runs_from_us().saturating_sub(lane.ready_us) * 500 > lane.done_us
}

fn start(lane: &Lane) -> String {
    match lane.cold {
        true => text::micros(lane.ready_us.saturating_sub(lane.asked_us)),
        false => "warm".to_owned(),
    }
}

fn bars(lane: &Lane, top: usize, wall: u64, shown: &mut String) {
    let tip = tip(lane);
    let class = running_class(lane);
    let starts = if lane.cold { "cold" } else { "wait" };
    for (class, from, to) in [
        (starts, lane.asked_us, lane.ready_us),
        ("wait", lane.ready_us, lane.runs_from_us()),
        (class, lane.runs_from_us(), lane.done_us),
    ] {
        if to <= from {
            continue;
        }
        let x = percent(from, wall);
        let width = percent(to - from, wall).max(0.15);
        let _ = write!(
            shown,
            "<rect class=\"{class}\" x=\"{x:.3}%\" y=\"{top}\" width=\"{width:.3}%\" \
             height=\"{THICKNESS}\" rx=\"2\" data-tip=\"{}\"/>",
            Escaped(&tip)
        );
    }
}

fn tip(lane: &Lane) -> String {
    let [start, run, cpu, rows, read, _, udf_rows, peak, retries] = metrics(lane);
    let rows_of = if is_udf(lane) { "rows in" } else { "rows out" };
    let mut tip = format!("{}\nstart {start}, run {run}, cpu {cpu}\n{rows} {rows_of}", lane.name);
    if lane.progress.bytes_read > 0 {
        let _ = write!(tip, ", {read} read");
    }
    if lane.progress.udf_rows > 0 && !is_udf(lane) {
        let _ = write!(tip, "\n{udf_rows} rows in UDFs");
    }
    if lane.progress.udf_rows_saved > 0 {
        let saved = text::count(lane.progress.udf_rows_saved);
        let _ = write!(tip, "\n{saved} rows with results of equal calls");
    }
    if lane.peak_memory.is_some() {
        let _ = write!(tip, "\npeak {peak}");
    }
    if lane.retries > 0 {
        let _ = write!(tip, "\nretried {retries} times");
    }
    tip
}

// Lines at the end of each phase and, fainter, at each tick.
fn grid(profile: &Profile, wall: u64, height: usize, shown: &mut String) {
    let mut line = |class: &str, at: u64| {
        let x = percent(at, wall);
        let _ = write!(
            shown,
            "<line class=\"{class}\" x1=\"{x:.3}%\" x2=\"{x:.3}%\" y1=\"0\" y2=\"{height}\"/>"
        );
    };
    ticks(wall).for_each(|at| line("tick", at));
    profile.phases.iter().skip(1).for_each(|phase| line("phase", phase.from_us));
}

pub fn axis(wall: u64) -> String {
    let label =
        |at: u64| format!("<span style=\"left:{:.3}%\">{}</span>", percent(at, wall), short(at));
    ticks(wall).map(label).collect()
}

fn short(micros: u64) -> String {
    match micros {
        0 => "0".to_owned(),
        1..1_000 => format!("{micros} µs"),
        1_000..1_000_000 => format!("{} ms", micros as f64 / 1e3),
        _ => format!("{} s", micros as f64 / 1e6),
    }
}

/// Round times from 0 to the end, in steps of 1, 2 or 5 times a power of ten.
fn ticks(wall: u64) -> impl Iterator<Item = u64> {
    let steps = (0..19).flat_map(|power| [1, 2, 5].map(|step| step * 10u64.pow(power)));
    let step = steps.into_iter().find(|step| wall / step < TICKS).unwrap_or(wall);
    (0..=wall / step).map(move |tick| tick * step)
}

pub fn percent(part: u64, wall: u64) -> f64 {
    (part as f64 * 100.0 / wall as f64).min(100.0)
}

pub fn is_udf(lane: &Lane) -> bool {
    !lane.name.starts_with("worker ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!(ticks(1_842_000).collect::<Vec<_>>()[..3], [0, 500_000, 1_000_000]);
        for wall in [1, 7, 999, 1_000_000, u64::MAX / 2] {
            assert!(ticks(wall).count() as u64 <= TICKS + 1, "{wall}");
        }
        assert_eq!(
            [short(0), short(500), short(2_000), short(1_500_000)],
            ["0", "500 µs", "2 ms", "1.5 s"]
        );
    }
}
