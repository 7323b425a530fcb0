//! Sends a task to a worker: plan, open files and connections, and the header last.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use crate::{
    FileGrant, Frame, FrameStream, HostOutputs, Kind, MAX_DESCRIPTORS, Result, Task, UdfGrant,
};

/// The files and connections of one task. The descriptors are sent and then closed here.
#[derive(Debug, Default)]
pub struct Grants {
    /// The task's files, opened for reading.
    pub files: Vec<(FileGrant, OwnedFd)>,
    /// Connections to instances of the task's UDFs, loaded and ready.
    pub udfs: Vec<(UdfGrant, OwnedFd)>,
    /// The outputs that the task reads, by task, opened for reading.
    pub inputs: Vec<(u32, OwnedFd)>,
    /// The outputs on other hosts that the task reads, each with a connection to the host.
    pub hosts: Vec<(HostOutputs, OwnedFd)>,
    /// The file for the task's own output.
    pub output: Option<OwnedFd>,
    /// The task's streams, by the task at the other end.
    pub streams: Vec<(u32, OwnedFd)>,
    /// The file for what does not fit into the task's memory.
    pub scratch: Option<OwnedFd>,
}

/// A connection to an instance of a UDF which has answered `Load` with `Ready`.
#[derive(Debug)]
pub struct UdfConnection {
    /// The connected socket, in blocking mode.
    pub socket: UnixStream,
    /// The time limit for one batch; zero means no limit.
    pub timeout: Duration,
}

/// Sends everything that a task needs to the worker at the other end of `socket`, a fresh
/// connection in blocking mode. The driver then receives the task's frames over this connection.
///
/// # Errors
/// The connection ends.
pub async fn hand_over(
    socket: UnixStream,
    grants: Grants,
    plan: Bytes,
    task: &Task,
) -> Result<UnixStream> {
    let header = Frame::json(Kind::Task, task)?;
    let handed = tokio::task::spawn_blocking(move || send(socket, grants, plan, &header));
    handed.await.map_err(std::io::Error::other)?
}

fn send(socket: UnixStream, grants: Grants, plan: Bytes, header: &Frame) -> Result<UnixStream> {
    let mut stream = FrameStream::new(socket);
    send_grants(&mut stream, Kind::Files, &grants.files)?;
    send_grants(&mut stream, Kind::Udfs, &grants.udfs)?;
    send_grants(&mut stream, Kind::Inputs, &grants.inputs)?;
    send_grants(&mut stream, Kind::HostOutputs, &grants.hosts)?;
    send_grants(&mut stream, Kind::Streams, &grants.streams)?;
    if let Some(output) = &grants.output {
        stream.send_with(Kind::Output, &[], &[output.as_fd()])?;
    }
    if let Some(scratch) = &grants.scratch {
        stream.send_with(Kind::Scratch, &[], &[scratch.as_fd()])?;
    }
    stream.send(&Frame::new(Kind::Plan, plan))?;
    stream.send(header)?;
    Ok(stream.into_inner())
}

fn send_grants<G: Serialize>(
    stream: &mut FrameStream,
    kind: Kind,
    grants: &[(G, OwnedFd)],
) -> Result<()> {
    for chunk in grants.chunks(MAX_DESCRIPTORS) {
        let names: Vec<&G> = chunk.iter().map(|(grant, _)| grant).collect();
        let descriptors: Vec<BorrowedFd<'_>> = chunk.iter().map(|(_, fd)| fd.as_fd()).collect();
        stream.send_with(kind, &Frame::json(kind, &names)?.payload, &descriptors)?;
    }
    Ok(())
}
