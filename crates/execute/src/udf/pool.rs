//! The connections to UDF instances, one for each function.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::datatypes::Schema;
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryPool};
use snowmelt_types::Report;
use snowmelt_udf::Client;
use snowmelt_wire::UdfUse;

use super::aggregate_pool::{AggregatePool, not_connected};
use super::repeats::Repeats;
use super::result_cache::CacheMemory;

/// The divisor of a task's memory, and the most bytes, for kept results of each deterministic
/// function.
const KEPT_SHARE: u64 = 16;
const KEPT_BYTES: u64 = 32 << 20;

/// The bytes of kept results of all functions that the driver calls. Its operators have no limit to
/// share them with.
const DRIVER_BYTES: usize = 32 << 20;

/// Connections by function, with statistics of the calls.
#[derive(Debug, Default)]
pub struct UdfPool {
    connections: RwLock<HashMap<String, Arc<MeasuredConnection>>>,
    // For kept results: the pool and the bytes for each function. Without it none are kept.
    memory: Option<(Arc<dyn MemoryPool>, usize)>,
    /// Connections of aggregate functions.
    pub(super) aggregates: AggregatePool,
}

/// A connection with statistics of its calls.
#[derive(Debug)]
struct MeasuredConnection {
    connection: Mutex<CallClient>,
    rows: AtomicU64,
    saved: AtomicU64,
    nanos: AtomicU64,
}

#[derive(Debug)]
struct CallClient {
    client: Client,
    // Of a deterministic function.
    repeats: Option<Repeats>,
    // DataFusion evaluates each occurrence of a volatile function. The last call is cached, so that
    // `select f(x), f(x) + 1` calls once: its arguments are the same arrays.
    last: Option<(Vec<ArrayRef>, ArrayRef)>,
}

impl UdfPool {
    /// A pool without connections.
    pub(crate) fn empty() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// The pool of a driver, whose connections come when it runs.
    pub fn of_driver() -> Arc<Self> {
        let memory: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(DRIVER_BYTES));
        Arc::new(Self { memory: Some((memory, DRIVER_BYTES / 2)), ..Self::default() })
    }

    /// A pool that keeps results of deterministic functions in a part of a task's memory.
    pub(crate) fn keeping(memory: Arc<dyn MemoryPool>, memory_bytes: u64) -> Arc<Self> {
        let each = (memory_bytes / KEPT_SHARE).min(KEPT_BYTES) as usize;
        Arc::new(Self { memory: Some((memory, each)), ..Self::default() })
    }

    /// Adds the connection of a function. If it is deterministic, `arguments` has their fields.
    pub(super) fn insert(&self, name: &str, client: Client, arguments: Option<&Schema>) {
        let room =
            || self.memory.as_ref().map(|(memory, each)| CacheMemory::of(memory, name, *each));
        let repeats = arguments.and_then(|arguments| Repeats::of(arguments, room()));
        let connection = Mutex::new(CallClient { client, repeats, last: None });
        let zero = AtomicU64::default;
        let connected =
            MeasuredConnection { connection, rows: zero(), saved: zero(), nanos: zero() };
        let mut connections = self.connections.write().unwrap_or_else(PoisonError::into_inner);
        connections.insert(name.to_owned(), Arc::new(connected));
    }

    /// The statistics of the calls, by UDF.
    pub fn used(&self) -> Vec<UdfUse> {
        let connections = self.connections.read().unwrap_or_else(PoisonError::into_inner);
        let used = |name: &String, connected: &MeasuredConnection| UdfUse {
            name: name.clone(),
            rows: connected.rows.load(Ordering::Relaxed),
            saved: connected.saved.load(Ordering::Relaxed),
            nanos: connected.nanos.load(Ordering::Relaxed),
        };
        let own = connections.iter().map(|(name, connected)| used(name, connected));
        own.chain(self.aggregates.used()).collect()
    }

    fn connected(&self, name: &str) -> Result<Arc<MeasuredConnection>, DataFusionError> {
        let connections = self.connections.read().unwrap_or_else(PoisonError::into_inner);
        // There are no connections during planning, so no function can be called then.
        connections.get(name).cloned().ok_or_else(|| not_connected(name))
    }

    /// Calls a table function for the first rows of a batch, which begins at the row `first` of a
    /// larger one. The result has the rows that one call answers. Blocks until they arrive.
    pub(super) fn call_part(
        &self,
        name: &str,
        batch: &RecordBatch,
        first: usize,
    ) -> Result<ArrayRef, DataFusionError> {
        let connected = self.connected(name)?;
        let began = Instant::now();
        let mut connection = connected.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let result = connection.client.call_part(batch, first);
        connected.nanos.fetch_add(began.elapsed().as_nanos() as u64, Ordering::Relaxed);
        let result = result.map_err(|error| DataFusionError::External(Box::new(error.report())))?;
        connected.rows.fetch_add(result.len() as u64, Ordering::Relaxed);
        Ok(result)
    }

    /// Calls a function with a batch of arguments. Blocks until the results arrive.
    pub(crate) fn call(
        &self,
        name: &str,
        batch: &RecordBatch,
    ) -> Result<ArrayRef, DataFusionError> {
        let connected = self.connected(name)?;
        let began = Instant::now();
        let mut connection = connected.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let rows = batch.num_rows() as u64;
        if let Some(result) = connection.cached(batch) {
            connected.saved.fetch_add(rows, Ordering::Relaxed);
            return Ok(result);
        }
        let CallClient { client, repeats, .. } = &mut *connection;
        let mut sent = 0;
        let mut send = |batch: &RecordBatch| {
            sent += batch.num_rows() as u64;
            client.call(batch)
        };
        let result = match repeats {
            Some(repeats) => repeats.call(batch, &mut send),
            None => send(batch),
        };
        connected.nanos.fetch_add(began.elapsed().as_nanos() as u64, Ordering::Relaxed);
        connected.rows.fetch_add(sent, Ordering::Relaxed);
        connected.saved.fetch_add(rows.saturating_sub(sent), Ordering::Relaxed);
        let result = result.map_err(|error| DataFusionError::External(Box::new(error.report())))?;
        connection.last = Some((batch.columns().to_vec(), Arc::clone(&result)));
        Ok(result)
    }

    /// Makes several calls, and returns their results in the same order. Calls of different
    /// functions are made at the same time, each by a thread that waits for its instance.
    pub(crate) fn call_together(
        &self,
        calls: &[(&str, &RecordBatch)],
    ) -> Result<Vec<ArrayRef>, DataFusionError> {
        let mut functions: Vec<(&str, Vec<usize>)> = Vec::new();
        for (index, (name, _)) in calls.iter().enumerate() {
            match functions.iter_mut().find(|(one, _)| one == name) {
                Some((_, indices)) => indices.push(index),
                None => functions.push((name, vec![index])),
            }
        }
        let Some(((_, own), others)) = functions.split_first() else { return Ok(Vec::new()) };
        let of_function = |indices: &[usize]| {
            let call = |index: &usize| (*index, self.call(calls[*index].0, calls[*index].1));
            indices.iter().map(call).collect::<Vec<_>>()
        };
        let mut results = std::thread::scope(|scope| {
            let mut late = Vec::new();
            let mut waiting = Vec::new();
            for (_, indices) in others {
                let waits = std::thread::Builder::new().name("udf".to_owned());
                match waits.spawn_scoped(scope, || of_function(indices)) {
                    Ok(thread) => waiting.push(thread),
                    // The sandbox has no room for another thread.
                    Err(_) => late.push(indices),
                }
            }
            let mut results = of_function(own);
            results.extend(late.into_iter().flat_map(|indices| of_function(indices)));
            for thread in waiting {
                match thread.join() {
                    Ok(found) => results.extend(found),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            results
        });
        results.sort_by_key(|(index, _)| *index);
        results.into_iter().map(|(_, result)| result).collect()
    }
}

impl CallClient {
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
