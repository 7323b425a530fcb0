//! The hosts on which functions are prepared, and how a host is reclaimed from a function.
//!
//! Invariant: a function is prepared on a host by one request at a time, and not while the host is
//! being told to forget it: a call that comes meanwhile waits, and has it prepared again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use snowmelt_types::{Digest, ErrorReport, HostName};
use tokio::sync::OnceCell;

use crate::cluster::hosts::ClusterHost;

/// The preparations of functions on hosts.
#[derive(Debug, Default)]
pub(super) struct Preparations {
    // Held for a lookup only.
    cells: Mutex<Cells>,
}

/// A cell for each host and function, which is set once the function is prepared on the host.
type Cells = HashMap<HostName, HashMap<Digest, PreparationCell>>;

pub(super) type PreparationCell = Arc<OnceCell<()>>;

/// The result of having a host forget a function: until it is known, the cell stays empty. An error
/// if the host does not answer.
type ForgetResult = Result<(), ErrorReport>;

impl Preparations {
    pub fn cell(&self, host: &HostName, function: &Digest) -> PreparationCell {
        let mut cells = self.lock();
        let on_host = cells.entry(host.clone()).or_default();
        Arc::clone(on_host.entry(function.clone()).or_default())
    }

    /// Forgets that a host has a function prepared.
    pub fn forget(&self, host: &HostName, function: &Digest, cell: &PreparationCell) {
        if let Some(on_host) = self.lock().get_mut(host)
            && on_host.get(function).is_some_and(|known| Arc::ptr_eq(known, cell))
        {
            on_host.remove(function);
        }
    }

    pub fn forget_host(&self, host: &HostName) {
        self.lock().remove(host);
    }

    pub fn forget_function(&self, function: &Digest) {
        self.lock().values_mut().for_each(|on_host| drop(on_host.remove(function)));
    }

    /// Has calls that come from now on prepare a function again on a host.
    pub fn renew(&self, host: &HostName, function: &Digest) -> PreparationCell {
        let cell = PreparationCell::default();
        let mut cells = self.lock();
        cells.entry(host.clone()).or_default().insert(function.clone(), Arc::clone(&cell));
        cell
    }

    /// Tells a host to forget a function of a renewed cell, unless a call has had it prepared again
    /// before. Calls that come meanwhile wait.
    pub async fn take_back(
        &self,
        host: &ClusterHost,
        function: &Digest,
        cell: &PreparationCell,
    ) -> ForgetResult {
        let telling = async {
            tracing::debug!(host = %host.name, function = function.short(), "taken back");
            Err(host.agent.forget_function(function).await)
        };
        let taken = match cell.get_or_try_init(|| telling).await {
            Ok(_) => return Ok(()),
            Err(taken) => taken,
        };
        let mut cells = self.lock();
        // Nobody waits for it: the map and this request alone hold it.
        if Arc::strong_count(cell) <= 2
            && let Some(on_host) = cells.get_mut(&host.name)
            && on_host.get(function).is_some_and(|known| Arc::ptr_eq(known, cell))
        {
            on_host.remove(function);
        }
        taken
    }

    fn lock(&self) -> MutexGuard<'_, Cells> {
        self.cells.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;
    use crate::cluster::hosts::fake::FakeHost;

    #[tokio::test]
    async fn a_call_that_comes_while_a_host_forgets_prepares_after_it() {
        let (fake, host) = FakeHost { slow_to_forget: true, ..FakeHost::default() }.named("far");
        let prepared = Preparations::default();
        let function = Digest::of("f");
        prepared.cell(&host.name, &function).set(()).unwrap();

        let cell = prepared.renew(&host.name, &function);
        let mut taking = Box::pin(prepared.take_back(&host, &function, &cell));
        assert!((&mut taking).now_or_never().is_none());
        let call = prepared.cell(&host.name, &function);
        let mut preparing = Box::pin(call.get_or_try_init(|| async { Ok::<_, ErrorReport>(()) }));
        assert!((&mut preparing).now_or_never().is_none(), "it waits");
        fake.changed.notify_one();
        taking.await.unwrap();
        preparing.await.unwrap();
        assert_eq!(fake.asked(), ["forget"]);
        assert!(prepared.cell(&host.name, &function).initialized());
    }

    #[tokio::test]
    async fn a_host_keeps_what_a_call_has_prepared_again_before() {
        let (fake, host) = FakeHost::default().named("far");
        let prepared = Preparations::default();
        let function = Digest::of("f");
        let cell = prepared.renew(&host.name, &function);
        prepared.cell(&host.name, &function).set(()).unwrap();
        prepared.take_back(&host, &function, &cell).await.unwrap();
        assert!(fake.asked().is_empty());
        assert!(prepared.cell(&host.name, &function).initialized());
        // Without a call nothing is left.
        let cell = prepared.renew(&host.name, &function);
        prepared.take_back(&host, &function, &cell).await.unwrap();
        assert_eq!(fake.asked(), ["forget"]);
        assert!(prepared.lock()[&host.name].is_empty());
    }
}
