//! The requests of each stage's scans to object storage (the levels of concurrency in Lambada 4.3),
//! for the terminal and the page.

use std::fmt::Write;

use snowmelt_api::{Profile, StageProfile};
use snowmelt_wire::ScanCounts;

use crate::terminal::text;

/// The counts of scans in one line; `None` if there is nothing to say.
pub fn line(stage: &StageProfile, profile: &Profile) -> Option<String> {
    let lanes = profile.lanes.iter().filter(|lane| lane.stage == stage.stage);
    let counts = lanes.fold(ScanCounts::default(), |sum, lane| sum.and(lane.progress.scans));
    let parts = [
        (counts.footers_ahead, "read ahead", "footer"),
        (counts.row_groups_in_flight, "at a time", "row group"),
        (counts.merged, "saved by merging", "request"),
        (counts.split, "added by splitting", "request"),
        (counts.hedged, "sent again", "slow request"),
    ];
    let named = parts.iter().filter(|(count, ..)| *count > 0);
    let named: Vec<String> =
        named.map(|(count, what, one)| format!("{} {what}", text::counted(*count, one))).collect();
    (!named.is_empty()).then(|| named.join(", "))
}

/// A line for each stage that scans.
pub fn text_lines(profile: &Profile, shown: &mut String) {
    let lines =
        profile.stages.iter().filter_map(|stage| Some((stage.stage, line(stage, profile)?)));
    for (index, (stage, line)) in lines.enumerate() {
        let title = if index == 0 { "\nscans\n" } else { "" };
        let _ = writeln!(shown, "{title}  stage {stage}: {line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::profile::sample;

    #[test]
    fn each_level_is_named() {
        let mut shown = String::new();
        text_lines(&sample::profile(), &mut shown);
        for part in [
            "stage 0: ",
            "footers read ahead",
            "2 row groups at a time",
            "requests saved by merging",
            "requests added by splitting",
            "slow requests sent again",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        let nothing = Profile { stages: vec![StageProfile::default()], ..Profile::default() };
        let mut shown = String::new();
        text_lines(&nothing, &mut shown);
        assert!(shown.is_empty(), "{shown}");
    }
}
