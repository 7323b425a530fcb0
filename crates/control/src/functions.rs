//! Deployed functions and their calls.
//!
//! A function is loaded once at its deployment, so that code that cannot be loaded is refused there
//! and not at its first call. Instances come at the first call and go when idle: to zero.

mod catalog;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::value::RawValue;
use snowmelt_api::{
    Answer, BatchRequest, CallFigures, FunctionSpec, FunctionSummary, Invocation, InvocationState,
    InvokeRequest, LogEntry, PackRequest, Packed, Wheel,
};
use snowmelt_node::{InstanceLease, LOAD_LIMIT, Node};
use snowmelt_types::{
    ByteSize, Code, ErrorReport, FunctionName, InvocationId, Report, Tenant, micros,
};
use snowmelt_wire::Call;

use crate::accepted::Waiting;
use crate::analysis_cache::AnalysisCache;
use crate::calls::{Calls, Counted};
use crate::in_turn::InTurn;
use crate::live::{self, Live};
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

    /// Prepares, loads and stores a function; on return it survives a crash.
    pub async fn deploy(
        &self,
        tenant: Tenant,
        spec: FunctionSpec,
    ) -> Result<FunctionSummary, ErrorReport> {
        let id = FunctionId { tenant: tenant.clone(), name: spec.name.clone() };
        let _turn = self.inner.in_turn.wait(&id).await;
        let accept = move |inner: &Inner| live::accept(&inner.node, tenant, spec, now_ms());
        let mut record = self.blocking(accept).await?;
        live::pin(&self.inner.node, &mut record).await?;
        let live = Arc::new(self.prepare(record).await?);
        let began = Instant::now();
        if let Err(error) = self.start_expected(&live).await {
            let why = self.inner.node.why_image_failed(&live.unit, began).await;
            return Err(why.unwrap_or(error));
        }
        if !live.record.spec.ephemeral {
            self.records().put_function(&live.record).await?;
        }
        let replaced = self.live().insert(live.record.id(), Arc::clone(&live));
        let other =
            |old: &Arc<Live>| old.unit.digest != live.unit.digest || old.limits != live.limits;
        if let Some(old) = replaced.filter(other) {
            self.inner.node.forget(&old.unit, &old.limits);
        }
        self.prewarm(&live);
        Ok(self.summary(&live.record))
    }

    /// Keeps a wheel of a user's own.
    pub async fn keep_wheel(&self, file: String, wheel: Vec<u8>) -> Result<Wheel, ErrorReport> {
        let kept = self.inner.node.keep_wheel(file, wheel).await;
        Ok(Wheel { requirement: kept.map_err(|error| error.report())? })
    }

    /// Makes a code package.
    pub async fn pack(
        &self,
        request: PackRequest,
        user: Option<u32>,
    ) -> Result<Packed, ErrorReport> {
        live::pack(&self.inner.node, &self.inner.analysis, request, user).await
    }

    /// Starts and loads what calls are expected to need, at least one, in one request.
    async fn start_expected(&self, live: &Live) -> Result<(), ErrorReport> {
        let options = &live.record.spec.options;
        let each = live.limits.concurrency.max(1);
        let expected = live.record.spec.expected.clamp(1, options.instances.max(1));
        // A lease is a slot, and an instance has as many as it takes calls.
        let slots = (expected * each) as usize;
        let mut leases = Vec::new();
        for lease in self.inner.node.lease_instances(&live.unit, &live.limits, slots).await {
            match lease {
                // On a host without room for all that may be needed later, some are enough.
                Err(snowmelt_node::Error::NoRoom(_)) if !leases.is_empty() => {}
                lease => leases.push(lease.map_err(|error| error.report())?),
            }
        }
        let loading = leases.iter_mut().map(|lease| lease.preload(&live.load, LOAD_LIMIT));
        for loaded in futures::future::join_all(loading).await {
            loaded.map_err(|error| error.report())?;
        }
        leases.into_iter().for_each(InstanceLease::give_back);
        Ok(())
    }

    fn prewarm(&self, live: &Live) {
        let count = live.record.spec.options.parked.min(live.record.spec.options.instances);
        self.inner.node.prewarm(&live.unit, &live.limits, &live.load, count as usize);
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
        match self.call(live, &mut invocation, event, slot).await {
            Ok(result) => {
                invocation.state = InvocationState::Succeeded;
                invocation.result = Some(result);
                counted.succeeded();
            }
            Err(error) => invocation = failed(invocation, error),
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
        let _permit = match slot {
            Some(_) => None,
            None => Some(live.permits.acquire().await.map_err(|error| {
                ErrorReport::new(Code::INTERNAL, format!("the permits are closed: {error}"))
            })?),
        };
        let mut lease = match slot {
            Some(lease) => lease?,
            None => self.lease(live).await?,
        };
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
