//! Streams between the tasks of a gang: socket pairs where both tasks are on this host, and
//! connections between the agents where the tasks are on two hosts.
//!
//! The host of a task that sends connects to the host of the task that receives. Each stream has a
//! connection of its own, so that a receiver that does not read keeps nobody else waiting. A worker
//! does not get the connection itself: with it, the worker could connect to anything that this host
//! reaches.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{self, StreamExt, TryStreamExt};
use rustix::net::sockopt::set_socket_send_buffer_size;
use snowmelt_rpc::HostStream;
use snowmelt_types::{Code, ErrorReport, HostName, Report};
use snowmelt_wire::{Error as WireError, Frame, Kind, read_frame_within, write_frame};
use tokio::net::UnixStream;

use super::pass_on::{bounded, inward, outward, prepare_to_receive, prepare_to_send};
use crate::peers::messages::{GangLinks, NotConnected, OpenStream, RelativeHost, StreamOpened};
use crate::peers::stream_ends::{StreamEnds, StreamStore};

/// How long the other host may take to open a stream: it only looks the task up.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);

/// The most connections that are opened at a time.
const AT_A_TIME: usize = 32;

/// The most bytes of a message about a stream.
const MAX_MESSAGE: u32 = 64 << 10;

/// A function that opens a connection for a stream to a host.
pub(crate) type StreamDialer<'d> =
    dyn Fn(RelativeHost) -> BoxFuture<'d, Result<HostStream, ErrorReport>> + Send + Sync + 'd;

/// Connects the tasks of a gang that send from this host with all tasks that receive.
pub(crate) async fn connect(
    ends: &StreamEnds,
    query: &str,
    links: &GangLinks,
    dial: &StreamDialer<'_>,
) -> Result<(), NotConnected> {
    let pairs = links.receivers.iter().flat_map(|there| {
        let tasks = there.tasks.iter();
        tasks
            .flat_map(move |receiver| links.senders.iter().map(move |s| (&there.at, *s, *receiver)))
    });
    let connecting = pairs.map(|(at, sender, receiver)| async move {
        match at {
            RelativeHost::Here => join(ends, links, sender, receiver),
            _ => {
                let asked = OpenStream {
                    query: query.to_owned(),
                    gang: links.gang,
                    sender,
                    receiver,
                    buffer_bytes: links.buffer_bytes,
                };
                open(ends, &asked, at, dial).await
            }
        }
    });
    let connecting: Vec<_> = connecting.collect();
    stream::iter(connecting).buffer_unordered(AT_A_TIME).try_collect().await
}

/// Connects two tasks of this host.
fn join(
    ends: &StreamEnds,
    links: &GangLinks,
    sender: u32,
    receiver: u32,
) -> Result<(), NotConnected> {
    let joined = || -> std::io::Result<Option<()>> {
        let (near, far) = StdStream::pair()?;
        set_socket_send_buffer_size(&near, bounded(links.buffer_bytes))?;
        let sends = ends.add(links.gang, sender, receiver, near.into());
        let receives = ends.add(links.gang, receiver, sender, far.into());
        Ok(sends.zip(receives).map(|_| ()))
    };
    match joined() {
        Ok(Some(())) => Ok(()),
        Ok(None) => Err(NotConnected { host: None, is_unreachable: false, why: over() }),
        Err(error) => Err(NotConnected { host: None, is_unreachable: false, why: failed(&error) }),
    }
}

/// Opens a stream to a task on another host.
async fn open(
    ends: &StreamEnds,
    asked: &OpenStream,
    at: &RelativeHost,
    dial: &StreamDialer<'_>,
) -> Result<(), NotConnected> {
    let host: Option<HostName> = match at {
        RelativeHost::Host { name, .. } => Some(name.clone()),
        RelativeHost::Here | RelativeHost::Control => None,
    };
    let not_connected = |is_unreachable| {
        let host = host.clone();
        move |why| NotConnected { host, is_unreachable, why }
    };
    let mut far = dial(at.clone()).await.map_err(not_connected(true))?;
    let opening = async {
        write_frame(&mut far, &Frame::json(Kind::Request, asked)?).await?;
        let frame = read_frame_within(&mut far, MAX_MESSAGE).await?;
        frame.ok_or(WireError::Closed)?.expect(Kind::Reply, "Reply")?.parse()
    };
    let opened = tokio::time::timeout(OPEN_TIMEOUT, opening).await;
    let opened = opened.map_err(|late| failed(&late)).map_err(not_connected(true))?;
    let StreamOpened { is_open } =
        opened.map_err(|error: WireError| error.report()).map_err(not_connected(true))?;
    if !is_open {
        return Err(not_connected(false)(over()));
    }
    let buffer = bounded(asked.buffer_bytes);
    let (near, end) = local_pair(buffer).map_err(|e| failed(&e)).map_err(not_connected(false))?;
    prepare_to_send(&far, buffer).map_err(|e| failed(&e)).map_err(not_connected(false))?;
    let token = ends.add(asked.gang, asked.sender, asked.receiver, end);
    let token = token.ok_or_else(|| not_connected(false)(over()))?;
    // Ends with either end, or with the gang.
    tokio::spawn(outward(near, far, token));
    Ok(())
}

/// Serves the connection of one stream to a task on this host, until the stream ends.
pub(crate) async fn serve(mut far: HostStream, store: &StreamStore) {
    let served = async {
        let Some(frame) = read_frame_within(&mut far, MAX_MESSAGE).await? else { return Ok(()) };
        let asked: OpenStream = frame.expect(Kind::Request, "Request")?.parse()?;
        let buffer = bounded(asked.buffer_bytes);
        let (near, end) = local_pair(buffer)?;
        prepare_to_receive(&far, buffer)?;
        let ends = store.of(&asked.query);
        let over = ends.and_then(|ends| ends.add(asked.gang, asked.receiver, asked.sender, end));
        let opened = StreamOpened { is_open: over.is_some() };
        write_frame(&mut far, &Frame::json(Kind::Reply, &opened)?).await?;
        if let Some(over) = over {
            inward(far, near, over).await;
        }
        Ok::<_, WireError>(())
    };
    if let Err(error) = served.await {
        tracing::debug!(%error, "a stream was not opened");
    }
}

/// Makes a local socket pair: the worker gets the second end, and this host reads or writes the
/// first one.
fn local_pair(buffer: usize) -> std::io::Result<(UnixStream, OwnedFd)> {
    let (near, end) = StdStream::pair()?;
    set_socket_send_buffer_size(&near, buffer)?;
    set_socket_send_buffer_size(&end, buffer)?;
    near.set_nonblocking(true)?;
    Ok((UnixStream::from_std(near)?, end.into()))
}

fn over() -> ErrorReport {
    ErrorReport::new(Code::WORKER_LOST, "the tasks of a stream do not wait for it any more")
}

fn failed(error: &dyn std::error::Error) -> ErrorReport {
    ErrorReport::new(Code::STORAGE, format!("tasks could not be connected: {error}"))
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
