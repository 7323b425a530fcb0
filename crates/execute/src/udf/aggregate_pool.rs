//! The connections to instances of aggregate functions, one for each function.
//!
//! All operators of a task that call a function use one instance. Each operator has an accumulator
//! of its own there.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;

use datafusion::error::DataFusionError;
use snowmelt_types::{Code, ErrorReport, Report};
use snowmelt_udf::{AggregateClient, CallError};
use snowmelt_wire::UdfUse;

/// Connections by function, with statistics of the calls.
#[derive(Debug, Default)]
pub(crate) struct AggregatePool {
    connections: RwLock<HashMap<String, Arc<AggregateConnection>>>,
    accumulators: AtomicU64,
}

#[derive(Debug)]
struct AggregateConnection {
    client: Mutex<AggregateClient>,
    // Accumulators that have ended since the last call. Who drops one does not wait for a call.
    forgotten: Mutex<Vec<u64>>,
    rows: AtomicU64,
    nanos: AtomicU64,
}

impl AggregatePool {
    /// Adds the connection of a function.
    pub(super) fn insert(&self, name: &str, client: AggregateClient) {
        let connected = AggregateConnection {
            client: Mutex::new(client),
            forgotten: Mutex::default(),
            rows: 0.into(),
            nanos: 0.into(),
        };
        let mut connections = self.connections.write().unwrap_or_else(PoisonError::into_inner);
        connections.insert(name.to_owned(), Arc::new(connected));
    }

    /// The number of a new accumulator.
    pub(super) fn next_accumulator(&self) -> u64 {
        self.accumulators.fetch_add(1, Ordering::Relaxed)
    }

    /// Lets the instance drop the states of an accumulator.
    pub(super) fn forget(&self, name: &str, accumulator: u64) {
        if let Some(connected) = self.connected(name) {
            let mut forgotten = connected.forgotten.lock().unwrap_or_else(PoisonError::into_inner);
            forgotten.push(accumulator);
        }
    }

    /// Calls a function, for a number of rows. Blocks until the answer arrives.
    pub(super) fn call<T>(
        &self,
        name: &str,
        rows: u64,
        call: impl FnOnce(&mut AggregateClient) -> Result<T, CallError>,
    ) -> Result<T, DataFusionError> {
        // There are no connections during planning, so no function can be called then.
        let connected = self.connected(name).ok_or_else(|| not_connected(name))?;
        let began = Instant::now();
        let mut client = connected.client.lock().unwrap_or_else(PoisonError::into_inner);
        let mut forgotten = connected.forgotten.lock().unwrap_or_else(PoisonError::into_inner);
        client.forget(forgotten.drain(..));
        drop(forgotten);
        let result = call(&mut client);
        connected.nanos.fetch_add(began.elapsed().as_nanos() as u64, Ordering::Relaxed);
        connected.rows.fetch_add(rows, Ordering::Relaxed);
        result.map_err(|error| DataFusionError::External(Box::new(error.report())))
    }

    /// The statistics of the calls, by function.
    pub(super) fn used(&self) -> Vec<UdfUse> {
        let connections = self.connections.read().unwrap_or_else(PoisonError::into_inner);
        let used = |name: &String, connected: &AggregateConnection| UdfUse {
            name: name.clone(),
            rows: connected.rows.load(Ordering::Relaxed),
            saved: 0,
            nanos: connected.nanos.load(Ordering::Relaxed),
        };
        connections.iter().map(|(name, connected)| used(name, connected)).collect()
    }

    fn connected(&self, name: &str) -> Option<Arc<AggregateConnection>> {
        let connections = self.connections.read().unwrap_or_else(PoisonError::into_inner);
        connections.get(name).cloned()
    }
}

/// The error for a call without a connection.
pub(super) fn not_connected(name: &str) -> DataFusionError {
    let message = format!("no instance of `{name}` is connected");
    DataFusionError::External(Box::new(ErrorReport::new(Code::INTERNAL, message)))
}
