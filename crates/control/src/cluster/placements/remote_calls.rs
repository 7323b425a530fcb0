//! Calls of functions on other hosts, and leases of instances there.
//!
//! Invariant: a call is sent again only if it is known not to have run.

use std::sync::Arc;
use std::time::Duration;

use snowmelt_node::LOAD_LIMIT;
use snowmelt_schedule::CallDemand;
use snowmelt_tasks::agent::api::{FunctionCall, FunctionEnd, PrepareFunction};
use snowmelt_tasks::peers::Peer;
use snowmelt_tasks::remote::leases::{FarInstance, FarLease, NotLeased};
use snowmelt_types::{Code, Digest, ErrorReport};

use super::preparations::PreparationCell;
use super::{Callee, FunctionTransfer, Inner, Placements};
use crate::cluster::files;
use crate::cluster::hosts::{AnswerRoom, ClusterHost, NotCalled};

/// How often a function is prepared on a host for one call: the host may have been started again.
const TRIES: usize = 2;

/// How long a host may take beyond the limits of a call and of its load: it reports to control by
/// another thread than the one that answers.
const SLACK: Duration = Duration::from_secs(60);

const MAY_HAVE_RUN: &str = "the function may have run; call it again if that does no harm";

/// The outcome of a call or a lease on another host.
pub(crate) enum Ran<T> {
    /// The call has ended, or the lease has begun.
    Done(T),
    /// The call has not run, or the lease has not begun.
    Not {
        /// The error of the host.
        error: Box<ErrorReport>,
        /// True if the host could not prepare the function or start an instance; false if it has no
        /// room or cannot be reached.
        failed: bool,
    },
}

impl Placements {
    /// Runs a call on another host. The function is prepared there first, if it is not prepared
    /// yet.
    ///
    /// # Errors
    /// The function cannot be prepared there, for a reason that is its own; `SM-0712` if the host was
    /// lost while it ran the call, `SM-0715` if only the connection broke.
    pub async fn call(
        &self,
        host: &Arc<ClusterHost>,
        callee: Callee<'_>,
        call: &FunctionCall,
    ) -> Result<Ran<FunctionEnd>, ErrorReport> {
        let CallDemand { function, tenant, .. } = &**callee.needs;
        for _ in 0..TRIES {
            let cell = self.inner.prepared.cell(&host.name, function);
            if let Err(error) = self.prepared(host, callee, &cell).await {
                return not_run(error);
            }
            let room = AnswerRoom { node: &self.inner.node, tenant };
            let limit = Duration::from_millis(call.timeout_ms) + LOAD_LIMIT + SLACK;
            let calling = host.agent.call_function(function, call, room);
            let called = tokio::select! {
                called = tokio::time::timeout(limit, calling) => match called {
                    Ok(called) => called,
                    Err(_) => return Err(lost(host, &format!("it does not answer within {limit:?}"))),
                },
                () = host.lost() => return Err(lost(host, &gone(host).message)),
            };
            match called {
                Ok(end) => return Ok(Ran::Done(end)),
                Err(NotCalled::Absent) => self.inner.prepared.forget(&host.name, function, &cell),
                Err(NotCalled::NotRun(error)) => return Ok(not(error, false)),
                Err(NotCalled::Unknown(error)) => {
                    return Err(unanswered(host, &error.message).await);
                }
                Err(NotCalled::Failed(error)) => return not_run(error),
            }
        }
        Ok(forgets(host))
    }

    /// Leases an instance on another host. The function is prepared there first, if it is not
    /// prepared yet.
    ///
    /// # Errors
    /// The function cannot be prepared or loaded there, for a reason that is its own.
    pub async fn lease(
        &self,
        host: &Arc<ClusterHost>,
        callee: Callee<'_>,
    ) -> Result<Ran<FarLease>, ErrorReport> {
        let function = &callee.needs.function;
        let name = callee.whose.function;
        for _ in 0..TRIES {
            let cell = self.inner.prepared.cell(&host.name, function);
            if let Err(error) = self.prepared(host, callee, &cell).await {
                return not_run(error);
            }
            let peer = Arc::clone(host) as Arc<dyn Peer>;
            let error = match FarInstance::lease(peer, function, name, LOAD_LIMIT + SLACK).await {
                Ok(lease) => return Ok(Ran::Done(lease)),
                Err(NotLeased::Unreachable(error)) => return Ok(not(error, false)),
                Err(NotLeased::Refused(error)) => error,
            };
            match NotCalled::answered(error) {
                NotCalled::Absent => self.inner.prepared.forget(&host.name, function, &cell),
                NotCalled::NotRun(error) => return Ok(not(error, false)),
                NotCalled::Unknown(error) | NotCalled::Failed(error) => return not_run(error),
            }
        }
        Ok(forgets(host))
    }

    /// Has a host prepare a function, unless the host has prepared it already.
    async fn prepared(
        &self,
        host: &Arc<ClusterHost>,
        callee: Callee<'_>,
        cell: &PreparationCell,
    ) -> Result<(), ErrorReport> {
        let preparing = cell.get_or_try_init(|| self.prepare(host, callee, 0, None));
        tokio::select! {
            prepared = preparing => prepared.map(|_| ()),
            () = host.lost() => Err(gone(host)),
        }
    }

    /// Has a host prepare a function and start a number of instances now. The host keeps a number
    /// of instances prewarmed from now on: the given one, or as many as before.
    pub async fn prepare(
        &self,
        host: &Arc<ClusterHost>,
        callee: Callee<'_>,
        start: u32,
        prewarmed: Option<u32>,
    ) -> Result<(), ErrorReport> {
        let function = &callee.needs.function;
        let Some(FunctionTransfer { code, secrets, tree }) = callee.sent else {
            let name = callee.whose.function;
            let message = format!("`{name}` cannot be sent to {}", host.name);
            return Err(ErrorReport::new(Code::INTERNAL, message));
        };
        if let Some(program) = &code.program {
            files::send(&self.inner.node, &program.files, host).await?;
        }
        let Inner { node, trees, hosts, .. } = &*self.inner;
        let on = std::slice::from_ref(host);
        let files = files::shared(node, trees, hosts, code, on).await?;
        // Control's own host has a place already, as it prepares each function first.
        let place = tree.and_then(|tree| trees.place(tree, hosts, on).pop());
        let order = PrepareFunction {
            function: code.clone(),
            place,
            files: files.into_iter().flatten().collect(),
            secrets: secrets.cloned().unwrap_or_default(),
            start,
            prewarmed,
        };
        host.agent.prepare_function(function, &order).await?;
        if prewarmed.is_some() {
            self.lock().scheduler.keep(&host.name, function);
        }
        Ok(())
    }

    /// Has all hosts end the idle instances of a function that was replaced or removed.
    pub fn forget(&self, function: &Digest) {
        self.inner.prepared.forget_function(function);
        // Also those that an earlier control has had prepare it.
        let hosts: Vec<_> = {
            let mut state = self.lock();
            state.scheduler.forget(function);
            state.hosts.values().filter(|host| !host.is_local()).cloned().collect()
        };
        for host in hosts {
            let function = function.clone();
            tokio::spawn(async move {
                // One that does not hear of it ends them when their idle time is over.
                if let Err(error) = host.agent.forget_function(&function).await {
                    tracing::debug!(host = %host.name, %error, "a host keeps a function");
                }
            });
        }
    }
}

/// Decides what follows from an error before the call has run: an error of the platform may be one
/// of this host only, so that another host may run the call.
fn not_run<T>(error: ErrorReport) -> Result<Ran<T>, ErrorReport> {
    match error.known_code() {
        Code::HOST_STOPPED | Code::SERVER_UNREACHABLE => Ok(not(error, false)),
        _ if error.retryable => Ok(not(error, true)),
        _ => Err(error),
    }
}

fn not<T>(error: ErrorReport, failed: bool) -> Ran<T> {
    Ran::Not { error: Box::new(error), failed }
}

fn forgets<T>(host: &ClusterHost) -> Ran<T> {
    let message = format!("{} forgets the function as soon as it is prepared", host.name);
    let error = ErrorReport::new(Code::FUNCTION_ABSENT, message);
    not(error, true)
}

fn gone(host: &ClusterHost) -> ErrorReport {
    ErrorReport::new(Code::SERVER_UNREACHABLE, format!("{} does not answer any more", host.name))
}

/// Makes the error of a call that has no answer.
async fn unanswered(host: &ClusterHost, why: &str) -> ErrorReport {
    if !host.is_there().await {
        return lost(host, why);
    }
    let message = format!("the connection to {} broke while it ran the call: {why}", host.name);
    ErrorReport::new(Code::CONNECTION_LOST, message).hint(MAY_HAVE_RUN)
}

fn lost(host: &ClusterHost, why: &str) -> ErrorReport {
    let message = format!("{} was lost while it ran the call: {why}", host.name);
    ErrorReport::new(Code::CALL_LOST, message).hint(MAY_HAVE_RUN)
}

/// Returns whether a call may have run, but nobody has its answer: its instance ends then.
pub(crate) fn is_unanswered(error: &ErrorReport) -> bool {
    matches!(error.known_code(), Code::CALL_LOST | Code::CONNECTION_LOST)
}
