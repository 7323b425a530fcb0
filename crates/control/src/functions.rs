//! Deployed functions and their calls.
//!
//! A function is loaded once at its deployment, so that code that cannot be loaded is refused there
//! and not at its first call. Instances come at the first call and go when idle: to zero.

mod catalog;
mod deployment;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::value::RawValue;
use snowmelt_api::{
    Answer, BatchRequest, CallFigures, Invocation, InvocationState, InvokeRequest, LogEntry,
};
use snowmelt_node::{InstanceLease, Node};
use snowmelt_rpc::trace::{self, SPANS};
use snowmelt_types::{ByteSize, Code, ErrorReport, FunctionName, InvocationId, Report, micros};
use snowmelt_wire::Call;
use tracing::field::Empty;
use tracing::{Instrument, Span};

use crate::accepted::Waiting;
use crate::analysis_cache::AnalysisCache;
use crate::calls::{Calls, Counted};
use crate::in_turn::InTurn;
use crate::live::Live;
use crate::logs::Logs;
use crate::records::{FunctionId, FunctionRecord, Records};
use crate::times::CALLS_ASKED_EVERY;
use crate::{cold, now_ms};

/// Functions, their instances' limits, and the calls in flight. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Functions {
    inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    node: Node,
    analysis: AnalysisCache,
    records: Records,
    logs: Logs,
    calls: Arc<Calls>,
    waiting: Waiting,
    in_turn: InTurn,
    // Functions that are prepared in this process. Held for a lookup only.
    live: Mutex<HashMap<FunctionId, Arc<Live>>>,
}

impl Functions {
    pub fn new(node: Node, analysis: AnalysisCache, records: Records, logs: Logs) -> Self {
        let (calls, waiting, live) = (Arc::default(), Waiting::default(), Mutex::default());
        let in_turn = InTurn::default();
        let inner = Inner { node, analysis, records, logs, calls, waiting, in_turn, live };
        Self { inner: Arc::new(inner) }
    }

    /// What other services of a test are made of.
    #[cfg(test)]
    pub fn node_and_analysis(&self) -> (Node, AnalysisCache) {
        (self.inner.node.clone(), self.inner.analysis.clone())
    }

    /// Removes a function with its instances and logs.
    pub async fn remove(&self, id: &FunctionId) -> Result<(), ErrorReport> {
        let _turn = self.inner.in_turn.wait(id).await;
        let live = self.live().remove(id);
        if let Some(live) = &live {
            self.inner.node.forget(&live.unit, &live.limits);
        }
        let was_stored = self.records().remove_function(id).await?;
        self.inner.logs.remove(id);
        if was_stored || live.is_some() { Ok(()) } else { Err(self.missing(id).await) }
    }

    /// Calls a function and waits for its answer. A failure of the function is in the invocation.
    pub async fn invoke(
        &self,
        id: &FunctionId,
        request: InvokeRequest,
    ) -> Result<Invocation, ErrorReport> {
        self.refuse_if_stopping()?;
        let live = self.find(id).await?;
        Ok(self.run(&live, accepted(&id.name), request.event, None).await)
    }

    /// Calls a function with many events concurrently, and waits for all answers. Missing instances
    /// are requested together; the failure of one call does not affect the others.
    pub async fn invoke_all(
        &self,
        id: &FunctionId,
        request: BatchRequest,
    ) -> Result<Vec<Invocation>, ErrorReport> {
        self.refuse_if_stopping()?;
        let live = self.find(id).await?;
        let now = request.events.len().min(live.permits.available_permits());
        let permits: Vec<_> = (0..now).map_while(|_| live.permits.try_acquire().ok()).collect();
        let node = &self.inner.node;
        let leased = node.lease_instances(&live.unit, &live.limits, permits.len()).await;
        // Those for which there is no room now wait for it one by one, while others run.
        let is_none = !leased.iter().any(Result::is_ok);
        let has_room = |lease: &snowmelt_node::Result<_>| {
            is_none || !matches!(lease, Err(snowmelt_node::Error::NoRoom(_)))
        };
        let mut slots = permits.into_iter().zip(leased.into_iter().filter(has_room));
        let calls: Vec<_> = request
            .events
            .into_iter()
            .map(|event| {
                let slot = slots.next();
                async {
                    let (permit, lease) = slot.unzip();
                    let lease = lease.map(|lease| lease.map_err(|error| error.report()));
                    let ended = self.run(&live, accepted(&id.name), event, lease).await;
                    drop(permit);
                    ended
                }
            })
            .collect();
        // The calls without a slot need the permits that are left.
        drop(slots);
        Ok(futures::future::join_all(calls).await)
    }

    /// Begins no further asynchronous call.
    pub fn stop(&self) {
        self.inner.waiting.stop();
    }

    /// Waits until no call runs.
    pub async fn idle(&self) {
        while self.calls().running > 0 || self.waiting().running() > 0 {
            tokio::time::sleep(CALLS_ASKED_EVERY).await;
        }
    }

    fn refuse_if_stopping(&self) -> Result<(), ErrorReport> {
        if !self.waiting().is_stopping() {
            return Ok(());
        }
        Err(ErrorReport::new(Code::SERVER_ENDS, "the server is about to end and begins no call")
            .hint("call again when it is back"))
    }

    pub(crate) fn records(&self) -> &Records {
        &self.inner.records
    }

    pub(crate) fn waiting(&self) -> &Waiting {
        &self.inner.waiting
    }

    /// How calls ended so far.
    pub fn calls(&self) -> CallFigures {
        self.inner.calls.figures()
    }

    /// Runs a call, on a slot that it has or on one that it waits for.
    pub(crate) async fn run(
        &self,
        live: &Live,
        mut invocation: Invocation,
        event: Box<RawValue>,
        slot: Option<Result<InstanceLease, ErrorReport>>,
    ) -> Invocation {
        let begun = Instant::now();
        let counted = Counted::begin(&self.inner.calls);
        let span = tracing::debug_span!(
            target: SPANS,
            "function.invoke",
            faas.name = live.record.spec.name.as_str(),
            faas.invocation_id = invocation.id.as_str(),
            faas.coldstart = Empty,
            "error.type" = Empty,
            otel.status_code = Empty,
        );
        match self.call(live, &mut invocation, event, slot).instrument(span.clone()).await {
            Ok(result) => {
                invocation.state = InvocationState::Succeeded;
                invocation.result = Some(result);
                counted.succeeded();
            }
            Err(error) => {
                trace::failed(&span, &error);
                invocation = failed(invocation, error);
            }
        }
        invocation.wall_us = Some(micros(begun.elapsed()));
        invocation
    }

    async fn call(
        &self,
        live: &Live,
        invocation: &mut Invocation,
        event: Box<RawValue>,
        slot: Option<Result<InstanceLease, ErrorReport>>,
    ) -> Result<Answer, ErrorReport> {
        let limit = Duration::from_millis(live.record.spec.options.timeout_ms);
        let acquiring = match slot {
            Some(_) => Span::none(),
            None => tracing::debug_span!(target: SPANS, "function.acquire"),
        };
        let permit = live.permits.acquire().instrument(acquiring.clone());
        let _permit = match slot {
            Some(_) => None,
            None => Some(permit.await.map_err(|error| {
                ErrorReport::new(Code::INTERNAL, format!("the permits are closed: {error}"))
            })?),
        };
        let mut lease = match slot {
            Some(lease) => lease?,
            None => self.lease(live).instrument(acquiring).await?,
        };
        Span::current().record("faas.coldstart", lease.cold);
        invocation.cold = lease.cold;
        if lease.cold {
            invocation.cold_because = Some(cold::reason(&self.inner.node, live));
        }
        let call = Call { invocation: invocation.id.as_str().to_owned(), event };
        let answer = lease.call(&live.load, &call, limit).await;
        self.keep_log(live, invocation, &lease);
        match answer {
            Ok(result) => {
                lease.give_back();
                Ok(result)
            }
            // The function raised an error: its instance can be used again.
            Err(error @ snowmelt_node::Error::Function(_)) => {
                lease.give_back();
                Err(error.report())
            }
            Err(error) => {
                let report = error.report();
                live.instance_ended(&report);
                Err(report)
            }
        }
    }

    fn keep_log(&self, live: &Live, invocation: &mut Invocation, lease: &InstanceLease) {
        let log = lease.take_log();
        if log.dropped_bytes > 0 {
            let name = &live.record.spec.name;
            invocation.warnings.push(log_was_cut(name, live.limits.log, log.dropped_bytes));
        }
        let entry = LogEntry {
            invocation: invocation.id.clone(),
            accepted_ms: invocation.accepted_ms,
            cold_because: invocation.cold_because.as_ref().map(|reason| reason.text.clone()),
            text: log.text,
            dropped_bytes: log.dropped_bytes,
        };
        self.inner.logs.keep(&live.record.id(), &entry);
    }

    pub(crate) async fn lease(&self, live: &Live) -> Result<InstanceLease, ErrorReport> {
        let leased = self.inner.node.lease_instance(&live.unit, &live.limits).await;
        leased.map_err(|error| error.report())
    }

    pub(crate) async fn find(&self, id: &FunctionId) -> Result<Arc<Live>, ErrorReport> {
        let known = self.live().get(id).cloned();
        let record = match known {
            Some(live) if !self.inner.node.is_dead(&live.unit) => return Ok(live),
            // One that dies with the server is not stored.
            Some(dead) => {
                self.forget(id, &dead);
                Some(dead.record.clone())
            }
            None => self.records().function(id).await?,
        };
        let Some(record) = record else { return Err(self.missing(id).await) };
        let live = Arc::new(self.prepare(record).await?);
        let live = Arc::clone(self.live().entry(id.clone()).or_insert(live));
        self.prewarm(&live);
        Ok(live)
    }

    /// Forgets a function whose images are dead, unless another one has its name meanwhile.
    fn forget(&self, id: &FunctionId, dead: &Arc<Live>) {
        let mut live = self.live();
        if live.get(id).is_some_and(|found| Arc::ptr_eq(found, dead)) {
            live.remove(id);
            self.inner.node.forget(&dead.unit, &dead.limits);
        }
    }

    /// Whether this is still the function of its name.
    pub(crate) fn is_deployed(&self, live: &Arc<Live>) -> bool {
        let now = self.live().get(&live.record.id()).cloned();
        now.is_some_and(|now| Arc::ptr_eq(&now, live))
    }

    async fn prepare(&self, record: FunctionRecord) -> Result<Live, ErrorReport> {
        Live::prepare(&self.inner.node, &self.inner.analysis, record).await
    }

    fn live(&self) -> MutexGuard<'_, HashMap<FunctionId, Arc<Live>>> {
        self.inner.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs what waits for the disk away from the threads that serve connections.
    pub(crate) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> Result<T, ErrorReport> + Send + 'static,
    ) -> Result<T, ErrorReport> {
        let inner = Arc::clone(&self.inner);
        tokio::task::spawn_blocking(move || work(&inner)).await.unwrap_or_else(|error| {
            Err(ErrorReport::new(Code::INTERNAL, format!("work on the disk panicked: {error}")))
        })
    }
}

fn log_was_cut(name: &FunctionName, limit: ByteSize, dropped: u64) -> ErrorReport {
    let written = ByteSize(limit.bytes() + dropped);
    let message = format!("the log of `{name}` was cut: limit {limit}, written {written}");
    ErrorReport::new(Code::FUNCTION_LOG, message)
        .hint("print less, or keep more with log=\"16MiB\" (fn deploy --log)")
}

pub(crate) fn accepted(name: &FunctionName) -> Invocation {
    Invocation {
        id: InvocationId::new(),
        function: name.clone(),
        state: InvocationState::Running,
        result: None,
        error: None,
        warnings: Vec::new(),
        accepted_ms: now_ms(),
        wall_us: None,
        cold: false,
        cold_because: None,
    }
}

pub(crate) fn failed(invocation: Invocation, error: ErrorReport) -> Invocation {
    Invocation { state: InvocationState::Failed, error: Some(error), ..invocation }
}
