//! The profile's lanes, operators and totals, from the reports of the tasks.

use std::time::Duration;

use snowmelt_api::{Lane, PhaseSpan, Profile, Totals};
use snowmelt_wire::{OperatorMetric, TaskProgress};

use crate::driver::tasks::Finished;

/// Fills in the parts of the profile that are known once all tasks are done. `ended` is the end of
/// the last task, since the query was accepted.
pub(crate) fn fill(profile: &mut Profile, finished: &[Finished], ended: Duration) {
    profile.operators = summed_operators(finished);
    profile.lanes = finished.iter().map(worker_lane).collect();
    profile.lanes.extend(finished.iter().flat_map(udf_lanes));
    let workers = &profile.lanes[..finished.len()];
    let began = profile.phases.last().map_or(0, |phase| phase.to_us);
    profile.phases.extend(phases(workers, began, ended.as_micros() as u64));
    profile.totals = totals(&profile.totals, &profile.lanes, finished);
}

/// Adds the lanes and totals of a query that had to run before.
pub(crate) fn add_earlier(profile: &mut Profile, earlier: &Profile) {
    let named = |lane: &Lane| Lane { name: format!("values: {}", lane.name), ..lane.clone() };
    profile.lanes.extend(earlier.lanes.iter().map(named));
    let sums = &mut profile.totals;
    let Totals {
        tasks,
        cold,
        warm,
        function_seconds,
        cpu_seconds,
        progress,
        bytes_total,
        bytes_exchanged,
        // The lists are counted with the cost.
        exchange_lists: _,
        peak_memory,
    } = &earlier.totals;
    sums.tasks += tasks;
    sums.cold += cold;
    sums.warm += warm;
    sums.function_seconds += function_seconds;
    sums.cpu_seconds += cpu_seconds;
    sums.progress += progress;
    sums.bytes_total += bytes_total;
    sums.bytes_exchanged += bytes_exchanged;
    sums.peak_memory = sums.peak_memory.max(*peak_memory);
}

fn worker_lane(finished: &Finished) -> Lane {
    let done = &finished.result.done;
    Lane {
        name: format!("worker {}", finished.task),
        stage: finished.stage as u32,
        rows: done.rows,
        cpu_us: done.cpu_nanos / 1000,
        retries: finished.retries,
        progress: done.progress.clone(),
        ..finished.result.worker.clone()
    }
}

fn udf_lanes(finished: &Finished) -> impl Iterator<Item = Lane> {
    let stage = finished.stage as u32;
    finished.result.udfs.iter().map(move |lane| Lane { stage, ..lane.clone() })
}

/// `start` ends when the first task begins, with its worker and all of its UDFs ready; `run` ends
/// when the last task is done.
fn phases(workers: &[Lane], began: u64, ended: u64) -> Vec<PhaseSpan> {
    let Some(first) = workers.iter().map(Lane::runs_from_us).min() else { return Vec::new() };
    let first = first.clamp(began, ended.max(began));
    let span = |phase: &str, from_us, to_us| PhaseSpan { phase: phase.to_owned(), from_us, to_us };
    vec![span("start", began, first), span("run", first, ended.max(first))]
}

fn totals(before: &Totals, lanes: &[Lane], finished: &[Finished]) -> Totals {
    let held_us: u64 = lanes.iter().map(Lane::held_us).sum();
    let cpu_us: u64 = lanes.iter().map(|lane| lane.cpu_us).sum();
    let cold = lanes.iter().filter(|lane| lane.cold).count() as u32;
    let reserved = finished.iter().map(|task| task.result.done.peak_reserved_bytes);
    let held = lanes.iter().filter_map(|lane| lane.peak_memory);
    let mut progress = TaskProgress::default();
    finished.iter().for_each(|task| progress += &task.result.done.progress);
    Totals {
        tasks: finished.len() as u32,
        cold,
        warm: lanes.len() as u32 - cold,
        function_seconds: held_us as f64 / 1e6,
        cpu_seconds: cpu_us as f64 / 1e6,
        progress,
        bytes_exchanged: finished.iter().map(|task| task.bytes).sum(),
        peak_memory: reserved.chain(held).max().unwrap_or(0),
        ..before.clone()
    }
}

/// Sums the operators of the tasks of each program, and lists the programs one after another.
fn summed_operators(finished: &[Finished]) -> Vec<OperatorMetric> {
    let mut programs: Vec<Vec<OperatorMetric>> = Vec::new();
    for task in finished {
        let program = task.stage;
        programs.resize_with(programs.len().max(program + 1), Vec::new);
        add(&mut programs[program], &task.result.done.operators);
    }
    let mut operators = programs.concat();
    for (id, operator) in operators.iter_mut().enumerate() {
        operator.id = id as u32;
    }
    operators
}

fn add(sums: &mut Vec<OperatorMetric>, operators: &[OperatorMetric]) {
    if sums.is_empty() {
        sums.extend_from_slice(operators);
        return;
    }
    for (sum, operator) in sums.iter_mut().zip(operators) {
        sum.rows += operator.rows;
        sum.compute_nanos += operator.compute_nanos;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::TaskResult;

    fn finished(stage: usize, task: u32, rows: u64) -> Finished {
        let mut result = TaskResult::default();
        result.done.operators = vec![OperatorMetric {
            id: 0,
            depth: 0,
            name: "FilterExec".to_owned(),
            rows,
            compute_nanos: 10,
        }];
        result.worker.ready_us = 20;
        result.worker.began_us = 50 + u64::from(task);
        Finished { stage, task, retries: 0, received: 0, bytes: 7, output: Vec::new(), result }
    }

    #[test]
    fn operators_are_summed_by_program() {
        let planned = PhaseSpan { phase: "plan".to_owned(), from_us: 0, to_us: 10 };
        let mut profile = Profile { phases: vec![planned], ..Profile::default() };
        let tasks = [finished(0, 0, 1), finished(0, 1, 2), finished(1, 2, 4)];
        let micros = Duration::from_micros;
        fill(&mut profile, &tasks, micros(100));
        let rows: Vec<(u32, u64)> = profile.operators.iter().map(|o| (o.id, o.rows)).collect();
        assert_eq!(rows, [(0, 3), (1, 4)]);
        assert_eq!(profile.totals.bytes_exchanged, 21);
        let phases: Vec<(u64, u64)> = profile.phases.iter().map(|p| (p.from_us, p.to_us)).collect();
        assert_eq!(phases, [(0, 10), (10, 50), (50, 100)]);
    }
}
