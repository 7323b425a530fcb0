//! The connections to UDF instances, one for each function.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;

use arrow::array::{Array, ArrayRef, RecordBatch};
use datafusion::error::DataFusionError;
use snowmelt_types::Report;
use snowmelt_udf::Client;
use snowmelt_wire::UdfUse;

use super::aggregate_pool::{AggregatePool, not_connected};

/// Connections by function, with statistics of the calls.
#[derive(Debug, Default)]
pub(crate) struct UdfPool {
    connections: RwLock<HashMap<String, Arc<Connected>>>,
    /// Those of aggregate functions.
    pub(super) aggregates: AggregatePool,
}

/// A connection with statistics of its calls.
#[derive(Debug)]
struct Connected {
    connection: Mutex<Connection>,
    rows: AtomicU64,
    nanos: AtomicU64,
}

#[derive(Debug)]
struct Connection {
    client: Client,
    // DataFusion evaluates each occurrence of a volatile function. The last call is cached, so that
    // `select f(x), f(x) + 1` calls once: its arguments are the same arrays.
    last: Option<(Vec<ArrayRef>, ArrayRef)>,
}

impl UdfPool {
    /// A pool without connections.
    pub(crate) fn empty() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// Adds the connection of a function.
    pub(super) fn insert(&self, name: &str, client: Client) {
        let connection = Mutex::new(Connection { client, last: None });
        let connected = Connected { connection, rows: 0.into(), nanos: 0.into() };
        let mut connections = self.connections.write().unwrap_or_else(PoisonError::into_inner);
        connections.insert(name.to_owned(), Arc::new(connected));
    }

    /// The statistics of the calls, by UDF.
    pub(crate) fn used(&self) -> Vec<UdfUse> {
        let connections = self.connections.read().unwrap_or_else(PoisonError::into_inner);
        let used = |(name, connected): (&String, &Arc<Connected>)| UdfUse {
            name: name.clone(),
            rows: connected.rows.load(Ordering::Relaxed),
            nanos: connected.nanos.load(Ordering::Relaxed),
        };
        connections.iter().map(used).chain(self.aggregates.used()).collect()
    }

    /// Calls a function with a batch of arguments. Blocks until the results arrive.
    pub(crate) fn call(
        &self,
        name: &str,
        batch: &RecordBatch,
    ) -> Result<ArrayRef, DataFusionError> {
        let connections = self.connections.read().unwrap_or_else(PoisonError::into_inner);
        let connected = connections.get(name).cloned();
        drop(connections);
        // There are no connections during planning, so no function can be called then.
        let connected = connected.ok_or_else(|| not_connected(name))?;
        let began = Instant::now();
        let mut connection = connected.connection.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(result) = connection.cached(batch) {
            return Ok(result);
        }
        let result = connection.client.call(batch);
        connected.nanos.fetch_add(began.elapsed().as_nanos() as u64, Ordering::Relaxed);
        connected.rows.fetch_add(batch.num_rows() as u64, Ordering::Relaxed);
        let result = result.map_err(|error| DataFusionError::External(Box::new(error.report())))?;
        connection.last = Some((batch.columns().to_vec(), Arc::clone(&result)));
        Ok(result)
    }
}

impl Connection {
    fn cached(&self, batch: &RecordBatch) -> Option<ArrayRef> {
        let (arguments, result) = self.last.as_ref()?;
        let same = |(a, b): (&ArrayRef, &ArrayRef)| a.to_data().ptr_eq(&b.to_data());
        // A function without arguments is always called: it may return another value.
        let same_arguments = !arguments.is_empty()
            && arguments.len() == batch.num_columns()
            && arguments.iter().zip(batch.columns()).all(same);
        same_arguments.then(|| Arc::clone(result))
    }
}
