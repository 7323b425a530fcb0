//! Control's side of an instance that is leased on another host: one connection, over which the
//! bytes of the instance's own connection travel in frames. Control's clients get the end of a
//! local socket, so they use an instance on another host like one on control's host.
//!
//! | who | frame | what |
//! |---|---|---|
//! | control | `Request`, `LeaseInstance` | asks for an instance of a function that is prepared there |
//! | host | `Reply`, [`InstanceLeased`] | the function is loaded on it |
//! | host | `Failure`, `ErrorReport` | why not, as for a call: then nothing has run |
//! | both | `Relayed` | bytes to the instance and from it |
//! | control | `End` | returns the instance |
//! | host | `Return`, [`LeaseEnd`] | the lease is over: the last frame |
//!
//! Invariant: the lease is over on the host when the connection is, or control's side of it. The
//! end of a lease becomes known once: the host reports it, or its connection broke, or the host was
//! lost.

use std::os::unix::net::UnixStream as BlockingStream;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use snowmelt_api::Start;
use snowmelt_rpc::HostStream;
use snowmelt_types::{Code, Digest, ErrorReport};
use snowmelt_wire::{
    Error as WireError, Frame, Kind, MAX_REQUEST_BYTES, read_frame_within, read_payload,
    write_frame,
};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::{oneshot, watch};
use tokio_util::task::AbortOnDropHandle;

use crate::instance_relay::{answer, forward, send};
use crate::peers::Peer;
use crate::peers::relay::wait_for_readers_within;

/// The path of the request that leases an instance on another host.
pub(crate) const LEASES: &str = "/v1/leases";

/// How long either side may leave unread what the other one sends. A host or a control that has
/// vanished is found after this time at the latest.
pub(crate) const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a host may take to report the end of a lease that control has ended.
const SAY_TIMEOUT: Duration = Duration::from_secs(5);

/// A request for an instance. The first message of the connection of a lease.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct LeaseInstance {
    /// The function, which the host has prepared.
    pub function: Digest,
}

/// The answer about an instance that was leased on another host.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct InstanceLeased {
    /// The way in which the instance was started.
    pub start: Start,
    /// True if a sandbox was started for this lease.
    pub cold: bool,
}

/// The end of a lease of an instance on another host.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LeaseEnd {
    /// The reason why the instance, or the lease alone, has ended; none if the instance was
    /// returned or given up.
    #[serde(default)]
    pub error: Option<ErrorReport>,
    /// The beginning of the instance's output, up to the most that is kept.
    pub log: String,
    /// Instances of the function on the host now, idle ones included; none if the host lives and
    /// could not report their number.
    #[serde(default)]
    pub instances: Option<u32>,
}

/// The reason why there is no lease. No code of a client has run.
#[derive(Debug)]
pub enum NotLeased {
    /// The host refused, for this reason.
    Refused(ErrorReport),
    /// The host cannot be reached, or was lost.
    Unreachable(ErrorReport),
}

/// An instance on another host, until it is closed. Dropping it gives the instance up.
#[derive(Debug)]
pub struct FarInstance {
    /// A sender that returns the instance when it sends, and gives the instance up when it is
    /// dropped.
    returned: Option<oneshot::Sender<()>>,
    end: watch::Receiver<Option<LeaseEnd>>,
    _relay: AbortOnDropHandle<()>,
}

/// An instance on another host, the connection to the instance, and the way in which it was
/// started.
pub type FarLease = (FarInstance, BlockingStream, InstanceLeased);

impl FarInstance {
    /// Leases an instance of a function that a host has prepared. Returns also the connection to
    /// the instance.
    pub async fn lease(
        peer: Arc<dyn Peer>,
        function: &Digest,
        name: &str,
        within: Duration,
    ) -> Result<FarLease, NotLeased> {
        let host = peer.name();
        let leased = tokio::select! {
            leased = tokio::time::timeout(within, ask(&*peer, function)) => leased,
            () = peer.lost() => {
                let message = format!("{host} does not answer any more");
                let report = ErrorReport::new(Code::SERVER_UNREACHABLE, message);
                return Err(NotLeased::Unreachable(report));
            }
        };
        let (far, leased) = leased.unwrap_or_else(|_| {
            let message = format!("{host} leases no instance within {within:?}");
            Err(NotLeased::Unreachable(ErrorReport::new(Code::SERVER_UNREACHABLE, message)))
        })?;
        wait_for_readers_within(&far, READ_TIMEOUT);
        let (near, connection) = local_pair().map_err(|error| {
            let message = format!("an instance on {host} has no connection: {error}");
            NotLeased::Refused(ErrorReport::new(Code::INTERNAL, message))
        })?;
        let (returned, is_returned) = oneshot::channel();
        let (ended, end) = watch::channel(None);
        let name = name.to_owned();
        let relaying = tokio::spawn(async move {
            let end = relay(far, near, is_returned, &*peer, &name).await;
            ended.send_replace(Some(end));
        });
        let relay = AbortOnDropHandle::new(relaying);
        Ok((Self { returned: Some(returned), end, _relay: relay }, connection, leased))
    }

    /// Waits for the end of the lease, and returns it; `None` if the lease has not ended within
    /// this time.
    pub async fn ended(&self, within: Duration) -> Option<LeaseEnd> {
        let mut end = self.end.clone();
        let ended = tokio::time::timeout(within, end.wait_for(Option::is_some)).await;
        ended.ok()?.ok()?.clone()
    }

    /// Returns the instance to the host for the next lease, or gives it up. The result is the end
    /// of the lease as the host reports it; `None` if the report does not come in time.
    pub async fn close(mut self, is_returned: bool) -> Option<LeaseEnd> {
        if let Some(returned) = self.returned.take().filter(|_| is_returned) {
            // The lease may be over already.
            let _ = returned.send(());
        }
        self.ended(SAY_TIMEOUT).await
    }
}

fn local_pair() -> std::io::Result<(UnixStream, BlockingStream)> {
    let (near, connection) = BlockingStream::pair()?;
    near.set_nonblocking(true)?;
    Ok((UnixStream::from_std(near)?, connection))
}

async fn ask(
    peer: &dyn Peer,
    function: &Digest,
) -> Result<(HostStream, InstanceLeased), NotLeased> {
    let mut far = peer.connect(LEASES).await.map_err(NotLeased::Unreachable)?;
    let asked = async {
        let asked = LeaseInstance { function: function.clone() };
        write_frame(&mut far, &Frame::json(Kind::Request, &asked)?).await?;
        read_frame_within(&mut far, MAX_REQUEST_BYTES).await?.ok_or(WireError::Closed)
    };
    let answered = asked.await.map_err(|error| unreachable(peer, &error))?;
    if answered.kind == Kind::Failure {
        let report = answered.parse().map_err(|error| unreachable(peer, &error))?;
        return Err(NotLeased::Refused(report));
    }
    let leased = answered.expect(Kind::Reply, "InstanceLeased").and_then(|frame| frame.parse());
    Ok((far, leased.map_err(|error| unreachable(peer, &error))?))
}

fn unreachable(peer: &dyn Peer, error: &WireError) -> NotLeased {
    let message = format!("{} leases no instance: {error}", peer.name());
    NotLeased::Unreachable(ErrorReport::new(Code::SERVER_UNREACHABLE, message))
}

/// Relays until the host says how the lease ended, the connection breaks, or the host is lost. The
/// client's connection ends as soon as one of these is known.
async fn relay(
    far: HostStream,
    near: UnixStream,
    is_returned: oneshot::Receiver<()>,
    peer: &dyn Peer,
    name: &str,
) -> LeaseEnd {
    let (from_client, mut to_client) = near.into_split();
    let broke = {
        // The connection is closed with this block.
        let mut far = far;
        let (from_host, to_host) = far.split();
        let telling = async {
            // A host that is gone is seen where it would say the end.
            let _ = tell(from_client, to_host, is_returned).await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            // An end that a host has reported before it was lost counts.
            biased;
            heard = hear(from_host, &mut to_client) => match heard {
                Ok(end) => return end,
                Err(error) => Some(error),
            },
            () = telling => None,
            () = peer.lost() => None,
        }
    };
    // By now the connection is closed on this side too, which ends the instance of a host that
    // lives.
    let host = peer.name();
    let hint = "a call that was under way may have run; call again if that does no harm";
    let is_there = broke.is_some() && peer.is_there().await;
    let (code, message, instances) = match broke {
        Some(error) if is_there => {
            let message = format!(
                "the connection to {host} broke while an instance of `{name}` on it was leased: \
                 {error}"
            );
            (Code::CONNECTION_LOST, message, None)
        }
        broke => {
            let why = broke.map(|error| error.to_string());
            let why = why.unwrap_or_else(|| "it does not answer any more".to_owned());
            let message =
                format!("{host} was lost while an instance of `{name}` on it was leased: {why}");
            (Code::CALL_LOST, message, Some(0))
        }
    };
    let error = Some(ErrorReport::new(code, message).hint(hint));
    LeaseEnd { error, instances, ..LeaseEnd::default() }
}

/// Sends the bytes of the client to its instance, and at last that the instance is returned, or
/// that nothing more comes.
async fn tell(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut is_returned: oneshot::Receiver<()>,
) -> snowmelt_wire::Result<()> {
    let mut returned = None;
    let over = async { returned = Some((&mut is_returned).await) };
    answer(&mut from, &mut to, over).await?;
    // A client may close its end of the connection before it ends the lease.
    let returned = match returned {
        Some(returned) => returned,
        None => is_returned.await,
    };
    if returned.is_ok() {
        send(&mut to, &Frame::new(Kind::End, Vec::new())).await?;
    }
    Ok(to.shutdown().await?)
}

/// Passes on the bytes that the instance sends, until the host says that the lease is over.
async fn hear(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
) -> snowmelt_wire::Result<LeaseEnd> {
    let (kind, length) = forward(&mut from, &mut to).await?.ok_or(WireError::Closed)?;
    if length > MAX_REQUEST_BYTES as usize {
        return Err(WireError::TooLong(length as u64));
    }
    read_payload(&mut from, kind, length).await?.expect(Kind::Return, "LeaseEnd")?.parse()
}

#[cfg(test)]
mod tests;
