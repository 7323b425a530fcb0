//! Calls of functions on other hosts.
//!
//! Invariant: a call is sent again only if it is known not to have run.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use snowmelt_node::agent::api::{FunctionCall, FunctionEnd, PrepareFunction};
use snowmelt_types::{Code, Digest, ErrorReport, HostName};
use tokio::sync::OnceCell;

use super::Placements;
use crate::hosts::{AnswerRoom, Host, NotCalled};
use crate::live::Live;
use crate::sent_files;

/// How often a function is prepared on a host for one call: the host may have been started again.
const TRIES: usize = 2;

/// What became of a call on another host.
pub(crate) enum Ran {
    /// It has ended.
    Ended(Box<FunctionEnd>),
    /// The host has no room for it, or cannot be reached: it has not run.
    Not(ErrorReport),
}

/// Where functions are prepared.
#[derive(Debug, Default)]
pub(super) struct Prepared {
    // Held for a lookup only.
    cells: Mutex<Cells>,
}

/// Each is set once the function is prepared on the host.
type Cells = HashMap<HostName, HashMap<Digest, Arc<OnceCell<()>>>>;

impl Prepared {
    fn cell(&self, host: &HostName, function: &Digest) -> Arc<OnceCell<()>> {
        let mut cells = self.lock();
        let on_host = cells.entry(host.clone()).or_default();
        Arc::clone(on_host.entry(function.clone()).or_default())
    }

    /// The host does not have it any more.
    fn forget(&self, host: &HostName, function: &Digest, cell: &Arc<OnceCell<()>>) {
        if let Some(on_host) = self.lock().get_mut(host)
            && on_host.get(function).is_some_and(|known| Arc::ptr_eq(known, cell))
        {
            on_host.remove(function);
        }
    }

    pub fn forget_host(&self, host: &HostName) {
        self.lock().remove(host);
    }

    /// Forgets a function, and says where it was.
    fn forget_function(&self, function: &Digest) -> HashSet<HostName> {
        let mut cells = self.lock();
        let had = cells
            .iter_mut()
            .filter_map(|(host, on_host)| on_host.remove(function).map(|_| host.clone()));
        had.collect()
    }

    fn lock(&self) -> MutexGuard<'_, Cells> {
        self.cells.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Placements {
    /// Runs a call on another host, where the function is prepared first if it is not.
    ///
    /// # Errors
    /// The function cannot be prepared there; `SM-0712` if the host was lost while it ran the call.
    pub async fn call(
        &self,
        host: &Arc<Host>,
        live: &Live,
        call: &FunctionCall,
    ) -> Result<Ran, ErrorReport> {
        tokio::select! {
            ran = self.call_reachable(host, live, call) => ran,
            () = host.lost() => Err(lost(host, "it does not answer any more")),
        }
    }

    async fn call_reachable(
        &self,
        host: &Arc<Host>,
        live: &Live,
        call: &FunctionCall,
    ) -> Result<Ran, ErrorReport> {
        let function = &live.needs.function;
        for _ in 0..TRIES {
            let cell = self.inner.prepared.cell(&host.name, function);
            let preparing = cell.get_or_try_init(|| self.prepare(host, live, 0, 0));
            if let Err(error) = preparing.await {
                return match error.known_code() {
                    Code::HOST_STOPPED | Code::SERVER_UNREACHABLE => Ok(Ran::Not(error)),
                    _ => Err(error),
                };
            }
            let room = AnswerRoom { node: &self.inner.node, tenant: &live.record.tenant };
            match host.agent.call_function(function, call, room).await {
                Ok(end) => return Ok(Ran::Ended(Box::new(end))),
                Err(NotCalled::Absent) => self.inner.prepared.forget(&host.name, function, &cell),
                Err(NotCalled::NotRun(error)) => return Ok(Ran::Not(error)),
                Err(NotCalled::Unknown(error)) => return Err(lost(host, &error.message)),
                Err(NotCalled::Failed(error)) => return Err(error),
            }
        }
        let message = format!("{} forgets the function as soon as it is prepared", host.name);
        Ok(Ran::Not(ErrorReport::new(Code::FUNCTION_ABSENT, message)))
    }

    /// Has a host prepare a function, start so many instances now, and keep so many prewarmed.
    pub async fn prepare(
        &self,
        host: &Arc<Host>,
        live: &Live,
        start: u32,
        prewarmed: u32,
    ) -> Result<(), ErrorReport> {
        if let Some(program) = &live.code.program {
            sent_files::send(&self.inner.node, &program.files, host).await?;
        }
        let place = self.tree_place(&live.record, host);
        let order = PrepareFunction { function: live.code.clone(), place, start, prewarmed };
        host.agent.prepare_function(&live.needs.function, &order).await
    }

    /// Has all hosts end the idle instances of a function that was replaced or removed.
    pub fn forget(&self, live: &Live) {
        let function = live.needs.function.clone();
        let had = self.inner.prepared.forget_function(&function);
        let hosts: Vec<_> =
            self.lock().hosts.values().filter(|host| had.contains(&host.name)).cloned().collect();
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

fn lost(host: &Host, why: &str) -> ErrorReport {
    let message = format!("{} was lost while it ran the call: {why}", host.name);
    ErrorReport::new(Code::CALL_LOST, message)
        .hint("the function may have run; call it again if that does no harm")
}
