//! The other side of a worker's connection: the node hands a task over, the driver takes what
//! comes back.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use bytes::Bytes;
use serde::Serialize;
use snowmelt_types::{Code, ErrorReport, Report};
use snowmelt_wire::{
    Error as WireError, FileGrant, Frame, FrameStream, Kind, MAX_DESCRIPTORS, Task, TaskDone,
    UdfGrant, read_frame,
};

use crate::driver::{Attempt, TaskError};

/// What a worker may use for one task. The descriptors are sent and then closed here.
#[derive(Debug, Default)]
pub struct Grants {
    /// The task's files, opened for reading.
    pub files: Vec<(FileGrant, OwnedFd)>,
    /// Connections to instances of the task's UDFs, loaded and ready.
    pub udfs: Vec<(UdfGrant, OwnedFd)>,
}

/// Sends everything that the task needs, its header last. The connection is then ready for
/// [`follow`], in this process or in another.
///
/// # Errors
/// [`TaskError::Lost`] if the connection ends.
pub async fn hand_over(
    socket: UnixStream,
    grants: Grants,
    plan: Bytes,
    task: &Task,
) -> Result<UnixStream, TaskError> {
    let header = Frame::json(Kind::Task, task).map_err(|error| wire(task.task, error))?;
    let handed = tokio::task::spawn_blocking(move || send(socket, grants, plan, &header));
    match handed.await {
        Ok(handed) => handed.map_err(|error| wire(task.task, error)),
        Err(panicked) => Err(internal(panicked.to_string())),
    }
}

/// Takes what the worker of a task posts until it is done or has failed: batches and progress go to
/// `attempt`. Dropping the future closes the connection, which cancels the task.
///
/// # Errors
/// [`TaskError::Lost`] if the connection ends before the results are complete: the caller may know
/// better why (out of memory, exit) and should then say so instead. [`TaskError::Failed`] with the
/// worker's own report otherwise. A UDF whose instance ended gives `SM-0210`, one that did not
/// answer in time `SM-0212`: the caller knows how the instance ended.
pub async fn follow(
    socket: UnixStream,
    task: u32,
    attempt: &mut Attempt,
) -> Result<TaskDone, TaskError> {
    let receiving =
        socket.set_nonblocking(true).and_then(|()| tokio::net::UnixStream::from_std(socket));
    let mut receiving = receiving.map_err(|error| wire(task, error.into()))?;
    loop {
        let frame = read_frame(&mut receiving).await.map_err(|error| wire(task, error))?;
        let frame = frame.ok_or_else(|| wire(task, WireError::Closed))?;
        if let Some(done) = take(frame, task, attempt)? {
            return Ok(done);
        }
    }
}

fn send(
    socket: UnixStream,
    grants: Grants,
    plan: Bytes,
    header: &Frame,
) -> Result<UnixStream, WireError> {
    let mut stream = FrameStream::new(socket);
    send_grants(&mut stream, Kind::Files, &grants.files)?;
    send_grants(&mut stream, Kind::Udfs, &grants.udfs)?;
    stream.send(&Frame::new(Kind::Plan, plan))?;
    stream.send(header)?;
    Ok(stream.into_inner())
}

fn send_grants<G: Serialize>(
    stream: &mut FrameStream,
    kind: Kind,
    grants: &[(G, OwnedFd)],
) -> Result<(), WireError> {
    for chunk in grants.chunks(MAX_DESCRIPTORS) {
        let names: Vec<&G> = chunk.iter().map(|(grant, _)| grant).collect();
        let descriptors: Vec<BorrowedFd<'_>> = chunk.iter().map(|(_, fd)| fd.as_fd()).collect();
        stream.send_with(kind, &Frame::json(kind, &names)?.payload, &descriptors)?;
    }
    Ok(())
}

/// Takes one frame; gives the worker's report when it is the last.
fn take(frame: Frame, task: u32, attempt: &mut Attempt) -> Result<Option<TaskDone>, TaskError> {
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
            let report: ErrorReport = frame.parse().map_err(|error| wire(task, error))?;
            return Err(TaskError::failed(report));
        }
        found => {
            let expected = "Schema, Batch, Progress, Done or Failure";
            return Err(wire(task, WireError::Unexpected { found, expected }));
        }
    }
    Ok(None)
}

/// A connection that ended is a lost worker; one that broke the protocol would do so again.
fn wire(task: u32, error: WireError) -> TaskError {
    match error {
        WireError::Closed | WireError::Io(_) => {
            let message = format!("the worker of task {task} was lost: {error}");
            TaskError::lost(ErrorReport::new(Code::WORKER_LOST, message))
        }
        other => TaskError::failed(other.report()),
    }
}

fn internal(why: String) -> TaskError {
    TaskError::failed(ErrorReport::new(Code::INTERNAL, why))
}
