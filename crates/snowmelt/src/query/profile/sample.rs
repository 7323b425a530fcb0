//! A profile for tests: eight workers, a UDF, and a straggler that was retried.

use std::collections::BTreeMap;

use snowmelt_api::{
    Bill, Cost, DiscardedAttempt, Finding, Lane, LargestPartition, PhaseSpan, PriceList, Profile,
    StageProfile, StoreRequests, Totals,
};
use snowmelt_wire::{OperatorMetric, ScanCounts, TaskProgress};

/// SQL with HTML that would take effect in a page without escaping.
pub const SQL: &str = "select l_returnflag, score(l_comment) as s, count(*) as n\n\
                       from 'data/tpch/sf1/lineitem/*.parquet'\n\
                       where l_comment <> '</pre><script>alert(1)</script>' and l_quantity < 24\n\
                       group by 1, 2 order by n desc limit 10";

pub fn profile() -> Profile {
    let progress = |rows: u64, udf_rows| TaskProgress {
        rows_read: rows,
        bytes_read: rows * 22,
        requests: 34,
        store_reads: 34,
        scans: ScanCounts {
            footers_ahead: 2,
            row_groups_in_flight: 2,
            merged: 40,
            split: 3,
            hedged: 1,
        },
        pruned: 3,
        spilled_bytes: 5 << 20,
        udf_rows,
        udf_nanos: udf_rows * 900,
        ..TaskProgress::default()
    };
    Profile {
        query: "q-0193505ad3f57c31b6a1d7a4a0c0ffee".into(),
        sql: SQL.into(),
        accepted_ms: 1_795_298_731_000,
        wall_us: 1_842_000,
        rows: 10,
        phases: phases(),
        lanes: (0..8)
            .map(|worker| worker_lane(worker, progress(750_000, 0)))
            .chain((0..8).map(|udf| udf_lane(udf, progress(0, 354_000))))
            .collect(),
        stages: stages(),
        operators: operators(),
        driver_operators: driver_operators(),
        worker_plan: "AggregateExec: mode=Partial, gby=[l_returnflag, s], aggr=[count(*)]\n  \
                      ProjectionExec: expr=[l_returnflag, score(l_comment) as s]\n    \
                      FilterExec: l_quantity < 24"
            .into(),
        driver_plan: "SortExec: TopK(fetch=10), expr=[n DESC]\n  AggregateExec: mode=Final\n    \
                      ResultExec: partitions=8"
            .into(),
        totals: Totals {
            tasks: 8,
            cold: 13,
            warm: 3,
            function_seconds: 19.31,
            cpu_seconds: 14.2,
            progress: progress(6_001_215, 2_832_000),
            bytes_total: 251 << 20,
            bytes_exchanged: 1_289_000,
            exchange_lists: 0,
            peak_memory: 187 << 20,
        },
        printed: BTreeMap::from([("score".into(), "model loaded\n".into())]),
        cost: cost(),
        findings: vec![
            Finding {
                title: "71% of the workers' time is spent in `score`".into(),
                evidence: "score: 10.9 s of 15.3 s, 2,832,000 rows, 3.8 µs a row".into(),
                advice: "make it vectorised: @sm.udf(batch=\"arrow\") gets whole columns".into(),
            },
            Finding {
                title: "worker 5 was slower than the others".into(),
                evidence: "1.58 s, the median is 1.10 s; it was run again once".into(),
                advice: "look at its log with SNOWMELT_LOG=info".into(),
            },
        ],
    }
}

/// Three stages, the last of which reads from the others.
fn stages() -> Vec<StageProfile> {
    let stage = |stage: u32, reads: &[u32], medium: &str| StageProfile {
        stage,
        reads: reads.to_vec(),
        medium: medium.to_owned(),
        keys: vec!["l_returnflag@0".to_owned()],
        tasks: 8,
        attempts: 9,
        retries: 1,
        rows: 120_400,
        bytes_read: 22 << 20,
        bytes_sent: 1_289_000,
        from_us: 61_000,
        to_us: 1_680_000,
        cpu_us: 4_960_000 / (u64::from(stage) + 1),
        peak_memory: 187 << 20,
        largest: Some(LargestPartition {
            partition: 3,
            of: 8,
            rows: 88_000,
            share: 0.73,
            median_rows: 4_600,
        }),
        discarded: vec![DiscardedAttempt {
            task: stage * 8 + 5,
            attempt: 0,
            from_us: 190_000,
            to_us: 700_000,
            why: "lost".to_owned(),
        }],
        ..StageProfile::default()
    };
    vec![stage(0, &[], "files"), stage(1, &[], "files"), stage(2, &[0, 1], "driver")]
}

/// A cost, at prices with a name that has to be escaped.
pub fn cost() -> Cost {
    let bill =
        Bill { requests: 0.000_48, invocations: 0.000_003, compute: 0.000_32, total: 0.0008 };
    Cost {
        prices: PriceList {
            name: "AWS list prices, us-east-1".to_owned(),
            date: "2025-06-30".to_owned(),
            machine: "<m6i>".to_owned(),
        },
        requests: StoreRequests {
            scan_reads: 1_088,
            hedged: 4,
            plan_reads: 9,
            lists: 1,
            exchange_reads: 64,
            exchange_writes: 64,
        },
        invocations: 18,
        gib_seconds: 19.31,
        cpu_seconds: 14.2,
        functions: bill,
        machines: bill,
    }
}

/// Fifty stages of 256 tasks, each after one or two others.
pub fn large() -> Profile {
    let mut profile = profile();
    let model = profile.stages[0].clone();
    profile.stages = (0..50)
        .map(|stage: u32| StageProfile {
            stage,
            reads: (stage.saturating_sub(4)..stage)
                .filter(|task| (task + stage).is_multiple_of(3))
                .collect(),
            medium: if stage == 49 { "driver" } else { "files" }.to_owned(),
            tasks: 256,
            attempts: 256,
            discarded: Vec::new(),
            ..model.clone()
        })
        .collect();
    profile.lanes = (0..50 * 256)
        .map(|task: u64| {
            let stage = task / 256;
            let from = 61_000 + stage * 30_000 + task % 256 * 100;
            Lane {
                name: format!("worker {task}"),
                stage: stage as u32,
                asked_us: from,
                ready_us: from + 900,
                began_us: from + 1_000,
                done_us: from + 1_000 + task * 7_919 % 60_000,
                ..profile.lanes[0].clone()
            }
        })
        .collect();
    profile
}

fn phases() -> Vec<PhaseSpan> {
    let ends = [
        ("packages", 0, 12_000),
        ("plan", 12_000, 61_000),
        ("start", 61_000, 190_000),
        ("run", 190_000, 1_801_000),
        ("merge", 1_801_000, 1_842_000),
    ];
    ends.map(|(phase, from_us, to_us)| PhaseSpan { phase: phase.into(), from_us, to_us }).into()
}

fn worker_lane(worker: u64, progress: TaskProgress) -> Lane {
    let cold = worker >= 3;
    let slow = worker == 5;
    Lane {
        name: format!("worker {worker}"),
        stage: 0,
        host: None,
        cold,
        asked_us: 61_000,
        ready_us: if cold { 96_000 + worker * 9_000 } else { 61_000 },
        began_us: 190_000 + worker * 6_000,
        done_us: 1_200_000 + worker * 37_000 % 110_000 + if slow { 480_000 } else { 0 },
        rows: 1_204,
        peak_memory: Some((150 + worker * 5) << 20),
        memory_limit: 1 << 30,
        cpu_us: 620_000,
        setup_us: 0,
        retries: u32::from(slow),
        progress,
    }
}

fn udf_lane(udf: u64, progress: TaskProgress) -> Lane {
    Lane {
        name: format!("score {udf}"),
        stage: 0,
        host: None,
        cold: true,
        asked_us: 61_000,
        ready_us: 190_000 + udf * 6_000,
        began_us: 190_000 + udf * 6_000,
        done_us: 1_190_000 + udf * 37_000 % 110_000,
        rows: 354_000,
        peak_memory: (udf != 3).then_some(91 << 20),
        memory_limit: 512 << 20,
        cpu_us: 980_000,
        setup_us: 45_000,
        retries: 0,
        progress,
    }
}

fn operators() -> Vec<OperatorMetric> {
    let rows = [
        (0, "AggregateExec: mode=Partial, gby=[l_returnflag, s], aggr=[count(*)]", 9_632, 412),
        (1, "ProjectionExec: expr=[l_returnflag, score(l_comment) as s]", 2_832_000, 214),
        (2, "UDF: score", 2_832_000, 10_686),
        (
            2,
            "FilterExec: l_comment != </pre><script>alert(1)</script> AND l_quantity < 24",
            2_832_000,
            690,
        ),
        (
            3,
            "DataSourceExec: file_groups={8 groups}, projection=[l_quantity, l_returnflag, l_comment]",
            6_001_215,
            2_710,
        ),
    ];
    metrics(&rows)
}

fn driver_operators() -> Vec<OperatorMetric> {
    metrics(&[
        (0, "SortExec: TopK(fetch=10), expr=[n DESC]", 10, 1),
        (1, "AggregateExec: mode=Final, gby=[l_returnflag, s]", 1_204, 9),
        (2, "ResultExec: partitions=8", 9_632, 2),
    ])
}

fn metrics(rows: &[(u32, &str, u64, u64)]) -> Vec<OperatorMetric> {
    let metric = |(id, (depth, name, rows, ms)): (usize, &(u32, &str, u64, u64))| OperatorMetric {
        id: id as u32,
        depth: *depth,
        name: (*name).to_owned(),
        rows: *rows,
        compute_nanos: ms * 1_000_000,
    };
    rows.iter().enumerate().map(metric).collect()
}
