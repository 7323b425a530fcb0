//! Deployed functions and their calls.
//!
//! A function is loaded once at its deployment, so that code that cannot be loaded is refused there
//! and not at its first call. Instances come at the first call and go when idle: to zero.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use snowmelt_node::{InstanceLease, InstanceLimits, Node, Unit};
use snowmelt_types::{Code, Digest, ErrorReport, FunctionName, InvocationId, Report};
use snowmelt_wire::{Call, Load, Mode, OnError};
use tokio::sync::Semaphore;

use crate::api::{
    CallMode, FunctionSpec, FunctionSummary, Invocation, InvocationState, InvokeRequest, LogEntry,
};
use crate::logs::Logs;
use crate::now_ms;
use crate::store::{FunctionRecord, InvocationRecord, Store};
use crate::udfs::Declared;

/// How long code may take to load at its deployment, beside its own time limit for calls.
const LOAD_LIMIT: Duration = Duration::from_secs(120);

/// Functions, their instances' limits, and the calls in flight. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Functions {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    node: Node,
    store: Store,
    logs: Logs,
    // What is prepared in this process. Held for a look-up only.
    live: Mutex<HashMap<FunctionName, Arc<Live>>>,
}

/// A function that is ready to be called in this process.
#[derive(Debug)]
struct Live {
    record: FunctionRecord,
    unit: Unit,
    limits: InstanceLimits,
    load: Load,
    // A permit for each instance that there may be.
    permits: Semaphore,
}

impl Functions {
    pub fn new(node: Node, store: Store, logs: Logs) -> Self {
        Self { inner: Arc::new(Inner { node, store, logs, live: Mutex::default() }) }
    }

    /// Prepares, loads and stores a function; on return it survives a crash.
    pub async fn deploy(&self, spec: FunctionSpec) -> Result<FunctionSummary, ErrorReport> {
        let record = FunctionRecord { spec, deployed_ms: now_ms() };
        let live = Arc::new(self.prepare(record).await?);
        let mut lease = self.lease(&live).await?;
        lease.preload(&live.load, LOAD_LIMIT).await.map_err(|error| error.report())?;
        lease.give_back();
        if !live.record.spec.ephemeral {
            let stored = live.record.clone();
            self.blocking(move |inner| inner.store.put_function(&stored)).await?;
        }
        let replaced = self.live().insert(live.record.spec.name.clone(), Arc::clone(&live));
        if let Some(old) = replaced.filter(|old| old.unit.digest != live.unit.digest) {
            self.inner.node.forget(&old.unit, &old.limits);
        }
        Ok(self.summary(&live.record))
    }

    /// Every deployed function, by name.
    pub async fn list(&self) -> Result<Vec<FunctionSummary>, ErrorReport> {
        let records = self.blocking(|inner| inner.store.functions()).await?;
        Ok(records.iter().map(|record| self.summary(record)).collect())
    }

    /// Removes a function with its instances and logs.
    pub async fn remove(&self, name: &FunctionName) -> Result<(), ErrorReport> {
        let live = self.live().remove(name);
        if let Some(live) = &live {
            self.inner.node.forget(&live.unit, &live.limits);
        }
        let stored = name.clone();
        let was_stored = self.blocking(move |inner| inner.store.remove_function(&stored)).await?;
        self.inner.logs.remove(name);
        if was_stored || live.is_some() { Ok(()) } else { Err(self.missing(name).await) }
    }

    /// Calls a function and waits for its answer. A failure of the function is in the invocation.
    pub async fn invoke(
        &self,
        name: &FunctionName,
        request: InvokeRequest,
    ) -> Result<Invocation, ErrorReport> {
        let live = self.find(name).await?;
        Ok(self.run(&live, accepted(name), request.event).await)
    }

    /// Accepts a call: on return it survives a crash and will be run at least once.
    pub async fn submit(
        &self,
        name: &FunctionName,
        request: InvokeRequest,
    ) -> Result<Invocation, ErrorReport> {
        self.find(name).await?;
        let invocation = accepted(name);
        let record = InvocationRecord { invocation: invocation.clone(), event: request.event };
        let stored = record.clone();
        self.blocking(move |inner| inner.store.put_invocation(&stored)).await?;
        self.run_submitted(record);
        Ok(invocation)
    }

    /// Runs the accepted calls again that a crash interrupted.
    pub async fn resume(&self) -> Result<(), ErrorReport> {
        let records = self.blocking(|inner| inner.store.invocations()).await?;
        for record in records {
            if record.invocation.state == InvocationState::Running {
                self.run_submitted(record);
            }
        }
        Ok(())
    }

    /// An asynchronous call.
    pub async fn invocation(&self, id: &InvocationId) -> Result<Invocation, ErrorReport> {
        let key = id.clone();
        let record = self.blocking(move |inner| inner.store.invocation(&key)).await?;
        let missing = || {
            ErrorReport::new(Code::INVOCATION_MISSING, format!("there is no invocation `{id}`"))
                .hint("only calls made with --async are kept, the last 1000 of them")
        };
        record.map(|record| record.invocation).ok_or_else(missing)
    }

    /// What invocations wrote.
    pub async fn logs(
        &self,
        name: &FunctionName,
        invocation: Option<InvocationId>,
        tail: Option<u32>,
    ) -> Result<Vec<LogEntry>, ErrorReport> {
        if !self.live().contains_key(name) {
            let stored = name.clone();
            let known = self.blocking(move |inner| inner.store.function(&stored)).await?;
            if known.is_none() {
                return Err(self.missing(name).await);
            }
        }
        let name = name.clone();
        self.blocking(move |inner| inner.logs.read(&name, invocation.as_ref(), tail)).await
    }

    fn run_submitted(&self, record: InvocationRecord) {
        let functions = self.clone();
        tokio::spawn(async move {
            let InvocationRecord { invocation, event } = record;
            let name = invocation.function.clone();
            let ended = match functions.find(&name).await {
                Ok(live) => functions.run(&live, invocation, event.clone()).await,
                Err(error) => failed(invocation, error),
            };
            let record = InvocationRecord { invocation: ended, event: serde_json::Value::Null };
            if let Err(error) =
                functions.blocking(move |inner| inner.store.put_invocation(&record)).await
            {
                tracing::error!(%error, "cannot store the end of an invocation; it will run again");
            }
        });
    }

    async fn run(
        &self,
        live: &Live,
        invocation: Invocation,
        event: serde_json::Value,
    ) -> Invocation {
        let begun = Instant::now();
        let mut ended = match self.call(live, &invocation, event).await {
            Ok((result, cold)) => Invocation {
                state: InvocationState::Succeeded,
                result: Some(result),
                cold,
                ..invocation
            },
            Err(error) => failed(invocation, error),
        };
        ended.wall_us = u64::try_from(begun.elapsed().as_micros()).ok();
        ended
    }

    async fn call(
        &self,
        live: &Live,
        invocation: &Invocation,
        event: serde_json::Value,
    ) -> Result<(serde_json::Value, bool), ErrorReport> {
        let limit = Duration::from_millis(live.record.spec.options.timeout_ms);
        let _permit = live.permits.acquire().await.map_err(|error| {
            ErrorReport::new(Code::INTERNAL, format!("the permits are closed: {error}"))
        })?;
        let mut lease = self.lease(live).await?;
        let cold = lease.cold;
        let call = Call { invocation: invocation.id.as_str().to_owned(), event };
        let answer = lease.call(&live.load, &call, limit).await;
        self.keep_log(live, invocation, &lease);
        match answer {
            Ok(result) => {
                lease.give_back();
                Ok((result, cold))
            }
            // The function raised: its instance is as good as before.
            Err(error @ snowmelt_node::Error::Function(_)) => {
                lease.give_back();
                Err(error.report())
            }
            Err(error) => Err(error.report()),
        }
    }

    fn keep_log(&self, live: &Live, invocation: &Invocation, lease: &InstanceLease) {
        let log = lease.take_log();
        let entry = LogEntry {
            invocation: invocation.id.clone(),
            accepted_ms: invocation.accepted_ms,
            text: log.text,
            dropped_bytes: log.dropped_bytes,
        };
        self.inner.logs.keep(&live.record.spec.name, &entry);
    }

    async fn lease(&self, live: &Live) -> Result<InstanceLease, ErrorReport> {
        let leased = self.inner.node.lease_instance(&live.unit, &live.limits).await;
        leased.map_err(|error| error.report())
    }

    async fn find(&self, name: &FunctionName) -> Result<Arc<Live>, ErrorReport> {
        if let Some(live) = self.live().get(name) {
            return Ok(Arc::clone(live));
        }
        let key = name.clone();
        let Some(record) = self.blocking(move |inner| inner.store.function(&key)).await? else {
            return Err(self.missing(name).await);
        };
        let live = Arc::new(self.prepare(record).await?);
        Ok(Arc::clone(self.live().entry(name.clone()).or_insert(live)))
    }

    async fn prepare(&self, record: FunctionRecord) -> Result<Live, ErrorReport> {
        let spec = &record.spec;
        let node = &self.inner.node;
        let declared = crate::udfs::declared(node, &spec.code, &spec.packages).await?;
        let Declared { packages, imports } = declared;
        let unit = node
            .prepare(&spec.code, &packages, &imports, &snowmelt_package::Silent)
            .await
            .map_err(|error| error.report())?;
        let options = &spec.options;
        let limits = InstanceLimits {
            memory: options.memory,
            cpu: options.cpu,
            pids: options.pids,
            scratch: options.scratch,
            environment: options.environment.clone(),
            idle: Duration::from_millis(options.idle_ms),
        };
        let load = Load {
            mode: if spec.mode == CallMode::Map { Mode::Map } else { Mode::Function },
            code: Unit::code_path(),
            function: spec.handler.clone(),
            batch: None,
            on_error: OnError::default(),
        };
        let permits = Semaphore::new(options.concurrency.clamp(1, 10_000) as usize);
        Ok(Live { unit, limits, load, permits, record })
    }

    fn summary(&self, record: &FunctionRecord) -> FunctionSummary {
        let spec = &record.spec;
        let code = serde_json::to_vec(&spec.code).unwrap_or_default();
        let live = self.live().get(&spec.name).cloned();
        let instances = live.map_or(0, |live| {
            let most = live.record.spec.options.concurrency as usize;
            let busy = most.saturating_sub(live.permits.available_permits());
            busy + self.inner.node.idle_instances(&live.unit, &live.limits)
        });
        FunctionSummary {
            name: spec.name.clone(),
            handler: spec.handler.clone(),
            packages: spec.packages.clone(),
            options: spec.options.clone(),
            deployed_ms: record.deployed_ms,
            instances: u32::try_from(instances).unwrap_or(u32::MAX),
            version: Digest::of(code).short().to_owned(),
        }
    }

    async fn missing(&self, name: &FunctionName) -> ErrorReport {
        let known = self.list().await.unwrap_or_default();
        let names = known.iter().map(|function| function.name.as_str());
        let nearest = snowmelt_types::nearest(name.as_str(), names);
        let hint = nearest.map_or_else(
            || "`snowmelt fn ls` lists what is deployed".to_owned(),
            |nearest| format!("did you mean `{nearest}`?"),
        );
        ErrorReport::new(Code::FUNCTION_MISSING, format!("there is no function `{name}`"))
            .hint(hint)
    }

    fn live(&self) -> MutexGuard<'_, HashMap<FunctionName, Arc<Live>>> {
        self.inner.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs what waits for the disk away from the threads that serve connections.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> Result<T, ErrorReport> + Send + 'static,
    ) -> Result<T, ErrorReport> {
        let inner = Arc::clone(&self.inner);
        tokio::task::spawn_blocking(move || work(&inner)).await.unwrap_or_else(|error| {
            Err(ErrorReport::new(Code::INTERNAL, format!("a transaction panicked: {error}")))
        })
    }
}

fn accepted(name: &FunctionName) -> Invocation {
    Invocation {
        id: InvocationId::new(),
        function: name.clone(),
        state: InvocationState::Running,
        result: None,
        error: None,
        accepted_ms: now_ms(),
        wall_us: None,
        cold: false,
    }
}

fn failed(invocation: Invocation, error: ErrorReport) -> Invocation {
    Invocation { state: InvocationState::Failed, error: Some(error), ..invocation }
}
