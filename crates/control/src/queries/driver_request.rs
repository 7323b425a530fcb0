//! The message that starts a driver: statement, tables, options, and numbers of workers and threads.

use std::time::Instant;

use snowmelt_api::QueryRequest;
use snowmelt_types::{Code, ErrorReport, micros};
use snowmelt_wire::Drive;

use crate::udfs::UdfSet;

/// The most threads of a driver: it reads footers and merges, which workers did most of already.
const DRIVER_THREADS: u32 = 4;

/// How often a task is run again after its worker was lost.
const RETRIES: u32 = 2;

/// The most workers of one query.
const MAX_WORKERS: u32 = 4096;

/// Returns the requested number of workers, or one for each core of all hosts.
pub(super) fn workers(asked: u32, all_cores: u32) -> Result<u32, ErrorReport> {
    if asked > MAX_WORKERS {
        let message = format!("{asked} workers are more than one query may have");
        return Err(ErrorReport::new(Code::OPTION, message)
            .hint(format!("use at most {MAX_WORKERS} (--workers)")));
    }
    Ok(if asked == 0 { all_cores.clamp(1, MAX_WORKERS) } else { asked })
}

/// Returns the number of threads of a driver on this host.
pub(super) fn driver_threads() -> u32 {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
    DRIVER_THREADS.min(cores)
}

/// Returns the message that starts a driver, but for what the node decides.
pub(super) fn drive(
    request: &QueryRequest,
    query: String,
    udfs: &UdfSet,
    workers: u32,
    accepted: Instant,
) -> Drive {
    Drive {
        query,
        sql: request.sql.clone(),
        params: request.params.clone(),
        tables: request.tables.clone(),
        csv: request.csv.clone(),
        udfs: udfs.signatures.clone(),
        aws: request.aws.clone(),
        workers,
        scan_task_bytes: request.options.scan_task.bytes(),
        threads: driver_threads(),
        retries: RETRIES,
        exchange: request.options.exchange.clone(),
        prices: request.options.prices.clone(),
        packages_us: if udfs.signatures.is_empty() { 0 } else { micros(accepted.elapsed()) },
        hosts: 1,
        // What the node decides.
        ..Drive::default()
    }
}
