//! Calls every rank of a job and fetches all ends.
//!
//! Control may lose its connection to a host, or be restarted: each host keeps the ends of its
//! ranks, and is asked for the ends that control does not know yet.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use snowmelt_api::{FunctionSpec, Invocation, InvocationState, LogEntry};
use snowmelt_rpc::trace::SPANS;
use snowmelt_tasks::agent::api::{PartCalls, PartEnds, RankEnd};
use snowmelt_types::{Code, ErrorReport, InvocationId, JobId};
use tokio::sync::Barrier;
use tokio::time::Instant;
use tracing::Instrument;

use super::RankRange;
use super::failures::First;
use crate::now_ms;

/// How long a host keeps a part for which control does not ask. It leaves time to start control
/// again.
pub(super) const PART_LEASE: Duration = Duration::from_secs(40);

/// How long to go on with a host that does not answer. Less than [`PART_LEASE`], so that a host
/// that can be reached again still has its part.
const RETURN_TIMEOUT: Duration = Duration::from_secs(20);

/// How long a host is given to report the next end before it is asked again. An unreachable host is
/// noticed within this time.
const NEXT_END_TIMEOUT: Duration = Duration::from_secs(5);

/// How long to wait before a host that did not answer is asked again.
const PAUSE: Duration = Duration::from_millis(250);

/// The least number of requests without an answer after which a host is lost: control itself may
/// have been stopped during one of them.
const TRIES: u32 = 3;

/// The invocations and logs of all ranks, in order.
pub(super) struct RankResults {
    pub invocations: Vec<Invocation>,
    pub logs: Vec<LogEntry>,
}

/// A job whose parts are ready, or called already.
pub(super) struct Gathering<'a> {
    pub job: &'a JobId,
    pub parts: &'a [RankRange],
    pub function: &'a FunctionSpec,
    /// The calls of each part; `None` if an earlier control has made them.
    pub calls: Option<Vec<PartCalls>>,
    pub has_network: bool,
    /// The counter of ranks that have ended, for the status of the burst.
    pub ended: &'a AtomicU32,
    pub patience: Patience,
}

/// The times for which to go on with hosts that do not answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    pub unreachable: Duration,
    pub next_end: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { unreachable: RETURN_TIMEOUT, next_end: NEXT_END_TIMEOUT }
    }
}

impl Gathering<'_> {
    /// Calls all ranks concurrently. With a network, a host that is lost, or that has no result of
    /// a rank, is the failure of the job; the caller closes its parts. Without one, the ranks of
    /// such a host fail and all others have their results.
    pub async fn gather(mut self) -> Result<RankResults, ErrorReport> {
        let accepted_ms = now_ms();
        let first = First::of(self.function);
        let all_ended = Barrier::new(self.parts.len());
        let calls = self.calls.take();
        let calls: Vec<Option<PartCalls>> = match calls {
            Some(calls) => calls.into_iter().map(Some).collect(),
            None => self.parts.iter().map(|_| None).collect(),
        };
        let running = self.parts.iter().zip(calls);
        let running = running.map(|(part, calls)| {
            let span = tracing::debug_span!(
                target: SPANS,
                "burst.gather",
                snowmelt.host = part.host.name.as_str(),
                snowmelt.ranks = part.count,
            );
            self.run(part, calls, &first, &all_ended).instrument(span)
        });
        let ended = tokio::select! {
            ended = futures::future::try_join_all(running) => ended?,
            never = first.end_others(self.job, self.parts), if self.has_network => match never {},
        };
        let mut gathered = RankResults { invocations: Vec::new(), logs: Vec::new() };
        for end in ended.into_iter().flatten() {
            // The host has forgotten it, so it is not copied if the host is this one.
            let end = Arc::try_unwrap(end).unwrap_or_else(|shared| (*shared).clone());
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
            gathered.invocations.push(invocation(id, end, accepted_ms, self.function));
        }
        Ok(gathered)
    }

    async fn run(
        &self,
        part: &RankRange,
        calls: Option<PartCalls>,
        first: &First,
        all_ended: &Barrier,
    ) -> Result<Vec<Arc<RankEnd>>, ErrorReport> {
        let mut all = BTreeMap::new();
        let (from, finished) = match self.collect(part, calls, first, &mut all).await {
            Err(error) if !self.has_network && error.known_code() == Code::HOST_LOST => {
                return Ok(self.without_lost(part, all));
            }
            collected => collected?,
        };
        if self.has_network {
            all_ended.wait().await;
            self.release(part, from, finished).await;
        }
        if let Err(error) = part.host.agent.close(self.job).await {
            tracing::debug!(%error, "a part that has ended could not be closed");
        }
        Ok(all.into_values().collect())
    }

    /// Makes the calls of a part and takes the ends of its ranks: of all, or of those that have
    /// arrived if its host is lost. Returns how many ends the host has given, and whether there are
    /// no more.
    async fn collect(
        &self,
        part: &RankRange,
        calls: Option<PartCalls>,
        first: &First,
        all: &mut BTreeMap<u32, Arc<RankEnd>>,
    ) -> Result<(usize, bool), ErrorReport> {
        if let Some(calls) = calls {
            self.retry(part, || part.host.agent.call(self.job, &calls)).await?;
        }
        let mut from = 0;
        let mut finished = false;
        let ranks = part.first..part.first + part.count;
        while !finished && all.len() < ranks.len() {
            let page = self.next(part, from).await?;
            (from, finished) = (from + page.ends.len(), page.finished);
            for end in page.ends.into_iter().filter(|end| ranks.contains(&end.rank)) {
                first.take(&end, &part.host.name);
                all.insert(end.rank, end);
                self.ended.fetch_add(1, Ordering::Relaxed);
            }
        }
        if all.len() < ranks.len() { Err(lost(part)) } else { Ok((from, finished)) }
    }

    /// Returns the ends of a part whose host is lost, with errors for the ranks that have none. The
    /// others of the burst do not wait for these.
    fn without_lost(
        &self,
        part: &RankRange,
        mut all: BTreeMap<u32, Arc<RankEnd>>,
    ) -> Vec<Arc<RankEnd>> {
        let hint = "it may have run; the results of the other ranks are there, so run only this one \
                    again";
        let report = ErrorReport { hint: Some(hint.to_owned()), ..lost(part) };
        for rank in part.first..part.first + part.count {
            all.entry(rank).or_insert_with(|| {
                self.ended.fetch_add(1, Ordering::Relaxed);
                Arc::new(RankEnd {
                    rank,
                    result: None,
                    error: Some(report.clone()),
                    log: String::new(),
                    log_dropped: 0,
                    wall_us: 0,
                })
            });
        }
        all.into_values().collect()
    }

    /// Tells a host that all ranks of the burst have ended, and waits until its part has. A host
    /// keeps the network until all packets of its ranks have arrived, but once all ranks have ended
    /// there is no receiver: packets to a host whose part is closed would never arrive.
    async fn release(&self, part: &RankRange, from: usize, mut finished: bool) {
        let over = ErrorReport::new(Code::RANK_ENDED, "all ranks have ended");
        if let Err(error) = part.host.agent.end(self.job, &over).await {
            let job = self.job;
            tracing::warn!(%job, %error, "a part could not be informed that all ranks have ended");
        }
        while !finished {
            // A host that is lost now has given all its results.
            let Ok(page) = self.next(part, from).await else { return };
            finished = page.finished;
        }
    }

    async fn next(&self, part: &RankRange, from: usize) -> Result<PartEnds, ErrorReport> {
        let within = self.patience.next_end;
        self.retry(part, || part.host.agent.ends(self.job, from, within)).await
    }

    /// Repeats a request as long as the host may come back.
    async fn retry<T, F>(&self, part: &RankRange, ask: impl Fn() -> F) -> Result<T, ErrorReport>
    where
        F: Future<Output = Result<T, ErrorReport>>,
    {
        let begun = Instant::now();
        let mut tries = 0;
        loop {
            let error = match ask().await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            tries += 1;
            let code = error.known_code();
            let is_gone = [Code::PART_MISSING, Code::HOST_STOPPED].contains(&code);
            if !is_gone && code != Code::SERVER_UNREACHABLE {
                return Err(part.named(error));
            }
            if is_gone || tries >= TRIES && begun.elapsed() >= self.patience.unreachable {
                tracing::info!(host = %part.host.name, job = %self.job, %error, "a part is lost");
                return Err(lost(part));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

pub(super) fn lost(part: &RankRange) -> ErrorReport {
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
        printed: String::new(),
        accepted_ms,
        cold_because: None,
        wall_us: Some(end.wall_us),
        host: None,
        cold: true,
    }
}
