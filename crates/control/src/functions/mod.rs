//! Deployed functions and their calls.
//!
//! A function is loaded once at its deployment, so that code that cannot be loaded is refused there
//! and not at its first call. Instances come at the first call and go when idle: to zero.
//!
//! | part | file |
//! |---|---|
//! | a specification that is checked, and a function that can be called | `limits`, `declarations`, `preparation` |
//! | deployment, one after another for each name | `deployment`, `deployment_order`, `wheels` |
//! | what is deployed, and the logs of invocations | `catalog` |
//! | a call, and why an instance was started for it | `calls`, `call_permit`, `cold_start` |
//! | calls that are stored before they run | `async_calls` |

pub(crate) mod async_calls;
mod call_permit;
mod calls;
mod catalog;
mod cold_start;
pub(crate) mod declarations;
mod deployment;
mod deployment_order;
mod limits;
pub(crate) mod preparation;
mod wheels;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use snowmelt_api::{BatchRequest, CallFigures, Invocation, InvocationState, InvokeRequest};
use snowmelt_node::{InstanceLease, Node};
use snowmelt_types::{Code, ErrorReport, FunctionName, InvocationId, Report};
use tokio::sync::SemaphorePermit;
use tokio_util::sync::CancellationToken;

use crate::access::quotas::HeldRoom;
use crate::access::secrets::SecretSources;
use crate::cluster::placements::{Acquired, Placements};
use crate::now_ms;
use crate::reports::Durations;
use crate::state::analysis_cache::AnalysisCache;
use crate::state::logs::Logs;
use crate::state::records::{FunctionId, FunctionRecord, Records};
pub(crate) use call_permit::CallSlot;
use calls::Caller;
use deployment_order::InTurn;
use preparation::Live;
use wheels::SentWheels;

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
    caller: Caller,
    /// Cancelled when the server is about to end: no further call is begun then.
    stopping: CancellationToken,
    in_turn: InTurn,
    // Functions that are prepared in this process. Held for a lookup only.
    live: Mutex<HashMap<FunctionId, Arc<Live>>>,
    placements: Placements,
    secrets: SecretSources,
    wheels: SentWheels,
}

impl Functions {
    pub fn new(
        node: Node,
        analysis: AnalysisCache,
        records: Records,
        logs: Logs,
        placements: Placements,
        secrets: SecretSources,
    ) -> Self {
        let caller = Caller::new(node.clone(), placements.clone(), logs.clone());
        let inner = Inner {
            node,
            analysis,
            records,
            logs,
            caller,
            stopping: CancellationToken::new(),
            in_turn: InTurn::default(),
            live: Mutex::default(),
            placements,
            secrets,
            wheels: SentWheels::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Returns the node that runs the functions, and the cache of what is known of their code.
    pub fn parts(&self) -> (&Node, &AnalysisCache) {
        (&self.inner.node, &self.inner.analysis)
    }

    /// Returns the node and the cache, of which tests make other services.
    #[cfg(test)]
    pub fn node_and_analysis(&self) -> (Node, AnalysisCache) {
        (self.inner.node.clone(), self.inner.analysis.clone())
    }

    /// Removes a function with its instances and logs.
    pub async fn remove(&self, id: &FunctionId) -> Result<(), ErrorReport> {
        let _turn = self.inner.in_turn.wait(id).await;
        let live = self.live().remove(id);
        if let Some(live) = &live {
            self.forget_instances(live);
        }
        let was_stored = self.records().remove_function(id).await?;
        self.placements().quotas().function_is_gone(&id.tenant, &id.name);
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
        let _begun = self.placements().quotas().calls(&id.tenant, id.name.as_str(), 1)?;
        let live = self.find(id).await?;
        Ok(self.caller().run(&live, accepted(&id.name), request.event, CallSlot::Wanted).await)
    }

    /// Calls a function with many events concurrently, and waits for all answers. Missing instances
    /// are requested together; the failure of one call does not affect the others. They take turns
    /// where the quotas of the tenant have fewer places.
    pub async fn invoke_all(
        &self,
        id: &FunctionId,
        request: BatchRequest,
    ) -> Result<Vec<Invocation>, ErrorReport> {
        self.refuse_if_stopping()?;
        let count = request.events.len();
        let quotas = self.placements().quotas();
        let begun = quotas.calls(&id.tenant, id.name.as_str(), count as u64)?;
        let live = self.find(id).await?;
        // On several hosts each call is placed by itself.
        let slots = match self.placements().is_alone() {
            true => self.slots(&live, count.min(begun.places())).await,
            false => Vec::new(),
        };
        let mut slots = slots.into_iter();
        let calls: Vec<_> = request
            .events
            .into_iter()
            .map(|event| {
                let slot = slots.next();
                async {
                    let _turn = begun.turn().await;
                    let (permit, slot) = slot.unzip();
                    let slot = slot.unwrap_or(CallSlot::Patient);
                    let ended = self.caller().run(&live, accepted(&id.name), event, slot).await;
                    drop(permit);
                    ended
                }
            })
            .collect();
        // The calls without a slot need the permits that are left.
        drop(slots);
        Ok(futures::future::join_all(calls).await)
    }

    /// Acquires slots on this host: as many as there are permits now, with instances that are
    /// requested together.
    async fn slots<'a>(&self, live: &'a Live, most: usize) -> Vec<(SemaphorePermit<'a>, CallSlot)> {
        let now = most.min(live.permits.available_permits());
        let permits: Vec<_> = (0..now).map_while(|_| live.permits.try_acquire().ok()).collect();
        let quotas = self.placements().quotas();
        let room = || quotas.room(&live.record.tenant, live.room.clone());
        let rooms: Vec<_> = permits.iter().map_while(|_| room().ok()).collect();
        let node = &self.inner.node;
        let leased = node.lease_instances(&live.unit, &live.limits, rooms.len()).await;
        // Those for which there is no room now wait for it one by one, while others run.
        let is_none = !leased.iter().any(Result::is_ok);
        let has_room = |lease: &snowmelt_node::Result<_>| {
            is_none || !matches!(lease, Err(snowmelt_node::Error::NoRoom(_)))
        };
        let leased = leased.into_iter().filter(has_room);
        let slot = |lease: snowmelt_node::Result<InstanceLease>, room: HeldRoom| {
            let here = |lease| Acquired::Here(lease, self.placements().here());
            CallSlot::Acquired(Box::new(lease.map(here).map_err(|error| error.report())), room)
        };
        let slots = leased.zip(rooms).map(|(lease, room)| slot(lease, room));
        permits.into_iter().zip(slots).collect()
    }

    /// Begins no further call.
    pub fn stop(&self) {
        self.inner.stopping.cancel();
    }

    /// Returns the token that is cancelled when the server is about to end.
    pub(crate) fn stopping(&self) -> &CancellationToken {
        &self.inner.stopping
    }

    fn refuse_if_stopping(&self) -> Result<(), ErrorReport> {
        if !self.inner.stopping.is_cancelled() {
            return Ok(());
        }
        Err(ErrorReport::new(Code::SERVER_ENDS, "the server is about to end and begins no call")
            .hint("call again when it is back"))
    }

    pub(crate) fn records(&self) -> &Records {
        &self.inner.records
    }

    /// Returns what runs the calls of the functions.
    pub(crate) fn caller(&self) -> &Caller {
        &self.inner.caller
    }

    /// Returns how many calls run, and how many have ended in which way.
    pub fn calls(&self) -> CallFigures {
        self.caller().figures()
    }

    /// Returns the durations of calls.
    pub fn durations(&self) -> &Durations {
        self.caller().durations()
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

    /// Ends the idle instances of a function that was replaced or removed, on all hosts.
    fn forget_instances(&self, live: &Live) {
        self.inner.node.forget(&live.unit, &live.limits);
        self.placements().forget(&live.needs.function);
    }

    pub(crate) fn placements(&self) -> &Placements {
        &self.inner.placements
    }

    /// Returns whether a function is still the one that is deployed under its name.
    pub(crate) fn is_deployed(&self, live: &Arc<Live>) -> bool {
        let now = self.live().get(&live.record.id()).cloned();
        now.is_some_and(|now| Arc::ptr_eq(&now, live))
    }

    async fn prepare(&self, record: FunctionRecord) -> Result<Live, ErrorReport> {
        let Inner { node, analysis, placements, secrets, .. } = &*self.inner;
        let secrets = secrets.read(&record.tenant, &record.spec.secrets).await?;
        Live::prepare(node, analysis, placements, record, secrets).await
    }

    fn live(&self) -> MutexGuard<'_, HashMap<FunctionId, Arc<Live>>> {
        self.inner.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs work that waits for the disk, away from the threads that serve connections.
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

pub(crate) fn accepted(name: &FunctionName) -> Invocation {
    Invocation {
        id: InvocationId::new(),
        function: name.clone(),
        state: InvocationState::Running,
        result: None,
        error: None,
        warnings: Vec::new(),
        printed: String::new(),
        accepted_ms: now_ms(),
        wall_us: None,
        cold: false,
        cold_because: None,
        host: None,
    }
}

pub(crate) fn failed(invocation: Invocation, error: ErrorReport) -> Invocation {
    Invocation { state: InvocationState::Failed, error: Some(error), ..invocation }
}
