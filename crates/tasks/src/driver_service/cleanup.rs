//! Removes the objects of a query whose driver could not remove them.
//!
//! A worker does the removal, because the server has no client for S3.

use snowmelt_node::{Error, Result, WorkerLease, WorkerSpec};
use snowmelt_types::{ByteSize, Code, CpuMillis, ErrorReport, Report};
use snowmelt_wire::{
    Clean, Error as WireError, Frame, Kind, MAX_REQUEST_BYTES, read_frame_within, write_frame,
};
use tokio::net::UnixStream;

use super::nonblocking;
use crate::runner::{CLEANUP_TIMEOUT, END_REPORT_TIMEOUT, QueryRunner};

/// Removes the objects that a query has left, in a sandbox with a network. Call it when all
/// sandboxes of the query have ended.
///
/// # Errors
/// No sandbox could be started, or the store failed; a later query that uses the same location
/// removes what is left.
pub async fn clean(
    runner: &QueryRunner,
    clean: &Clean,
    memory: ByteSize,
) -> std::result::Result<(), ErrorReport> {
    let asked = tokio::time::timeout(CLEANUP_TIMEOUT, ask(runner, clean, memory)).await;
    let late = || ErrorReport::new(Code::STORAGE, "the objects were not removed in time");
    let frame = asked.map_err(|_| late())?.map_err(|error| error.report())?;
    if frame.kind == Kind::Failure {
        return Err(frame.parse().map_err(|error| error.report())?);
    }
    Ok(())
}

async fn ask(runner: &QueryRunner, clean: &Clean, memory: ByteSize) -> Result<Frame> {
    let lease = runner.admit(&WorkerSpec { memory, cpu: CpuMillis(1000), network: true }).await?;
    match answer(&lease, clean).await {
        Ok(frame) => {
            lease.give_back();
            Ok(frame)
        }
        Err(WireError::Closed | WireError::Io(_)) => Err(lost(&lease).await),
        Err(error) => Err(error.into()),
    }
}

async fn lost(lease: &WorkerLease) -> Error {
    let (end, output) = match lease.ended(END_REPORT_TIMEOUT).await {
        Some((outcome, output)) => (outcome.end.to_string(), output),
        None => ("was lost".to_owned(), Vec::new()),
    };
    let message = format!("the worker that removes objects {end}");
    Error::Report(Box::new(ErrorReport::new(Code::WORKER_LOST, message).excerpt(output)))
}

async fn answer(lease: &WorkerLease, clean: &Clean) -> snowmelt_wire::Result<Frame> {
    let mut socket: UnixStream = nonblocking(lease.connect()?)?;
    write_frame(&mut socket, &Frame::json(Kind::Clean, clean)?).await?;
    read_frame_within(&mut socket, MAX_REQUEST_BYTES).await?.ok_or(WireError::Closed)
}
