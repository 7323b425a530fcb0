//! One host's part of a job: its instances, each for one rank and one call.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::stream::{FuturesUnordered, StreamExt};
use snowmelt_types::{ErrorReport, InvocationId, Report};
use snowmelt_wire::{Call, Load, OnError};
use tokio::sync::mpsc;

use super::api::{JobPart, PartCalls, PartReady, RankEnd};
use crate::{Error, InstanceLease, InstanceLimits, Node, Unit};

/// How long code may take to load.
const LOAD_LIMIT: Duration = Duration::from_secs(120);

/// Instances that have loaded their code and wait for their calls. Dropping it ends them.
#[derive(Debug)]
pub(super) struct Part {
    load: Load,
    ranks: Vec<(u32, InstanceLease)>,
}

impl Part {
    /// Starts all in one request; the first failure is that of the part.
    pub async fn open(node: &Node, order: JobPart) -> Result<(Self, PartReady), ErrorReport> {
        let begun = Instant::now();
        let failed = |error: Error| error.report();
        let JobPart { tenant, code, packages, imports, .. } = &order;
        let unit = node.prepare(tenant, code, packages, imports, &snowmelt_package::Silent).await;
        let unit = unit.map_err(failed)?;
        let load = Load {
            mode: order.mode,
            code: Unit::code_path(),
            function: order.handler.clone(),
            batch: None,
            on_error: OnError::default(),
        };
        let numbers = order.first..order.first.saturating_add(order.count);
        let environments = numbers.clone().map(|rank| environment(&order, rank)).collect();
        let limits = Arc::new(InstanceLimits { concurrency: 1, ..order.limits.clone() });
        let leased = node.lease_ranks(&unit, &limits, &order.job, environments).await;
        let leases: Result<Vec<_>, Error> = leased.into_iter().collect();
        let mut leases = leases.map_err(failed)?;
        let started_us = micros(begun.elapsed());
        let loading = leases.iter_mut().map(|lease| lease.preload(&load, LOAD_LIMIT));
        futures::future::try_join_all(loading).await.map_err(failed)?;
        let ready = PartReady { started_us, loaded_us: micros(begun.elapsed()) };
        Ok((Self { load, ranks: numbers.zip(leases).collect() }, ready))
    }

    /// How many.
    pub fn ranks(&self) -> u32 {
        u32::try_from(self.ranks.len()).unwrap_or(u32::MAX)
    }

    /// Calls each rank and tells its end; an instance goes as soon as its call has ended.
    pub async fn run(self, calls: PartCalls, ends: &mpsc::Sender<RankEnd>) {
        let limit = Duration::from_millis(calls.timeout_ms);
        let load = &self.load;
        let all = self.ranks.into_iter().zip(calls.events);
        let mut running: FuturesUnordered<_> =
            all.map(|((rank, lease), event)| call(rank, lease, load, event, limit)).collect();
        while let Some(end) = running.next().await {
            if ends.send(end).await.is_err() {
                return;
            }
        }
    }
}

async fn call(
    rank: u32,
    mut lease: InstanceLease,
    load: &Load,
    event: serde_json::Value,
    limit: Duration,
) -> RankEnd {
    let begun = Instant::now();
    let call = Call { invocation: InvocationId::new().as_str().to_owned(), event };
    let answer = lease.call(load, &call, limit).await;
    let log = lease.take_log();
    let (result, error) = match answer {
        Ok(result) => (Some(result), None),
        Err(error) => (None, Some(error.report())),
    };
    RankEnd {
        rank,
        result,
        error,
        log: log.text,
        log_dropped: log.dropped_bytes,
        wall_us: micros(begun.elapsed()),
    }
}

/// What a rank learns of its job.
fn environment(order: &JobPart, rank: u32) -> Vec<(String, String)> {
    let own = [
        ("SNOWMELT_JOB", order.job.as_str().to_owned()),
        ("SNOWMELT_RANK", rank.to_string()),
        ("SNOWMELT_SIZE", order.size.to_string()),
    ];
    own.map(|(name, value)| (name.to_owned(), value)).into()
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
