//! Calls every rank of a job and waits for all ends.

use snowmelt_node::agent::api::{PartCalls, RankEnd};
use snowmelt_types::{Code, ErrorReport, InvocationId, JobId};
use tokio::sync::mpsc;

use super::Part;
use super::failing::First;
use crate::api::{BurstCalls, FunctionSpec, Invocation, InvocationState, LogEntry};
use crate::now_ms;

/// What became of the ranks, in order.
pub(super) struct Ended {
    pub invocations: Vec<Invocation>,
    pub logs: Vec<LogEntry>,
}

/// Calls all at once. A host that is lost, or that ends without a word about a rank, is the
/// failure of the job: whoever is still running is ended by letting go of the others.
pub(super) async fn gather(
    job: &JobId,
    parts: &[Part],
    (function, request): (&FunctionSpec, &BurstCalls),
) -> Result<Ended, ErrorReport> {
    let accepted_ms = now_ms();
    let first = First::of(function);
    let running = parts.iter().map(|part| run(job, part, (function, request), &first));
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
    first: &First,
) -> Result<Vec<RankEnd>, ErrorReport> {
    let (begin, count) = (part.first as usize, part.count as usize);
    let calls = PartCalls {
        events: request.events[begin..begin + count].to_vec(),
        timeout_ms: function.options.timeout_ms,
    };
    let collecting = async {
        let ends = part.host.agent.call(job, calls).await.map_err(|error| part.named(error))?;
        collect(part, ends, |end| first.hear(end, &part.host.name)).await
    };
    tokio::select! {
        ended = collecting => ended,
        () = part.host.lost() => Err(lost(part)),
    }
}

async fn collect(
    part: &Part,
    mut ends: mpsc::Receiver<RankEnd>,
    hear: impl Fn(&RankEnd),
) -> Result<Vec<RankEnd>, ErrorReport> {
    let mut all: Vec<Option<RankEnd>> = (0..part.count).map(|_| None).collect();
    while let Some(end) = ends.recv().await {
        hear(&end);
        let place = end.rank.checked_sub(part.first).map(|place| place as usize);
        if let Some(slot) = place.and_then(|place| all.get_mut(place)) {
            *slot = Some(end);
        }
    }
    all.into_iter().collect::<Option<Vec<_>>>().ok_or_else(|| lost(part))
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
