//! Calls every rank of a job and waits for all ends.

use std::collections::BTreeMap;

use snowmelt_api::{BurstCalls, FunctionSpec, Invocation, InvocationState, LogEntry};
use snowmelt_node::agent::api::{PartCalls, RankEnd};
use snowmelt_types::{Code, ErrorReport, InvocationId, JobId};
use tokio::sync::{Barrier, mpsc};

use super::Part;
use super::failing::First;
use crate::now_ms;

/// The results of the ranks, in order.
pub(super) struct Ended {
    pub invocations: Vec<Invocation>,
    pub logs: Vec<LogEntry>,
}

/// Calls all ranks concurrently. A host that is lost, or that ends without the result of a rank, is
/// the failure of the job: ranks that still run are ended by releasing the others.
pub(super) async fn gather(
    job: &JobId,
    parts: &[Part],
    (function, request): (&FunctionSpec, &BurstCalls),
) -> Result<Ended, ErrorReport> {
    let accepted_ms = now_ms();
    let first = First::of(function);
    let all_ended = Barrier::new(parts.len());
    let running =
        parts.iter().map(|part| run(job, part, (function, request), (&first, &all_ended)));
    let ended = tokio::select! {
        ended = futures::future::try_join_all(running) => ended?,
        never = first.end_others(job, parts), if request.network.is_some() => match never {},
    };
    let mut gathered = Ended { invocations: Vec::new(), logs: Vec::new() };
    for end in ended.into_iter().flatten() {
        let id = InvocationId::new();
        if !end.log.is_empty() || end.log_dropped > 0 {
            gathered.logs.push(LogEntry {
                invocation: id.clone(),
                accepted_ms,
                cold_because: None,
                text: end.log.clone(),
                dropped_bytes: end.log_dropped,
            });
        }
        gathered.invocations.push(invocation(id, end, accepted_ms, function));
    }
    Ok(gathered)
}

async fn run(
    job: &JobId,
    part: &Part,
    (function, request): (&FunctionSpec, &BurstCalls),
    (first, all_ended): (&First, &Barrier),
) -> Result<Vec<RankEnd>, ErrorReport> {
    let (begin, count) = (part.first as usize, part.count as usize);
    let calls = PartCalls {
        events: request.events[begin..begin + count].to_vec(),
        timeout_ms: function.options.timeout_ms,
    };
    let collecting = async {
        let mut ends = part.host.agent.call(job, calls).await.map_err(|error| part.named(error))?;
        let all = collect(part, &mut ends, |end| first.take(end, &part.host.name)).await?;
        if request.network.is_some() {
            all_ended.wait().await;
            release(job, part, ends).await;
        }
        Ok(all)
    };
    tokio::select! {
        ended = collecting => ended,
        () = part.host.lost() => Err(lost(part)),
    }
}

async fn collect(
    part: &Part,
    ends: &mut mpsc::Receiver<RankEnd>,
    on_end: impl Fn(&RankEnd),
) -> Result<Vec<RankEnd>, ErrorReport> {
    let mut all = BTreeMap::new();
    let ranks = part.first..part.first + part.count;
    while all.len() < ranks.len() {
        let end = ends.recv().await.ok_or_else(|| lost(part))?;
        on_end(&end);
        if ranks.contains(&end.rank) {
            all.insert(end.rank, end);
        }
    }
    Ok(all.into_values().collect())
}

/// A host keeps the network until all packets of its ranks have arrived. Once all ranks have ended
/// there is no receiver: packets to a host whose part is closed would never arrive.
async fn release(job: &JobId, part: &Part, mut ends: mpsc::Receiver<RankEnd>) {
    let over = ErrorReport::new(Code::RANK_ENDED, "all ranks have ended");
    if let Err(error) = part.host.agent.end(job, &over).await {
        tracing::warn!(%job, %error, "a part could not be informed that all ranks have ended");
    }
    // It ends when nothing of the part is left.
    while ends.recv().await.is_some() {}
}

fn lost(part: &Part) -> ErrorReport {
    ErrorReport::new(Code::HOST_LOST, format!("{part} was lost")).hint(
        "the other ranks were ended too, because they may wait for these; run the burst again",
    )
}

fn invocation(
    id: InvocationId,
    end: RankEnd,
    accepted_ms: u64,
    function: &FunctionSpec,
) -> Invocation {
    let succeeded = end.error.is_none();
    Invocation {
        id,
        function: function.name.clone(),
        state: if succeeded { InvocationState::Succeeded } else { InvocationState::Failed },
        result: end.result,
        error: end.error,
        warnings: Vec::new(),
        accepted_ms,
        cold_because: None,
        wall_us: Some(end.wall_us),
        cold: true,
    }
}
