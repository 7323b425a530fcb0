//! Asynchronous calls: accepted into the store, run when there is an instance for them, and retried
//! where the platform failed.
//!
//! Invariant: an accepted call waits in the store until the function itself has answered or failed,
//! or has been removed. A platform that fails, ends or is killed does not end the call. So a call
//! may run more than once.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use snowmelt_api::{Invocation, InvocationState, InvokeRequest};
use snowmelt_rpc::trace;
use snowmelt_types::{Code, ErrorReport, FunctionName, InvocationId, Tenant};
use tokio_util::sync::CancellationToken;

use super::{CallSlot, Functions, accepted, failed};
use crate::now_ms;
use crate::state::records::{FunctionId, InvocationRecord};
use crate::times::{AGAIN_AFTER, CALLS_ASKED_EVERY};

/// The asynchronous calls of a platform. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct AsyncCalls {
    functions: Functions,
    attempts: Arc<Attempts>,
}

/// The attempts of this process to run calls.
#[derive(Debug, Default)]
struct Attempts {
    /// The number of calls that run, until their ends are stored.
    running: AtomicUsize,
    /// The errors because of which retried calls have not run yet, by call.
    troubles: Mutex<HashMap<InvocationId, ErrorReport>>,
    /// The calls that another control has accepted, and may have begun.
    inherited: Mutex<HashSet<InvocationId>>,
}

/// A guard of a call that runs, until its end is stored.
struct AttemptGuard<'a>(&'a Attempts);

impl<'a> AttemptGuard<'a> {
    fn begin(attempts: &'a Attempts) -> Self {
        attempts.running.fetch_add(1, Ordering::Relaxed);
        Self(attempts)
    }
}

impl Drop for AttemptGuard<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Attempts {
    fn trouble(&self, id: &InvocationId, why: Option<ErrorReport>) {
        let mut troubles = self.troubles.lock().unwrap_or_else(PoisonError::into_inner);
        match why {
            Some(why) => drop(troubles.insert(id.clone(), why)),
            None => drop(troubles.remove(id)),
        }
    }

    /// Adds a warning to a call that another control may have begun.
    fn warn_of_other(&self, invocation: &mut Invocation) {
        let inherited = self.inherited.lock().unwrap_or_else(PoisonError::into_inner);
        if inherited.contains(&invocation.id) {
            let message = "the call may have run before: the control that accepted it was replaced";
            invocation.warnings.push(ErrorReport::new(Code::CALL_AGAIN, message).not_retryable());
        }
    }

    fn trouble_of(&self, id: &InvocationId) -> Option<ErrorReport> {
        self.troubles.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }
}

/// The outcome of one attempt.
enum Tried {
    /// The end of the call is stored, or the call is left to the next server.
    Done,
    /// The function was deployed again, or removed, while the call waited.
    Replaced,
    /// The platform failed, for this reason; the call is tried again.
    Again(Box<ErrorReport>),
}

impl AsyncCalls {
    /// Makes the asynchronous calls of these functions, and runs none yet. Only one object for a
    /// platform: another would not see its running attempts.
    pub fn new(functions: Functions) -> Self {
        Self { functions, attempts: Arc::default() }
    }

    /// Waits until no call runs, be it asynchronous or not.
    pub async fn idle(&self) {
        let is_running = || self.attempts.running.load(Ordering::Relaxed) > 0;
        while self.functions.calls().running > 0 || is_running() {
            tokio::time::sleep(CALLS_ASKED_EVERY).await;
        }
    }

    /// Accepts a call: on return it survives a crash and will be run at least once. A caller that
    /// stops waiting before does not keep a call that is stored from being run.
    pub async fn submit(
        &self,
        function: &FunctionId,
        request: InvokeRequest,
    ) -> Result<Invocation, ErrorReport> {
        self.functions.placements().quotas().call_later(&function.tenant)?;
        self.functions.find(function).await?;
        let invocation = accepted(&function.name);
        let record = InvocationRecord { invocation: invocation.clone(), event: request.event };
        // A task of its own, because the future of a request is dropped with its connection.
        let accepting = trace::spawn(self.clone().accept(function.clone(), record));
        accepting.await.unwrap_or_else(|error| {
            Err(ErrorReport::new(Code::INTERNAL, format!("accepting a call panicked: {error}")))
        })?;
        Ok(invocation)
    }

    /// Stores a call and starts its run.
    async fn accept(
        self,
        function: FunctionId,
        record: InvocationRecord,
    ) -> Result<(), ErrorReport> {
        self.functions.records().accept(&function.tenant, &record).await?;
        self.run_accepted(record.invocation.id, function);
        Ok(())
    }

    /// Runs the accepted calls that no server has ended. They have a warning if they may have been
    /// begun by another control, which was replaced.
    pub async fn resume(&self, after_other: bool) -> Result<(), ErrorReport> {
        let mut of_functions: HashMap<FunctionId, Vec<InvocationId>> = HashMap::new();
        for (id, function) in self.functions.records().waiting().await {
            if after_other {
                let inherited = &self.attempts.inherited;
                inherited.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone());
            }
            of_functions.entry(function).or_default().push(id);
        }
        for (function, ids) in of_functions {
            let calls = self.clone();
            tokio::spawn(async move {
                // One call prepares what all of them need; each gets the error if that fails.
                drop(calls.functions.find(&function).await);
                ids.into_iter().for_each(|id| calls.run_accepted(id, function.clone()));
            });
        }
        Ok(())
    }

    /// Returns an asynchronous call, with the reason as a warning while it has to be tried again.
    pub async fn invocation(
        &self,
        tenant: &Tenant,
        id: &InvocationId,
        permits: impl Fn(&FunctionName) -> bool,
    ) -> Result<Invocation, ErrorReport> {
        let missing = || {
            ErrorReport::new(Code::INVOCATION_MISSING, format!("there is no invocation `{id}`"))
                .hint("only calls made with --async are kept, for as long as fn deploy --keep says")
        };
        let record = self.functions.records().invocation(tenant, id).await?;
        let mut invocation = record
            .map(|record| record.invocation)
            .filter(|invocation| permits(&invocation.function))
            .ok_or_else(missing)?;
        if invocation.state == InvocationState::Running {
            invocation.warnings.extend(self.attempts.trouble_of(id));
        }
        Ok(invocation)
    }

    /// Returns the token that is cancelled when the server is about to end: no further call is
    /// begun then, and waiting ones are run by the next server.
    fn stopping(&self) -> &CancellationToken {
        self.functions.stopping()
    }

    /// Runs an accepted call in the background, until its end is stored. The event stays in the
    /// store until the call runs, so that waiting calls take no memory.
    fn run_accepted(&self, id: InvocationId, function: FunctionId) {
        let calls = self.clone();
        trace::spawn(async move {
            let [mut pause, longest] = AGAIN_AFTER;
            loop {
                let why = match calls.try_once(&id, &function).await {
                    Tried::Done => return,
                    Tried::Replaced => continue,
                    Tried::Again(why) => *why,
                };
                tracing::warn!(call = %id, %function, error = %why, "will be tried again");
                calls.attempts.trouble(&id, Some(why));
                tokio::select! {
                    () = calls.stopping().cancelled() => return,
                    () = tokio::time::sleep(pause) => pause = (pause * 2).min(longest),
                }
            }
        });
    }

    /// Runs a call and stores its end.
    async fn try_once(&self, id: &InvocationId, function: &FunctionId) -> Tried {
        let live = match self.functions.find(function).await {
            Ok(live) => live,
            Err(error) if error.retryable => return Tried::Again(Box::new(error)),
            Err(error) => return self.give_up(function, id, error).await,
        };
        let stopping = self.stopping();
        let permit = tokio::select! {
            () = stopping.cancelled() => return Tried::Done,
            permit = live.permits.acquire() => permit,
        };
        // Before the look at `stopping`: the server waits for calls that it sees running.
        let _running = AttemptGuard::begin(&self.attempts);
        // The server may have been asked to end in between.
        if permit.is_err() || stopping.is_cancelled() {
            return Tried::Done;
        }
        // The call waited for the permit of a version that may be gone by now.
        if !self.functions.is_deployed(&live) {
            return Tried::Replaced;
        }
        let mut record = match self.functions.records().invocation(&function.tenant, id).await {
            Ok(Some(record)) => record,
            // The call is gone: its function was removed meanwhile.
            Ok(None) => return Tried::Done,
            Err(error) => return Tried::Again(Box::new(error)),
        };
        self.attempts.warn_of_other(&mut record.invocation);
        let quotas = self.functions.placements().quotas();
        let shared = async {
            let begun = quotas.call_in_turn(&function.tenant, function.name.as_str()).await;
            let room = self.functions.caller().room(&live, true).await;
            room.map(|room| (begun, room))
        };
        // The call waits for its share of the quotas longer than the server does.
        let (_begun, room) = match stopping.run_until_cancelled(shared).await {
            None => return Tried::Done,
            Some(Err(error)) if error.retryable => return Tried::Again(Box::new(error)),
            Some(Err(error)) => return self.give_up(function, id, error).await,
            Some(Ok(shared)) => shared,
        };
        let slot = match self.functions.caller().acquire(&live).await {
            Err(error) if error.retryable => return Tried::Again(Box::new(error)),
            acquired => CallSlot::Acquired(Box::new(acquired), room),
        };
        let ended = self.functions.caller().run(&live, record.invocation, record.event, slot).await;
        match &ended.error {
            Some(error) if error.retryable => Tried::Again(Box::new(error.clone())),
            // The failure may be caused by the end of the platform.
            Some(_) if stopping.is_cancelled() => Tried::Done,
            _ => self.keep(function, ended, live.record.spec.options.keep_ms).await,
        }
    }

    /// Stores the end of a call that cannot be run.
    async fn give_up(&self, function: &FunctionId, id: &InvocationId, why: ErrorReport) -> Tried {
        match self.functions.records().invocation(&function.tenant, id).await {
            Ok(Some(record)) => {
                let ended = failed(record.invocation, why);
                self.keep(function, ended, snowmelt_api::RESULT_KEPT_MS).await
            }
            Ok(None) => Tried::Done,
            Err(error) => Tried::Again(Box::new(error)),
        }
    }

    /// Stores the end of a call. A disk that is full must not make it run again.
    async fn keep(&self, function: &FunctionId, ended: Invocation, keep_ms: u64) -> Tried {
        let id = ended.id.clone();
        // The output is in the function's log, and need not be kept twice.
        let ended = Invocation { printed: String::new(), ..ended };
        let record = InvocationRecord { invocation: ended, event: Box::default() };
        let [mut pause, longest] = AGAIN_AFTER;
        loop {
            let until_ms = now_ms().saturating_add(keep_ms);
            let stored = self.functions.records().end(&function.tenant, &record, until_ms).await;
            let Err(error) = stored else { break };
            tracing::error!(call = %id, %error, "the end of a call cannot be stored");
            self.attempts.trouble(&id, Some(error));
            tokio::select! {
                () = self.stopping().cancelled() => return Tried::Done,
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(longest),
            }
        }
        self.attempts.trouble(&id, None);
        Tried::Done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::rig::{until, with_functions};

    /// Without a task of its own, such a call is run by the next server only.
    #[test]
    fn a_stored_call_is_run_although_its_request_was_dropped() {
        with_functions("def handler(event): return event", async |functions, function| {
            // Prepared before, so that the first poll of a request gets as far as the store.
            functions.find(&function).await.unwrap();
            let event = serde_json::value::to_raw_value("x").unwrap();
            let request = InvokeRequest { event, asynchronous: true };
            let calls = AsyncCalls::new(functions.clone());
            let mut submitting = Box::pin(calls.submit(&function, request));
            drop(futures::poll!(&mut submitting));
            let stored = async || {
                let waiting = functions.records().waiting().await;
                !waiting.is_empty() || functions.calls().succeeded > 0
            };
            until("the call is stored", stored).await;
            drop(submitting);
            until("the call has run", async || functions.calls().succeeded == 1).await;
        });
    }
}
