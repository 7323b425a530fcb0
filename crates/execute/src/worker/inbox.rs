//! Receives the inputs of a task: files, UDFs, outputs of other tasks, streams, the plan, the header.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use snowmelt_wire::{
    Error, FileGrant, Frame, FrameStream, HostOutputs, Kind, Result, Task, UdfGrant,
};

/// The inputs of a task.
pub(super) struct Inbox {
    pub(super) files: Vec<(FileGrant, File)>,
    pub(super) udfs: Vec<(UdfGrant, UnixStream)>,
    /// The outputs of other tasks, by task.
    pub(super) inputs: Vec<(u32, File)>,
    /// Connections to the outputs on other hosts.
    pub(super) hosts: Vec<(HostOutputs, UnixStream)>,
    /// Streams, by the task at the other end.
    pub(super) streams: Vec<(u32, UnixStream)>,
    pub(super) output: Option<File>,
    pub(super) scratch: Option<File>,
    pub(super) plan: Bytes,
    pub(super) task: Task,
}

/// Receives frames until the task's header, which is the last one. The first frame is already
/// received.
pub(super) fn receive(first: (Frame, Vec<OwnedFd>), stream: &mut FrameStream) -> Result<Inbox> {
    let mut files = Vec::new();
    let mut udfs = Vec::new();
    let mut plan = None;
    let mut inputs = Vec::new();
    let mut hosts = Vec::new();
    let mut streams = Vec::new();
    let mut output = None;
    let mut scratch = None;
    let mut next = Some(first);
    loop {
        let (frame, descriptors) = match next.take() {
            Some(first) => first,
            None => stream.receive_with()?,
        };
        match frame.kind {
            Kind::Files => files.extend(pair(&frame, descriptors)?),
            Kind::Udfs => udfs.extend(pair(&frame, descriptors)?),
            Kind::Inputs => inputs.extend(pair(&frame, descriptors)?),
            Kind::HostOutputs => hosts.extend(pair(&frame, descriptors)?),
            Kind::Streams => streams.extend(pair(&frame, descriptors)?),
            Kind::Output => output = descriptors.into_iter().next().map(File::from),
            Kind::Scratch => scratch = descriptors.into_iter().next().map(File::from),
            Kind::Plan => plan = Some(frame.payload),
            Kind::Task => {
                let task = frame.parse()?;
                let expected = "Plan";
                let plan = plan.ok_or(Error::Unexpected { found: Kind::Task, expected })?;
                return Ok(Inbox {
                    files,
                    udfs,
                    inputs,
                    hosts,
                    streams,
                    output,
                    scratch,
                    plan,
                    task,
                });
            }
            found => {
                let expected = "a grant, Plan or Task";
                return Err(Error::Unexpected { found, expected });
            }
        }
    }
}

/// Each grant of a frame with its descriptor, in order.
fn pair<G: DeserializeOwned, D: From<OwnedFd>>(
    frame: &Frame,
    descriptors: Vec<OwnedFd>,
) -> Result<Vec<(G, D)>> {
    let grants: Vec<G> = frame.parse()?;
    let found = descriptors.len();
    let expected = grants.len();
    if found != expected {
        return Err(Error::Descriptors { found, expected });
    }
    Ok(grants.into_iter().zip(descriptors.into_iter().map(D::from)).collect())
}
