//! Functions that control has had a host prepare, and their calls.
//!
//! Invariant: a call that is refused has not run. A prepared function is named by the digest of its
//! code and limits, so a function that was deployed again is another function here.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use snowmelt_node::{CallEnd, InstanceLease, InstanceLimits, LOAD_LIMIT, Node, Unit};
use snowmelt_types::{Code, Digest, ErrorReport, Report};
use snowmelt_wire::{Call, Load};

use super::Agent;
use super::api::{ColdStart, FunctionCall, FunctionEnd, PrepareFunction};

/// The most functions that are prepared at the same time; with more, the function that was called
/// longest ago is forgotten, and control has it prepared again when it is called.
const MAX_PREPARED: usize = 10_000;

/// The functions of a host.
#[derive(Debug, Default)]
pub(super) struct Functions {
    // Held for a lookup only.
    known: Mutex<KnownFunctions>,
}

#[derive(Debug, Default)]
struct KnownFunctions {
    by_digest: HashMap<Digest, (Arc<PreparedFunction>, u64)>,
    /// Look-ups so far, as a clock for which function was used last.
    used: u64,
}

/// A function that can be called.
#[derive(Debug)]
pub(super) struct PreparedFunction {
    unit: Unit,
    limits: Arc<InstanceLimits>,
    pub load: Load,
    /// Calls and leases that run now.
    running: AtomicU32,
}

/// A call that runs, or a lease that is held, counted until it is dropped.
pub(super) struct RunningCall(pub Arc<PreparedFunction>);

impl RunningCall {
    /// Counts one more call or lease, and says how many there were before.
    fn begin(prepared: Arc<PreparedFunction>) -> (Self, u32) {
        let others = prepared.running.fetch_add(1, Ordering::Relaxed);
        (Self(prepared), others)
    }

    /// Ends the call or lease. Returns the instances of the function that are on the host then.
    pub fn end(self, node: &Node) -> u32 {
        let prepared = Arc::clone(&self.0);
        drop(self);
        prepared.instances(node)
    }
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Agent {
    /// Prepares a function, starts the requested number of instances, and has them load it.
    pub async fn prepare_function(
        &self,
        digest: Digest,
        order: PrepareFunction,
    ) -> Result<(), ErrorReport> {
        let PrepareFunction { function, place, files, secrets, start, prewarmed } = order;
        if function.digest() != digest {
            let message = format!("a function of another digest than {digest} came");
            return Err(ErrorReport::new(Code::PROTOCOL, message));
        }
        let node = &self.inner.node;
        let fetched = node.fetch_files(&function.tenant, &files).await;
        fetched.map_err(|error| error.report())?;
        let unit = function.prepare(node, place.as_ref(), secrets).await;
        let unit = unit.map_err(|error| error.report())?;
        let load = function.load(&unit);
        let limits = Arc::new(function.limits);
        let prepared =
            Arc::new(PreparedFunction { unit, limits, load, running: AtomicU32::new(0) });
        let began = std::time::Instant::now();
        if let Err(error) = prepared.start(node, start as usize).await {
            let why = node.preparation().why_image_failed(&prepared.unit, began).await;
            return Err(why.unwrap_or(error));
        }
        if let Some(count) = prewarmed {
            node.prewarm(&prepared.unit, &prepared.limits, &prepared.load, count as usize);
        }
        self.inner.functions.keep(digest, prepared);
        Ok(())
    }

    /// Runs a call of a function that was prepared, if there is room for it at once.
    pub async fn call_function(
        &self,
        digest: &Digest,
        call: FunctionCall,
    ) -> Result<FunctionEnd, ErrorReport> {
        let node = &self.inner.node;
        let (running, lease, others) = self.take(digest).await?;
        let prepared = &running.0;
        let cold = lease.cold.then(|| ColdStart {
            others,
            removed: node.removal_reason(&prepared.unit, &prepared.limits),
            budget: node.figures().handlers.budget,
        });
        let limit = Duration::from_millis(call.timeout_ms);
        let call = Call { invocation: call.invocation.as_str().to_owned(), event: call.event };
        let CallEnd { answer, log, instance_ended } = lease.run(&prepared.load, &call, limit).await;
        let (result, error) = match answer {
            Ok(result) => (Some(result), None),
            Err(error) => (None, Some(error)),
        };
        let instances = running.end(node);
        let log_dropped = log.dropped_bytes;
        let log = log.text;
        Ok(FunctionEnd { result, error, instance_ended, cold, log, log_dropped, instances })
    }

    /// Takes an instance of a function that was prepared, if there is room for the instance at
    /// once. Returns the number of other calls and leases of the function too.
    pub(super) async fn take(
        &self,
        digest: &Digest,
    ) -> Result<(RunningCall, InstanceLease, u32), ErrorReport> {
        let node = &self.inner.node;
        let prepared = self.inner.functions.find(digest).ok_or_else(|| not_prepared(digest))?;
        if node.is_dead(&prepared.unit) {
            self.inner.functions.remove(digest);
            return Err(not_prepared(digest));
        }
        let (running, others) = RunningCall::begin(Arc::clone(&prepared));
        let lease = prepared.lease(node, 1).await?.pop().ok_or_else(|| not_prepared(digest))?;
        Ok((running, lease, others))
    }

    /// Returns the digests of the functions that are prepared.
    pub fn prepared_functions(&self) -> Vec<Digest> {
        self.inner.functions.all()
    }

    /// Ends the idle instances of a function that was replaced or removed, or is not called any
    /// more.
    pub fn forget_function(&self, digest: &Digest) {
        if let Some(prepared) = self.inner.functions.remove(digest) {
            self.inner.node.forget(&prepared.unit, &prepared.limits);
        }
    }
}

impl PreparedFunction {
    async fn start(&self, node: &Node, count: usize) -> Result<(), ErrorReport> {
        if count == 0 {
            return Ok(());
        }
        let slots = count * self.limits.concurrency.max(1) as usize;
        let mut leases = self.lease(node, slots).await?;
        let loading = leases.iter_mut().map(|lease| lease.preload(&self.load, LOAD_LIMIT));
        for loaded in futures::future::join_all(loading).await {
            loaded.map_err(|error| error.report())?;
        }
        leases.into_iter().for_each(InstanceLease::give_back);
        Ok(())
    }

    /// Leases as many of `count` slots as there is room for at once, and at least one.
    async fn lease(&self, node: &Node, count: usize) -> Result<Vec<InstanceLease>, ErrorReport> {
        let mut leases = Vec::new();
        for lease in node.lease_instances_at_once(&self.unit, &self.limits, count).await {
            match lease {
                Err(snowmelt_node::Error::NoRoom(_)) if !leases.is_empty() => {}
                lease => leases.push(lease.map_err(|error| error.report())?),
            }
        }
        Ok(leases)
    }

    /// Returns the number of instances of the function on the host, idle ones included.
    pub fn instances(&self, node: &Node) -> u32 {
        let busy = self.running.load(Ordering::Relaxed).div_ceil(self.limits.concurrency.max(1));
        let idle = node.idle_instances(&self.unit, &self.limits);
        busy.saturating_add(u32::try_from(idle).unwrap_or(u32::MAX))
    }
}

impl Functions {
    fn keep(&self, digest: Digest, prepared: Arc<PreparedFunction>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.used += 1;
        let used = known.used;
        if known.by_digest.len() >= MAX_PREPARED && !known.by_digest.contains_key(&digest) {
            let oldest = known.by_digest.iter().min_by_key(|(_, (_, used))| *used);
            if let Some(oldest) = oldest.map(|(digest, _)| digest.clone()) {
                known.by_digest.remove(&oldest);
            }
        }
        // A function that is prepared again keeps the count of its calls.
        known.by_digest.entry(digest).or_insert((prepared, used));
    }

    fn find(&self, digest: &Digest) -> Option<Arc<PreparedFunction>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.used += 1;
        let now = known.used;
        let (prepared, used) = known.by_digest.get_mut(digest)?;
        *used = now;
        Some(Arc::clone(prepared))
    }

    fn all(&self) -> Vec<Digest> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.by_digest.keys().cloned().collect()
    }

    fn remove(&self, digest: &Digest) -> Option<Arc<PreparedFunction>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.by_digest.remove(digest).map(|(prepared, _)| prepared)
    }
}

fn not_prepared(digest: &Digest) -> ErrorReport {
    let message = format!("the function {} is not prepared on this host", digest.short());
    ErrorReport::new(Code::FUNCTION_ABSENT, message)
        .hint("control prepares it when it is called again")
}
