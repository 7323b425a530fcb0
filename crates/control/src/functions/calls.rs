//! The run of a call: a slot of the function, a host and an instance there, and the answer.
//!
//! Invariant: a call that began is counted once, however it ends. The output is kept of a call
//! whose end is known and whose caller still waits.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::value::RawValue;
use snowmelt_api::{Answer, CallFigures, Invocation, InvocationState, LogEntry};
use snowmelt_node::{CallEnd, InstanceLease, LogText, Node};
use snowmelt_rpc::trace::{self, SPANS};
use snowmelt_tasks::agent::api::{FunctionCall, FunctionEnd};
use snowmelt_types::{ByteSize, Code, ErrorReport, FunctionName, micros};
use snowmelt_wire::Call;
use tracing::field::Empty;
use tracing::{Instrument, Span};

use super::call_permit::CallSlot;
use super::preparation::Live;
use super::{cold_start, failed};
use crate::access::quotas::HeldRoom;
use crate::cluster::placements::{Acquired, CallPlacement, Placements, Ran, is_unanswered};
use crate::reports::{CallCounters, CallGuard, Durations, output};
use crate::state::logs::Logs;

/// The caller of functions: finds a host and an instance for each call, counts the call, and keeps
/// what it prints.
#[derive(Debug)]
pub(crate) struct Caller {
    node: Node,
    placements: Placements,
    logs: Logs,
    calls: Arc<CallCounters>,
}

impl Caller {
    pub fn new(node: Node, placements: Placements, logs: Logs) -> Self {
        Self { node, placements, logs, calls: Arc::default() }
    }

    /// Returns how many calls run, and how many have ended in which way.
    pub fn figures(&self) -> CallFigures {
        self.calls.figures()
    }

    /// Returns the durations of calls.
    pub fn durations(&self) -> &Durations {
        self.calls.durations()
    }

    /// Runs a call, on a slot that it has or on one that it waits for.
    pub(crate) async fn run(
        &self,
        live: &Live,
        mut invocation: Invocation,
        event: Box<RawValue>,
        slot: CallSlot,
    ) -> Invocation {
        let begun = Instant::now();
        let record = &live.record;
        let counted = CallGuard::begin(&self.calls, &record.tenant, &record.spec);
        let span = tracing::debug_span!(
            target: SPANS,
            "function.invoke",
            faas.name = live.record.spec.name.as_str(),
            faas.invocation_id = invocation.id.as_str(),
            faas.coldstart = Empty,
            "error.type" = Empty,
            otel.status_code = Empty,
        );
        let called = self.call(live, &mut invocation, event, slot).instrument(span.clone()).await;
        counted.ended(&called);
        match called {
            Ok(result) => {
                invocation.state = InvocationState::Succeeded;
                invocation.result = Some(result);
            }
            Err(error) => {
                trace::failed(&span, &error);
                invocation = failed(invocation, error);
            }
        }
        invocation.wall_us = Some(micros(begun.elapsed()));
        invocation
    }

    /// Waits for a host, and on control's own host also for an instance.
    pub(crate) async fn acquire(&self, live: &Live) -> Result<Acquired, ErrorReport> {
        self.placements.acquire(live.callee()).await
    }

    /// Takes the share of a call in the quotas of its tenant, or waits for it.
    pub(crate) async fn room(&self, live: &Live, waits: bool) -> Result<HeldRoom, ErrorReport> {
        let quotas = self.placements.quotas();
        let tenant = &live.record.tenant;
        match waits {
            true => quotas.room_in_turn(tenant, live.room.clone()).await,
            false => quotas.room(tenant, live.room.clone()),
        }
    }

    async fn call(
        &self,
        live: &Live,
        invocation: &mut Invocation,
        event: Box<RawValue>,
        slot: CallSlot,
    ) -> Result<Answer, ErrorReport> {
        let (_permit, _room, mut acquired) = match slot {
            CallSlot::Acquired(acquired, room) => (None, room, (*acquired)?),
            CallSlot::Wanted | CallSlot::Patient => {
                let acquiring = tracing::debug_span!(target: SPANS, "function.acquire");
                let permit = live.permits.acquire().instrument(acquiring.clone()).await;
                let permit = permit.map_err(|error| {
                    ErrorReport::new(Code::INTERNAL, format!("the permits are closed: {error}"))
                })?;
                let room = self.room(live, matches!(slot, CallSlot::Patient));
                let room = room.instrument(acquiring.clone()).await?;
                (Some(permit), room, self.acquire(live).instrument(acquiring).await?)
            }
        };
        let timeout_ms = live.record.spec.options.timeout_ms;
        let call = FunctionCall { invocation: invocation.id.clone(), event, timeout_ms };
        let mut failures = 0;
        loop {
            match acquired {
                Acquired::Here(lease, placed) => {
                    return self.call_here(live, invocation, call, lease, placed).await;
                }
                Acquired::There(mut placed) => {
                    let host = Arc::clone(&placed.host);
                    let called = self.placements.call(&host, live.callee(), &call).await;
                    if called.as_ref().is_err_and(is_unanswered) {
                        placed.has_one_less();
                    }
                    match called? {
                        Ran::Done(end) => {
                            placed.has_instances(end.instances);
                            invocation.host = Some(host.name.clone());
                            return self.ended_there(live, invocation, end);
                        }
                        Ran::Not { error, failed } => {
                            let again = self.placements.acquire_again(
                                live.callee(),
                                placed,
                                error,
                                failed,
                                &mut failures,
                            );
                            acquired = again.await?;
                        }
                    }
                }
            }
        }
    }

    async fn call_here(
        &self,
        live: &Live,
        invocation: &mut Invocation,
        call: FunctionCall,
        lease: InstanceLease,
        mut placed: CallPlacement,
    ) -> Result<Answer, ErrorReport> {
        Span::current().record("faas.coldstart", lease.cold);
        invocation.cold = lease.cold;
        if lease.cold {
            let start = cold_start::started_here(&self.node, live);
            invocation.cold_because = Some(cold_start::reason(live, start));
        }
        if !placed.is_alone() {
            invocation.host = Some(placed.host.name.clone());
        }
        let limit = Duration::from_millis(call.timeout_ms);
        let call = Call { invocation: call.invocation.as_str().to_owned(), event: call.event };
        let CallEnd { answer, log, instance_ended } = lease.run(&live.load, &call, limit).await;
        if !placed.is_alone() {
            placed.has_instances(self.placements.instances_here(live.callee()));
        }
        self.keep_log(live, invocation, log);
        answer.inspect_err(|error| {
            if instance_ended {
                live.instance_ended(error);
            }
        })
    }

    fn ended_there(
        &self,
        live: &Live,
        invocation: &mut Invocation,
        end: FunctionEnd,
    ) -> Result<Answer, ErrorReport> {
        let FunctionEnd { result, error, instance_ended, cold, log, log_dropped, .. } = end;
        Span::current().record("faas.coldstart", cold.is_some());
        invocation.cold = cold.is_some();
        invocation.cold_because = cold.map(|start| cold_start::reason(live, start));
        self.keep_log(live, invocation, LogText { text: log, dropped_bytes: log_dropped });
        match (result, error) {
            (Some(result), None) => Ok(result),
            (_, Some(error)) => {
                if instance_ended {
                    live.instance_ended(&error);
                }
                Err(error)
            }
            (None, None) => {
                let message = "a host says neither an answer nor an error";
                Err(ErrorReport::new(Code::PROTOCOL, message))
            }
        }
    }

    fn keep_log(&self, live: &Live, invocation: &mut Invocation, log: LogText) {
        if log.dropped_bytes > 0 {
            let name = &live.record.spec.name;
            invocation.warnings.push(log_was_cut(name, live.limits.log, log.dropped_bytes));
        }
        invocation.printed = output::beginning(&log.text);
        let entry = LogEntry {
            invocation: invocation.id.clone(),
            accepted_ms: invocation.accepted_ms,
            cold_because: invocation.cold_because.as_ref().map(|reason| reason.text.clone()),
            text: log.text,
            dropped_bytes: log.dropped_bytes,
        };
        self.logs.keep(&live.record.id(), &entry);
    }
}

fn log_was_cut(name: &FunctionName, limit: ByteSize, dropped: u64) -> ErrorReport {
    let written = ByteSize(limit.bytes() + dropped);
    let message = format!("the log of `{name}` was cut: limit {limit}, written {written}");
    ErrorReport::new(Code::FUNCTION_LOG, message)
        .hint("print less, or keep more with log=\"16MiB\" (fn deploy --log)")
}
