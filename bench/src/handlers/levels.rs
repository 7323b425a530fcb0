//! The times of each cache: nothing cached, packages unpacked, imports in a zygote, an instance
//! that was kept; and many at once.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use snowmelt_api::Start;
use snowmelt_node::{InstanceLimits, Unit};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::host::{Asked, Host, Timed};

/// Between two samples: the next is to pay neither for the end of the one before nor for what is
/// prewarmed after it. What many in a row cost is seen in a burst.
const PAUSE: Duration = Duration::from_millis(40);

/// How long an instance is kept where it is meant to be taken again.
const KEPT: Duration = Duration::from_secs(300);

/// How many instances wait to be taken, and how long the next may take to be among them.
const PREWARMED: usize = 2;
const PREWARM_TIMEOUT: Duration = Duration::from_secs(20);

/// One row, in microseconds, in the order of the samples.
#[derive(Serialize)]
struct Row {
    first_line_us: Vec<u64>,
    answer_us: Vec<u64>,
    /// The answer but for the handler's own time.
    platform_us: Vec<u64>,
}

impl Row {
    fn print(samples: &[Timed]) -> Result<()> {
        let us = |of: fn(&Timed) -> Duration| {
            samples.iter().map(|s| u64::try_from(of(s).as_micros()).unwrap_or(u64::MAX)).collect()
        };
        let row = Self {
            first_line_us: us(|s| s.first_line),
            answer_us: us(|s| s.answer),
            platform_us: us(|s| s.answer.saturating_sub(s.own)),
        };
        println!("{}", serde_json::to_string(&row)?);
        Ok(())
    }
}

/// The very first call of a platform that has just started: its packages are resolved, installed
/// where they are not, and imported. Finding the interpreter is done once for all functions, so it
/// is not counted.
pub async fn first(host: &Host) -> Result<()> {
    host.node.preparation().python_for(&[]).await?;
    let asked = Asked::now();
    let unit = host.prepare().await?;
    let mut lease = host.lease(&unit, Duration::ZERO).await?;
    Row::print(&[asked.call(&mut lease, 0.0).await?])
}

/// A unit whose zygote is there.
pub async fn warmed(host: &Host) -> Result<Unit> {
    let unit = host.prepare().await?;
    // As many starts in short time would grow it.
    host.node.warm(&unit).await;
    for _ in 0..5 {
        drop(host.one(&unit, Duration::ZERO).await?);
        tokio::time::sleep(PAUSE).await;
    }
    Ok(unit)
}

/// Fresh instances with these limits, each from the zygote.
pub async fn import(host: &Host, count: usize, limits: &Arc<InstanceLimits>) -> Result<()> {
    let unit = warmed(host).await?;
    let mut samples = Vec::new();
    for _ in 0..count {
        let (lease, timed) = host.one_within(&unit, limits).await?;
        ensure!(lease.start == Start::Zygote, "an instance is not from its zygote: {lease:?}");
        samples.push(timed);
        drop(lease);
        tokio::time::sleep(PAUSE).await;
    }
    Row::print(&samples)
}

/// One instance that is kept and taken again.
pub async fn handler(host: &Host, count: usize) -> Result<()> {
    let unit = warmed(host).await?;
    host.one(&unit, KEPT).await?.0.give_back();
    let mut samples = Vec::new();
    for _ in 0..count {
        tokio::time::sleep(PAUSE).await;
        let (lease, timed) = host.one(&unit, KEPT).await?;
        ensure!(lease.start == Start::Idle, "the instance was not kept: {lease:?}");
        samples.push(timed);
        lease.give_back();
    }
    Row::print(&samples)
}

/// Prewarmed instances, of which a few always wait.
pub async fn prewarmed(host: &Host, count: usize) -> Result<()> {
    let unit = warmed(host).await?;
    host.prewarm(&unit, PREWARMED);
    let mut samples = Vec::new();
    for _ in 0..count {
        let all_wait = async {
            while host.prewarmed(&unit) < PREWARMED {
                tokio::time::sleep(PAUSE).await;
            }
        };
        tokio::time::timeout(PREWARM_TIMEOUT, all_wait).await.context("none was prewarmed")?;
        tokio::time::sleep(PAUSE).await;
        let (lease, timed) = host.one(&unit, Duration::ZERO).await?;
        ensure!(lease.start == Start::Prewarmed, "the instance had not waited: {lease:?}");
        samples.push(timed);
    }
    Row::print(&samples)
}

/// All at the same moment, each on its own and in an instance of its own that ends with its
/// answer. Times are from the moment of the burst.
pub async fn burst(host: &Host, count: usize) -> Result<()> {
    let unit = warmed(host).await?;
    let mut calls = JoinSet::new();
    let start = Arc::new(Barrier::new(count + 1));
    for _ in 0..count {
        let host = host.clone();
        let unit = unit.clone();
        let start = Arc::clone(&start);
        calls.spawn(async move {
            start.wait().await;
            let (lease, timed) = host.one(&unit, Duration::ZERO).await?;
            drop(lease);
            anyhow::Ok(timed)
        });
    }
    start.wait().await;
    Row::print(&all(calls).await?)
}

/// All by one request, which is answered when every instance is there; then a call on each.
pub async fn map(host: &Host, count: usize) -> Result<()> {
    let unit = warmed(host).await?;
    let mut calls = JoinSet::new();
    let asked = Asked::now();
    for mut lease in host.lease_many(&unit, count).await? {
        calls.spawn(async move { asked.call(&mut lease, 0.0).await });
    }
    Row::print(&all(calls).await?)
}

async fn all(mut calls: JoinSet<Result<Timed>>) -> Result<Vec<Timed>> {
    let mut samples = Vec::new();
    while let Some(call) = calls.join_next().await {
        samples.push(call??);
    }
    Ok(samples)
}
