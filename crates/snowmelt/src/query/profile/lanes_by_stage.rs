//! The timeline of a query with many tasks: a strip for each stage, which opens to its lanes.
//!
//! A strip shows how many of the stage's sandboxes ran at each time. The lanes below it have no
//! names but tips, so that a page with ten thousand tasks stays readable and a few MB large.

use std::fmt::Write;

use snowmelt_api::{Lane, Profile};

use super::escape::Escaped;
use super::lanes::{axis, discarded, is_udf, percent, running_class};
use crate::terminal::text;

/// The number of lanes above which they are shown by stage.
pub const MANY: usize = 64;
/// The number of steps of a strip.
const STEPS: usize = 100;
/// Height of a strip in pixels.
const STRIP: f64 = 22.0;
/// Pixels between the tops of two lanes.
const PITCH: usize = 4;
/// Height of a lane in pixels.
const THICKNESS: usize = 3;

/// A strip and the lanes of each stage.
pub fn timeline(profile: &Profile) -> String {
    let wall = profile.wall_us.max(1);
    let mut stages: Vec<u32> = profile.lanes.iter().map(|lane| lane.stage).collect();
    stages.sort_unstable();
    stages.dedup();
    let discarded = discarded(profile);
    let mut shown = String::from("<div class=\"strips\">");
    for stage in stages {
        let all = profile.lanes.iter().chain(&discarded);
        let mut lanes: Vec<&Lane> = all.filter(|lane| lane.stage == stage).collect();
        lanes.sort_by_key(|lane| (is_udf(lane), lane.asked_us, lane.done_us));
        let _ = write!(
            shown,
            "<details><summary><span>stage {stage} · {}</span>",
            text::counted(lanes.len() as u64, "sandbox")
        );
        strip(&lanes, wall, &mut shown);
        shown.push_str("</summary>");
        details(&lanes, wall, &mut shown);
        shown.push_str("</details>");
    }
    let _ = write!(shown, "<div class=\"axis\">{}</div></div>", axis(wall));
    shown
}

/// The number of running sandboxes over time, as bars.
fn strip(lanes: &[&Lane], wall: u64, shown: &mut String) {
    let running = running(lanes, wall);
    let most = running.iter().copied().max().unwrap_or(0).max(1);
    let _ = write!(shown, "<svg height=\"{STRIP}\" role=\"img\">");
    let mut from = 0;
    for step in 1..=STEPS {
        if step < STEPS && running[step] == running[from] {
            continue;
        }
        if running[from] > 0 {
            let height = STRIP * running[from] as f64 / most as f64;
            let _ = write!(
                shown,
                "<rect class=\"work\" x=\"{from}%\" width=\"{}%\" y=\"{:.1}\" height=\"{height:.1}\"/>",
                step - from,
                STRIP - height
            );
        }
        from = step;
    }
    shown.push_str("</svg>");
}

/// The number of lanes that run in each step.
fn running(lanes: &[&Lane], wall: u64) -> [usize; STEPS] {
    let step = |at: u64| (at as u128 * STEPS as u128 / u128::from(wall)) as usize;
    let mut running = [0; STEPS];
    for lane in lanes {
        let from = step(lane.runs_from_us());
        let to = step(lane.done_us);
        for count in running.iter_mut().take(to.min(STEPS - 1) + 1).skip(from) {
            *count += 1;
        }
    }
    running
}

fn details(lanes: &[&Lane], wall: u64, shown: &mut String) {
    let _ = write!(shown, "<svg height=\"{}\" role=\"img\">", lanes.len() * PITCH);
    for (index, lane) in lanes.iter().enumerate() {
        let class = running_class(lane);
        let starts = if lane.cold { "cold" } else { "wait" };
        for (class, from, to) in [
            (starts, lane.asked_us, lane.runs_from_us()),
            (class, lane.runs_from_us(), lane.done_us),
        ] {
            if to <= from {
                continue;
            }
            let _ = write!(
                shown,
                "<rect class=\"{class}\" x=\"{:.2}%\" y=\"{}\" width=\"{:.2}%\" \
                 height=\"{THICKNESS}\" data-tip=\"{}\n{}\"/>",
                percent(from, wall),
                index * PITCH,
                percent(to - from, wall).max(0.15),
                Escaped(&lane.name),
                text::micros(to - from)
            );
        }
    }
    shown.push_str("</svg>");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::profile::sample;

    #[test]
    fn a_strip_counts_what_runs() {
        let lane = |from, to| Lane { ready_us: from, done_us: to, ..Lane::default() };
        let one = lane(0, 499);
        let other = lane(250, 749);
        let whole = lane(0, 1000);
        let running = running(&[&one, &other, &whole], 1000);
        assert_eq!([running[0], running[30], running[60], running[99]], [2, 3, 2, 1]);
    }

    #[test]
    fn every_stage_opens_to_all_of_its_lanes() {
        let profile = sample::large();
        let shown = timeline(&profile);
        assert_eq!(shown.matches("<details>").count(), profile.stages.len());
        let names = |stage: u32| format!("worker {}\n", u64::from(stage) * 256 + 255);
        assert!((0..50).all(|stage| shown.contains(&names(stage))));
        assert!(shown.len() < 8 << 20, "{}", shown.len());
    }
}
