//! Findings: possible improvements of a query, each with evidence from its profile.

use snowmelt_api::{Finding, Lane, Profile, StageProfile};
use snowmelt_plan::tables::TableInfo;
use snowmelt_types::ByteSize;

use super::skew::skewed_keys;
use crate::driver::scheduling::memory::{
    BATCHES_TOO_LARGE, GROUPS_ENDED, JOIN_ENDED, JOIN_TOO_LARGE,
};

/// Minimum share of the wall time for a finding.
const SIGNIFICANT_SHARE: f64 = 0.25;

/// The findings, in descending order of their effect.
pub(crate) fn findings(
    profile: &Profile,
    tables: &[TableInfo],
    workers: u32,
    cores: u32,
) -> Vec<Finding> {
    let mut found: Vec<(f64, Finding)> = [
        udf_share(profile),
        package_share(profile),
        start_share(profile),
        setup_share(profile),
        more_workers_than_cores(profile, cores),
        skew(profile),
        skewed_keys(profile, SIGNIFICANT_SHARE),
        few_row_groups(profile, tables, workers),
        retries(profile),
        sorted_joins(profile),
        spilled_sooner(profile),
    ]
    .into_iter()
    .flatten()
    .collect();
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    found.into_iter().map(|(_, finding)| finding).collect()
}

fn worker_lanes(profile: &Profile) -> impl Iterator<Item = &Lane> {
    profile.lanes.iter().take(profile.totals.tasks as usize)
}

fn udf_share(profile: &Profile) -> Option<(f64, Finding)> {
    let busy: u64 = worker_lanes(profile).map(Lane::ran_us).sum();
    let waited = profile.totals.progress.udf_nanos / 1000;
    let share = waited as f64 / busy as f64;
    (busy > 0 && share > SIGNIFICANT_SHARE).then(|| {
        let rows = profile.totals.progress.udf_rows;
        let saved = match profile.totals.progress.udf_rows_saved {
            0 => String::new(),
            saved => format!("; {saved} rows had results of equal calls"),
        };
        let each = waited as f64 / rows.max(1) as f64;
        let finding = Finding {
            title: "workers wait for user functions".to_owned(),
            evidence: format!(
                "{:.0} % of the workers' time: {rows} rows in {:.2} s, {each:.1} µs a row{saved}",
                share * 100.0,
                waited as f64 / 1e6
            ),
            advice: "call them on fewer rows (filter first), take whole batches with \
                     @sm.udf(batch=\"arrow\"), or say @sm.udf(deterministic=True) if arguments \
                     repeat"
                .to_owned(),
        };
        (share, finding)
    })
}

fn phase_us(profile: &Profile, name: &str) -> u64 {
    let phase = profile.phases.iter().find(|phase| phase.phase == name);
    phase.map_or(0, |phase| phase.to_us.saturating_sub(phase.from_us))
}

fn package_share(profile: &Profile) -> Option<(f64, Finding)> {
    let took = phase_us(profile, "packages");
    let share = took as f64 / profile.wall_us.max(1) as f64;
    (share > SIGNIFICANT_SHARE).then(|| {
        let finding = Finding {
            title: "much of the time is spent installing packages".to_owned(),
            evidence: format!(
                "{:.0} % of the wall time: {:.2} s",
                share * 100.0,
                took as f64 / 1e6
            ),
            advice:
                "this happens once for each set of packages; the next query finds them installed"
                    .to_owned(),
        };
        (share, finding)
    })
}

/// The time that tasks waited for their sandboxes, as a share of their total time.
fn start_share(profile: &Profile) -> Option<(f64, Finding)> {
    let all: u64 =
        worker_lanes(profile).map(|lane| lane.done_us.saturating_sub(lane.asked_us)).sum();
    let waited: u64 =
        worker_lanes(profile).map(|lane| lane.runs_from_us().saturating_sub(lane.asked_us)).sum();
    let tasks = phase_us(profile, "start") + phase_us(profile, "run");
    let of_tasks = waited as f64 / all.max(1) as f64;
    let share = of_tasks * tasks as f64 / profile.wall_us.max(1) as f64;
    (share > SIGNIFICANT_SHARE && profile.totals.cold > 0).then(|| {
        let each = waited as f64 / 1e3 / f64::from(profile.totals.tasks.max(1));
        let finding = Finding {
            title: "much of the time is spent in cold starts".to_owned(),
            evidence: format!(
                "{:.0} % of the tasks' time, {each:.0} ms for each: {} sandboxes were started",
                of_tasks * 100.0,
                profile.totals.cold
            ),
            advice: "keep sandboxes between queries with `snowmelt up`, or use fewer workers"
                .to_owned(),
        };
        (share, finding)
    })
}

/// The longest set-up of an instance, as a share of the wall time: all set-ups of a query run at
/// the same time.
fn setup_share(profile: &Profile) -> Option<(f64, Finding)> {
    let slowest = profile.lanes.iter().max_by_key(|lane| lane.setup_us)?;
    let share = slowest.setup_us as f64 / profile.wall_us.max(1) as f64;
    (share > SIGNIFICANT_SHARE).then(|| {
        let finding = Finding {
            title: "much of the time is spent in set-up functions".to_owned(),
            evidence: format!(
                "{:.0} % of the wall time: {:.2} s in `{}`",
                share * 100.0,
                slowest.setup_us as f64 / 1e6,
                slowest.name
            ),
            advice: "keep instances between queries with `snowmelt up`, or load less with \
                     @sm.setup"
                .to_owned(),
        };
        (share, finding)
    })
}

/// Returns the most tasks that ran at the same time: workers of one stage are used again by the
/// next one.
fn most_at_once(profile: &Profile) -> u32 {
    let of = |lane: &Lane| [(lane.runs_from_us(), 1), (lane.done_us, -1)];
    let mut changes: Vec<(u64, i32)> = worker_lanes(profile).flat_map(of).collect();
    // An end sorts before a beginning at the same time.
    changes.sort_unstable();
    let running = changes.iter().scan(0, |running, (_, change)| {
        *running += change;
        Some(*running)
    });
    running.max().unwrap_or_default().unsigned_abs()
}

/// The finding that there are more workers than cores. Tasks that share a core run in turn: each
/// has the cost of a start without a gain.
fn more_workers_than_cores(profile: &Profile, cores: u32) -> Option<(f64, Finding)> {
    let tasks = most_at_once(profile);
    let ran: u64 = worker_lanes(profile).map(Lane::ran_us).sum();
    let used = profile.totals.cpu_seconds * 1e6;
    (tasks > cores && used > 0.0 && ran as f64 > 1.5 * used).then(|| {
        let finding = Finding {
            title: format!("{tasks} workers share {cores} CPU cores"),
            evidence: format!(
                "the tasks ran for {:.2} s in total and used a CPU for {:.2} s of it",
                ran as f64 / 1e6,
                used / 1e6
            ),
            advice: format!("use --workers {cores}: more workers only run in turn"),
        };
        (SIGNIFICANT_SHARE * (1.0 - f64::from(cores) / f64::from(tasks)), finding)
    })
}

fn skew(profile: &Profile) -> Option<(f64, Finding)> {
    let mut times: Vec<(u64, &str)> =
        worker_lanes(profile).map(|lane| (lane.ran_us(), lane.name.as_str())).collect();
    times.sort_unstable();
    let (slowest, name) = *times.last()?;
    let (median, _) = times[(times.len() - 1) / 2];
    let lost = slowest.saturating_sub(median) as f64 / profile.wall_us.max(1) as f64;
    (times.len() > 1 && slowest > 2 * median && lost > SIGNIFICANT_SHARE).then(|| {
        let finding = Finding {
            title: "one task takes much longer than the others".to_owned(),
            evidence: format!(
                "{name} took {:.0} ms, the median {:.0} ms",
                slowest as f64 / 1e3,
                median as f64 / 1e3
            ),
            advice: "write the data in row groups of even size, so that tasks get even shares"
                .to_owned(),
        };
        (lost, finding)
    })
}

fn few_row_groups(profile: &Profile, tables: &[TableInfo], workers: u32) -> Option<(f64, Finding)> {
    let table = tables.iter().find(|table| table.row_groups < workers as usize)?;
    let large = profile.totals.bytes_total > u64::from(workers) << 20;
    let used = most_at_once(profile);
    (large && used < workers).then(|| {
        let idle = f64::from(workers - used) / f64::from(workers);
        let finding = Finding {
            title: "a table has too few parts for the workers".to_owned(),
            evidence: format!(
                "`{}` has {} row groups or other parts in {} files: {used} of {workers} workers had work",
                table.name, table.row_groups, table.files
            ),
            advice: "write it in more row groups, of about 64 MiB each; a compressed text file is one part"
                .to_owned(),
        };
        (idle * SIGNIFICANT_SHARE, finding)
    })
}

fn retries(profile: &Profile) -> Option<(f64, Finding)> {
    let retried: Vec<&str> = worker_lanes(profile)
        .filter(|lane| lane.retries > 0)
        .map(|lane| lane.name.as_str())
        .collect();
    (!retried.is_empty()).then(|| {
        let finding = Finding {
            title: "workers were lost and their tasks were retried".to_owned(),
            evidence: retried.join(", "),
            advice: "see the node's log for the reason".to_owned(),
        };
        (SIGNIFICANT_SHARE, finding)
    })
}

/// The finding that tasks computed twice, the second time by sorting.
fn sorted_joins(profile: &Profile) -> Option<(f64, Finding)> {
    let title = "a join did not fit into memory and was done by sorting";
    let advice = "raise --memory, or use more --workers: each then joins fewer rows";
    again_with_less(profile, &[JOIN_TOO_LARGE, JOIN_ENDED], title, advice)
}

/// The finding that tasks computed again with less memory and more scratch.
fn spilled_sooner(profile: &Profile) -> Option<(f64, Finding)> {
    let title = "workers reached their memory limit and their tasks ran again with more scratch";
    let advice = "raise --memory, or use more --workers: each then has fewer rows";
    again_with_less(profile, &[GROUPS_ENDED, BATCHES_TOO_LARGE], title, advice)
}

fn again_with_less(
    profile: &Profile,
    reasons: &[&str],
    title: &str,
    advice: &str,
) -> Option<(f64, Finding)> {
    let of_stage = |stage: &StageProfile| {
        let attempts = stage.discarded.iter();
        let sorted = |why: &str| reasons.contains(&why);
        let again = attempts.filter(|attempt| sorted(&attempt.why)).count();
        (again > 0).then(|| format!("{again} of {} tasks of stage {}", stage.tasks, stage.stage))
    };
    let stages: Vec<String> = profile.stages.iter().filter_map(of_stage).collect();
    (!stages.is_empty()).then(|| {
        let spilled = ByteSize(profile.totals.progress.spilled_bytes);
        let finding = Finding {
            title: title.to_owned(),
            evidence: format!("{} ran again, {spilled} were spilled", stages.join(", ")),
            advice: advice.to_owned(),
        };
        (SIGNIFICANT_SHARE, finding)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use snowmelt_api::{PhaseSpan, Totals};

    fn lane(name: &str, done_us: u64) -> Lane {
        Lane { name: name.to_owned(), done_us, ..Lane::default() }
    }

    fn profile(times: &[u64]) -> Profile {
        let lanes = times.iter().enumerate().map(|(i, t)| lane(&format!("worker {i}"), *t));
        let totals = Totals { tasks: times.len() as u32, ..Totals::default() };
        Profile { wall_us: 1000, lanes: lanes.collect(), totals, ..Profile::default() }
    }

    fn titles(profile: &Profile) -> Vec<String> {
        findings(profile, &[], 2, 4).into_iter().map(|finding| finding.title).collect()
    }

    #[test]
    fn even_tasks_give_no_finding() {
        assert!(titles(&profile(&[300, 310, 290])).is_empty());
        assert!(titles(&profile(&[])).is_empty());
    }

    #[test]
    fn a_straggler_is_named() {
        let found = findings(&profile(&[100, 110, 900]), &[], 3, 4);
        assert!(found[0].evidence.contains("worker 2"));
    }

    #[test]
    fn the_largest_effect_is_first() {
        let mut profile = profile(&[300, 310]);
        profile.totals.progress.udf_nanos = 550_000;
        profile.phases.push(phase("packages", 0, 600));
        let titles = titles(&profile);
        assert!(titles[0].contains("user functions") && titles[1].contains("installing"));
    }

    #[test]
    fn waiting_for_cold_sandboxes_is_a_finding() {
        let mut profile = profile(&[900, 900]);
        profile.phases = vec![phase("start", 0, 100), phase("run", 100, 1000)];
        profile.totals.cold = 3;
        assert!(titles(&profile).is_empty());
        // One of the two waited long for its UDF: the phase `start` alone does not show it.
        profile.lanes[1].began_us = 800;
        let found = findings(&profile, &[], 2, 4);
        let cold = found.iter().find(|finding| finding.title.contains("cold starts")).unwrap();
        assert!(cold.evidence.contains("3 sandboxes"), "{found:?}");
    }

    #[test]
    fn a_long_set_up_is_a_finding() {
        let mut profile = profile(&[300, 310]);
        profile.lanes.push(Lane { setup_us: 240, ..lane("score 0", 310) });
        assert!(titles(&profile).is_empty());
        profile.lanes.push(Lane { setup_us: 260, ..lane("score 1", 310) });
        let found = findings(&profile, &[], 2, 4);
        assert!(found[0].title.contains("set-up") && found[0].evidence.contains("score 1"));
    }

    #[test]
    fn more_tasks_than_cores_is_a_finding() {
        let mut profile = profile(&[900; 8]);
        profile.totals.cpu_seconds = 1_800e-6;
        let found = findings(&profile, &[], 8, 2);
        assert_eq!(found[0].title, "8 workers share 2 CPU cores");
        assert!(found[0].advice.contains("--workers 2"));
        // No finding with a core for each, or if each had a CPU all the time.
        assert!(findings(&profile, &[], 8, 8).is_empty());
        profile.totals.cpu_seconds = 7_000e-6;
        assert!(findings(&profile, &[], 8, 2).is_empty());
    }

    #[test]
    fn workers_that_run_stages_one_after_another_count_once() {
        let mut profile = profile(&[400, 400, 900, 900]);
        for lane in &mut profile.lanes[2..] {
            lane.began_us = 400;
        }
        assert_eq!(most_at_once(&profile), 2);
        profile.totals.cpu_seconds = 600e-6;
        assert!(findings(&profile, &[], 2, 2).is_empty());
        // Tasks of both stages beside each other do share them.
        profile.lanes[2].began_us = 399;
        assert_eq!(findings(&profile, &[], 2, 2)[0].title, "3 workers share 2 CPU cores");
        assert_eq!(most_at_once(&Profile::default()), 0);
    }

    fn phase(name: &str, from_us: u64, to_us: u64) -> PhaseSpan {
        PhaseSpan { phase: name.to_owned(), from_us, to_us }
    }
}
