//! The driver's side of the connection to a worker, after the platform has sent the task over it:
//! receives the results.

use std::os::unix::net::UnixStream;

use snowmelt_types::Report;
use snowmelt_wire::{
    Error as WireError, Frame, Kind, RequestFailure, TaskDone, TaskFailure, read_frame,
};

use crate::driver::{Attempt, TaskError};

/// Receives the frames of a task's worker until the task is done or has failed, and passes batches
/// and progress to `attempt`. Dropping the future closes the connection, which cancels the task.
///
/// # Errors
/// [`TaskError::Lost`] if the connection ends before the results are complete: the caller may know
/// a more precise reason (out of memory, exit) and should then return that. [`TaskError::Failed`]
/// with the worker's own report otherwise, or [`TaskError::LostInputs`] if it found outputs of other
/// tasks gone. A UDF whose instance ended gives `SM-0210`, one that did
/// not respond in time `SM-0212`: the caller knows how the instance ended.
pub async fn follow(
    socket: UnixStream,
    task: u32,
    attempt: &mut Attempt,
) -> Result<TaskDone, TaskError> {
    let receiving =
        socket.set_nonblocking(true).and_then(|()| tokio::net::UnixStream::from_std(socket));
    let mut receiving = receiving.map_err(|error| wire(task, error.into()))?;
    attempt.began();
    loop {
        let frame = read_frame(&mut receiving).await.map_err(|error| wire(task, error))?;
        let frame = frame.ok_or_else(|| wire(task, WireError::Closed))?;
        if let Some(done) = process(frame, task, attempt)? {
            return Ok(done);
        }
    }
}

/// Processes one frame; returns the worker's report if it is the last frame.
fn process(frame: Frame, task: u32, attempt: &mut Attempt) -> Result<Option<TaskDone>, TaskError> {
    match frame.kind {
        Kind::Schema | Kind::Batch => {
            attempt.result(frame).map_err(|error| TaskError::failed(error.report()))?;
        }
        Kind::Progress => {
            let progress = frame.parse().map_err(|error| wire(task, error))?;
            attempt.progress(&progress);
        }
        Kind::Done => return frame.parse().map(Some).map_err(|error| wire(task, error)),
        Kind::Failure => {
            let TaskFailure { report, lost } = frame.parse().map_err(|error| wire(task, error))?;
            return Err(match lost.is_empty() {
                true => TaskError::failed(report),
                false => TaskError::lost_inputs(lost, report),
            });
        }
        found => {
            let expected = "Schema, Batch, Progress, Done or Failure";
            return Err(wire(task, WireError::Unexpected { found, expected }));
        }
    }
    Ok(None)
}

fn wire(task: u32, error: WireError) -> TaskError {
    RequestFailure::of_worker(task, error).into()
}
