//! A finding: the rows of an exchange are uneven, because many have the same key.

use snowmelt_api::{Finding, LargestPartition, Profile, StageProfile};

/// The factor from which on a partition is uneven: its rows, relative to the median partition's.
const UNEVEN: u64 = 4;

/// Returns the finding about the exchange whose largest partition cost most time, with the share of
/// the wall time that it cost.
pub(crate) fn skewed_keys(profile: &Profile, significant: f64) -> Option<(f64, Finding)> {
    let found = profile.stages.iter().filter_map(|stage| {
        let largest = stage.largest.as_ref().filter(|_| !stage.keys.is_empty())?;
        let lost = lost(profile, stage, largest)?;
        (lost > significant).then_some((lost, stage, largest))
    });
    let (lost, stage, largest) = found.max_by(|a, b| a.0.total_cmp(&b.0))?;
    Some((lost, finding(stage, largest)))
}

/// The share of the wall time that the readers would save with even partitions.
fn lost(profile: &Profile, stage: &StageProfile, largest: &LargestPartition) -> Option<f64> {
    let even = largest.rows as f64 * (1.0 / largest.share) / f64::from(largest.of.max(1));
    if largest.of < 2 || largest.rows <= UNEVEN * largest.median_rows {
        return None;
    }
    let readers = profile.stages.iter().filter(|reader| reader.reads.contains(&stage.stage));
    let longest = readers.map(|reader| reader.to_us.saturating_sub(reader.from_us)).max()?;
    let saved = 1.0 - even / largest.rows as f64;
    Some(saved * longest as f64 / profile.wall_us.max(1) as f64)
}

fn finding(stage: &StageProfile, largest: &LargestPartition) -> Finding {
    let keys = stage.keys.join(", ");
    Finding {
        title: format!("the rows are uneven by {keys}"),
        evidence: format!(
            "one of {} partitions of stage {} has {:.0} % of the rows: {}, the median one {}",
            largest.of,
            stage.stage,
            largest.share * 100.0,
            largest.rows,
            largest.median_rows
        ),
        advice: "rows with the same key go to one worker: leave out frequent keys that match \
                 nothing, such as nulls and defaults, or treat them in a query of their own"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A scan whose output stage 1 reads for most of the time.
    fn profile(rows: u64, median_rows: u64, share: f64) -> Profile {
        let largest = LargestPartition { partition: 3, of: 8, rows, share, median_rows };
        let scan = StageProfile {
            keys: vec!["user_id".to_owned(), "day".to_owned()],
            largest: Some(largest),
            to_us: 100,
            ..StageProfile::default()
        };
        let reader =
            StageProfile { stage: 1, reads: vec![0], from_us: 100, to_us: 1_000, ..scan.clone() };
        let reader = StageProfile { keys: Vec::new(), ..reader };
        Profile { wall_us: 1_000, stages: vec![scan, reader], ..Profile::default() }
    }

    #[test]
    fn a_key_with_most_of_the_rows_is_named() {
        let (lost, found) = skewed_keys(&profile(900, 10, 0.9), 0.25).unwrap();
        assert!((lost - 0.775).abs() < 0.001, "{lost}");
        assert_eq!(found.title, "the rows are uneven by user_id, day");
        assert!(found.evidence.contains("90 %") && found.evidence.contains("stage 0"), "{found:?}");
    }

    #[test]
    fn even_rows_and_short_stages_are_no_finding() {
        assert!(skewed_keys(&profile(200, 100, 0.2), 0.25).is_none());
        let mut short = profile(900, 10, 0.9);
        short.stages[1].to_us = 150;
        assert!(skewed_keys(&short, 0.25).is_none());
    }
}
