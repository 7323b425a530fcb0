//! The part of a job on one host: its instances, each for one rank and one call, and its network.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::stream::{FuturesUnordered, StreamExt};
use serde_json::value::RawValue;
use snowmelt_node::{
    Environment, Error, InstanceLease, InstanceLimits, LOAD_LIMIT, Node, PEERS, PEERS6,
    RankNetwork, Result, Unit,
};
use snowmelt_rpc::trace::SPANS;
use snowmelt_types::{ErrorReport, InvocationId, Report, micros};
use snowmelt_wire::{Call, Load};
use tokio::sync::watch;
use tracing::Instrument;

use super::api::{JobPart, PartCalls, PartOpen, PartReady, RankEnd};
use super::called_part::Called;

/// The number of attempts to open a part: it is tried once more with another zygote if the first
/// zygote is gone.
const TRIES: usize = 2;

/// Instances that wait for their calls. Dropping the part ends them, and then their network.
#[derive(Debug)]
pub(super) struct PartInstances {
    load: Load,
    ranks: Vec<(u32, InstanceLease)>,
    /// True if no other host has ranks of the job.
    is_whole: bool,
    /// A number by which the agent tells this part from another part of the same job.
    pub number: u64,
    // After the ranks, which are in it.
    network: Option<Arc<RankNetwork>>,
}

impl PartInstances {
    /// Makes the network and starts all instances in one request; the first failure is that of the
    /// part. No code of the user has run then.
    pub async fn open(node: &Node, order: JobPart) -> Result<(Self, PartOpen), ErrorReport> {
        let begun = Instant::now();
        let made = async {
            node.fetch_files(&order.function.tenant, &order.files).await?;
            let secrets = order.secrets.clone();
            let unit = order.function.prepare(node, order.place.as_ref(), secrets).await?;
            for _ in 1..TRIES {
                match Self::make(node, &order, &unit, begun).await {
                    // All instances come from one zygote, and the network is for its children.
                    Err(error) if error.is_of_zygote() => {
                        tracing::debug!(job = %order.job, %error, "another zygote is taken");
                    }
                    made => return made,
                }
            }
            Self::make(node, &order, &unit, begun).await
        };
        made.await.map_err(|error| error.report())
    }

    async fn make(
        node: &Node,
        order: &JobPart,
        unit: &Unit,
        begun: Instant,
    ) -> Result<(Self, PartOpen)> {
        // Control gives up on a part that is not open in this time.
        let patience = Duration::from_millis(order.start_within_ms);
        let room =
            node.reserve_part(unit, &order.function.limits, order.count as usize, patience).await?;
        let (network, open) = match order.network.clone() {
            None => (None, PartOpen::default()),
            Some(spec) => {
                let begun = Instant::now();
                let count = order.count as usize;
                let network =
                    node.open_job_network(unit, spec, &order.hosts, count, &room.zygote).await?;
                let cost = network.counters();
                let network_us = micros(begun.elapsed());
                (
                    Some(Arc::new(network)),
                    PartOpen { network_us, network: cost, ..PartOpen::default() },
                )
            }
        };
        let environments: Result<Vec<_>> =
            (0..order.count).map(|slot| environment(order, slot, network.as_deref())).collect();
        let limits = Arc::new(InstanceLimits { concurrency: 1, ..order.function.limits.clone() });
        let leased = node
            .lease_ranks(unit, &limits, &order.job, environments?, network.as_deref(), room)
            .await;
        let leases: Result<Vec<_>> = leased.into_iter().collect();
        let open = PartOpen { started_us: micros(begun.elapsed()), ..open };
        let load = order.function.load(unit);
        let ranks = (order.first..).zip(leases?).collect();
        let is_whole = order.count == order.size;
        Ok((Self { load, ranks, is_whole, number: 0, network }, open))
    }

    /// Waits until all hosts of the job answer over its network, and then loads the code. If some
    /// do not answer, the result names them and nothing is loaded.
    pub async fn ready(&mut self, within: Duration) -> Result<PartReady, ErrorReport> {
        let begun = Instant::now();
        let failed = |error: Error| error.report();
        if let Some(network) = &self.network {
            match network.reach(within).await {
                Err(Error::Network(snowmelt_network::Error::Unreachable { missing, .. })) => {
                    return Ok(PartReady { unreached: missing, ..PartReady::default() });
                }
                reached => reached.map_err(failed)?,
            }
        }
        let reached_us = micros(begun.elapsed());
        let load = &self.load;
        let loading = self.ranks.iter_mut().map(|(_, lease)| lease.preload(load, LOAD_LIMIT));
        futures::future::try_join_all(loading).await.map_err(failed)?;
        let loaded_us = micros(begun.elapsed());
        Ok(PartReady { reached_us, loaded_us, ..PartReady::default() })
    }

    /// Returns the network of the job on this host, if it has one.
    pub fn network(&self) -> Option<&Arc<RankNetwork>> {
        self.network.as_ref()
    }

    /// Returns the number of ranks of the part.
    pub fn ranks(&self) -> u32 {
        u32::try_from(self.ranks.len()).unwrap_or(u32::MAX)
    }

    /// Calls each rank and reports its end; an instance goes as soon as its call has ended. Once
    /// there is an error for all calls, each call that still runs ends with it.
    pub async fn run(self, calls: PartCalls, called: &Called) {
        let limit = Duration::from_millis(calls.timeout_ms);
        let Self { load, ranks, is_whole, network, .. } = self;
        let load = &load;
        let all = ranks.into_iter().zip(calls.events);
        let mut running: FuturesUnordered<_> = all
            .map(|((rank, lease), event)| {
                let span = tracing::debug_span!(target: SPANS, "burst.rank", snowmelt.rank = rank);
                call(rank, lease, load, event, limit, called.ended()).instrument(span)
            })
            .collect();
        let end_with_network = async {
            if let Some(network) = &network {
                called.end(network.lost().await.report());
            }
            std::future::pending::<()>().await;
        };
        tokio::pin!(end_with_network);
        loop {
            tokio::select! {
                end = running.next() => match end {
                    Some(end) => called.push(end),
                    None => break,
                },
                () = &mut end_with_network => {}
            }
        }
        if let Some(network) = network.as_ref().filter(|_| !is_whole) {
            // Ranks on other hosts may still wait for what those here sent last, until they end
            // too.
            let mut ended = called.ended();
            tokio::select! {
                () = network.settle() => {}
                _ = reason_of_end(&mut ended) => {}
            }
        }
    }
}

async fn call(
    rank: u32,
    mut lease: InstanceLease,
    load: &Load,
    event: Box<RawValue>,
    limit: Duration,
    mut ended: watch::Receiver<Option<ErrorReport>>,
) -> RankEnd {
    let begun = Instant::now();
    let call = Call { invocation: InvocationId::new().as_str().to_owned(), event };
    let answer = tokio::select! {
        answer = lease.call(load, &call, limit) => answer.map_err(|error| error.report()),
        error = reason_of_end(&mut ended) => Err(error),
    };
    let log = lease.take_log();
    let (result, error) = match answer {
        Ok(result) => (Some(result), None),
        Err(error) => (None, Some(error)),
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

/// Waits for the error that ends all calls, and returns it.
async fn reason_of_end(ended: &mut watch::Receiver<Option<ErrorReport>>) -> ErrorReport {
    let error = ended.wait_for(Option::is_some).await.ok().and_then(|error| error.clone());
    match error {
        Some(error) => error,
        // The sender has ended, so no reason will come.
        None => std::future::pending().await,
    }
}

/// Returns the environment variables that tell a rank about its job: rank, size, addresses and
/// peers.
fn environment(order: &JobPart, slot: u32, network: Option<&RankNetwork>) -> Result<Environment> {
    let mut variables = vec![
        ("SNOWMELT_JOB", order.job.as_str().to_owned()),
        ("SNOWMELT_RANK", (order.first + slot).to_string()),
        ("SNOWMELT_SIZE", order.size.to_string()),
    ];
    if let Some(network) = network {
        let address = network.address(slot)?;
        variables.push(("SNOWMELT_ADDRESS", address.v4.to_string()));
        variables.push(("SNOWMELT_ADDRESS6", address.v6.to_string()));
        variables.push(("SNOWMELT_PEERS", PEERS.to_owned()));
        variables.push(("SNOWMELT_PEERS6", PEERS6.to_owned()));
    }
    Ok(variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}
