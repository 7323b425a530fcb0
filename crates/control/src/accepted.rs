//! Asynchronous calls: accepted into the store, run when there is an instance for them, and run
//! again where it was the platform that failed.
//!
//! Invariant: a call that was accepted stays in the store as one that waits until the function
//! itself has answered or failed, or has been removed. A platform that fails, ends or is killed
//! does not end the call. So a call may run more than once.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use snowmelt_api::{Invocation, InvocationState, InvokeRequest};
use snowmelt_types::{Code, ErrorReport, ExitClass, InvocationId, Tenant};
use tokio_util::sync::CancellationToken;

use crate::functions::{Functions, accepted, failed};
use crate::now_ms;
use crate::records::{FunctionId, InvocationRecord};

/// How long to wait before a call is tried again, at first and at most.
const AGAIN_AFTER: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(30)];

/// The calls that this process has to run.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// No further call is begun.
    stopping: CancellationToken,
    /// Calls that run, until their end is stored.
    running: AtomicUsize,
    /// Why the calls that are retried have not run.
    troubles: Mutex<HashMap<InvocationId, ErrorReport>>,
}

/// A call that runs, until its end is stored.
struct Running<'a>(&'a Waiting);

impl<'a> Running<'a> {
    fn begin(waiting: &'a Waiting) -> Self {
        waiting.running.fetch_add(1, Ordering::Relaxed);
        Self(waiting)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Waiting {
    /// Begins no further call; those that wait are run by the next server.
    pub fn stop(&self) {
        self.stopping.cancel();
    }

    /// Whether the server is about to end.
    pub fn is_stopping(&self) -> bool {
        self.stopping.is_cancelled()
    }

    /// Calls that run now.
    pub fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }

    fn trouble(&self, id: &InvocationId, why: Option<ErrorReport>) {
        let mut troubles = self.troubles.lock().unwrap_or_else(PoisonError::into_inner);
        match why {
            Some(why) => drop(troubles.insert(id.clone(), why)),
            None => drop(troubles.remove(id)),
        }
    }

    fn trouble_of(&self, id: &InvocationId) -> Option<ErrorReport> {
        self.troubles.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }
}

/// The outcome of one attempt.
enum Tried {
    /// Its end is stored, or it is left to the next server.
    Done,
    /// The function was deployed again, or removed, while the call waited.
    Replaced,
    /// The platform failed.
    Again(ErrorReport),
}

impl Functions {
    /// Accepts a call: on return it survives a crash and will be run at least once.
    pub async fn submit(
        &self,
        function: &FunctionId,
        request: InvokeRequest,
    ) -> Result<Invocation, ErrorReport> {
        self.find(function).await?;
        let invocation = accepted(&function.name);
        let record = InvocationRecord { invocation: invocation.clone(), event: request.event };
        self.records().accept(&function.tenant, &record).await?;
        self.run_accepted(invocation.id.clone(), function.clone());
        Ok(invocation)
    }

    /// Runs the accepted calls that no server has ended.
    pub async fn resume(&self) -> Result<(), ErrorReport> {
        let mut of_functions: HashMap<FunctionId, Vec<InvocationId>> = HashMap::new();
        for (id, function) in self.records().waiting().await {
            of_functions.entry(function).or_default().push(id);
        }
        for (function, ids) in of_functions {
            let functions = self.clone();
            tokio::spawn(async move {
                // One call prepares what all of them need; each gets the error if that fails.
                drop(functions.find(&function).await);
                ids.into_iter().for_each(|id| functions.run_accepted(id, function.clone()));
            });
        }
        Ok(())
    }

    /// An asynchronous call.
    pub async fn invocation(
        &self,
        tenant: &Tenant,
        id: &InvocationId,
    ) -> Result<Invocation, ErrorReport> {
        let missing = || {
            ErrorReport::new(Code::INVOCATION_MISSING, format!("there is no invocation `{id}`"))
                .hint("only calls made with --async are kept, for as long as fn deploy --keep says")
        };
        let record = self.records().invocation(tenant, id).await?;
        let mut invocation = record.ok_or_else(missing)?.invocation;
        if invocation.state == InvocationState::Running {
            invocation.warnings.extend(self.waiting().trouble_of(id));
        }
        Ok(invocation)
    }

    /// The event stays in the store until it is this call's turn, so that many calls that wait
    /// take no memory.
    fn run_accepted(&self, id: InvocationId, function: FunctionId) {
        let functions = self.clone();
        tokio::spawn(async move {
            let [mut pause, longest] = AGAIN_AFTER;
            loop {
                let why = match functions.try_once(&id, &function).await {
                    Tried::Done => return,
                    Tried::Replaced => continue,
                    Tried::Again(why) => why,
                };
                tracing::warn!(call = %id, %function, error = %why, "will be tried again");
                functions.waiting().trouble(&id, Some(why));
                tokio::select! {
                    () = functions.waiting().stopping.cancelled() => return,
                    () = tokio::time::sleep(pause) => pause = (pause * 2).min(longest),
                }
            }
        });
    }

    /// Runs a call and stores its end.
    async fn try_once(&self, id: &InvocationId, function: &FunctionId) -> Tried {
        let live = match self.find(function).await {
            Ok(live) => live,
            Err(error) if is_platforms(&error) => return Tried::Again(error),
            Err(error) => return self.give_up(function, id, error).await,
        };
        let stopping = &self.waiting().stopping;
        let permit = tokio::select! {
            () = stopping.cancelled() => return Tried::Done,
            permit = live.permits.acquire() => permit,
        };
        let _running = Running::begin(self.waiting());
        // The server may have been asked to end in between.
        if permit.is_err() || stopping.is_cancelled() {
            return Tried::Done;
        }
        if !self.is_deployed(&live) {
            return Tried::Replaced;
        }
        let record = match self.records().invocation(&function.tenant, id).await {
            Ok(Some(record)) => record,
            Ok(None) => return Tried::Done,
            Err(error) => return Tried::Again(error),
        };
        let slot = match self.lease(&live).await {
            Err(error) if is_platforms(&error) => return Tried::Again(error),
            slot => slot,
        };
        let ended = self.run(&live, record.invocation, record.event, Some(slot)).await;
        match &ended.error {
            Some(error) if is_platforms(error) => Tried::Again(error.clone()),
            // The failure may be caused by the end of the platform.
            Some(_) if stopping.is_cancelled() => Tried::Done,
            _ => self.keep(function, ended, live.record.spec.options.keep_ms).await,
        }
    }

    /// Stores the end of a call that cannot be run.
    async fn give_up(&self, function: &FunctionId, id: &InvocationId, why: ErrorReport) -> Tried {
        match self.records().invocation(&function.tenant, id).await {
            Ok(Some(record)) => {
                let ended = failed(record.invocation, why);
                self.keep(function, ended, snowmelt_api::RESULT_KEPT_MS).await
            }
            Ok(None) => Tried::Done,
            Err(error) => Tried::Again(error),
        }
    }

    /// Stores the end of a call. A disk that is full must not make it run again.
    async fn keep(&self, function: &FunctionId, ended: Invocation, keep_ms: u64) -> Tried {
        let id = ended.id.clone();
        let record = InvocationRecord { invocation: ended, event: Box::default() };
        let [mut pause, longest] = AGAIN_AFTER;
        loop {
            let until_ms = now_ms().saturating_add(keep_ms);
            let stored = self.records().end(&function.tenant, &record, until_ms).await;
            let Err(error) = stored else { break };
            tracing::error!(call = %id, %error, "the end of a call cannot be stored");
            self.waiting().trouble(&id, Some(error));
            tokio::select! {
                () = self.waiting().stopping.cancelled() => return Tried::Done,
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(longest),
            }
        }
        self.waiting().trouble(&id, None);
        Tried::Done
    }
}

/// Whether the platform failed and not the function. One that breaks the protocol would do so each
/// time.
fn is_platforms(error: &ErrorReport) -> bool {
    let code = error.known_code();
    match code.exit {
        ExitClass::Platform => code != Code::PROTOCOL,
        ExitClass::Interrupted => true,
        ExitClass::Input | ExitClass::Usage | ExitClass::Timeout => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_failure_of_the_platform_is_a_reason_to_try_again() {
        let again = |code| is_platforms(&ErrorReport::new(code, ""));
        for code in [Code::SPAWNER_LOST, Code::SANDBOX_START, Code::DISK_FULL, Code::CANCELLED] {
            assert!(again(code), "{}", code.code);
        }
        let of_function = [Code::FUNCTION_RAISED, Code::FUNCTION_TIMEOUT, Code::FUNCTION_MISSING];
        for code in of_function.into_iter().chain([Code::FUNCTION_MEMORY, Code::PROTOCOL]) {
            assert!(!again(code), "{}", code.code);
        }
    }
}
