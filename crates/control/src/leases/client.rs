//! A client of the lease service. A client on the local socket gets its instance as a descriptor.

use std::net::Shutdown;
use std::os::fd::AsFd;
use std::time::Duration;

use snowmelt_api::Returned;
use snowmelt_rpc::Peer;
use snowmelt_types::{Code, ErrorReport, Tenant};
use snowmelt_wire::{Frame, Kind, read_frame_within, write_frame, write_frame_with};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;

use super::lease::Out;
use super::watch::LeaseConnection;
use crate::access::identity::Identity;
use crate::reports::beginning;

/// How long a process of this machine may take to send its request.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// A callback that `follow` calls with the text that an instance wrote.
pub(super) type Keep<'a> = &'a (dyn Fn(&str) + Sync);

/// A connection that carries one lease.
pub(super) trait LeaseClient: Send {
    /// The stream on which the frames of the lease travel.
    type Stream: AsyncRead + AsyncWrite + Send + Unpin;

    fn stream(&mut self) -> &mut LeaseConnection<Self::Stream>;

    /// How long the client may take to send its request.
    fn asks_within(&self) -> Duration;

    /// Returns whether the client is a process of this machine, which may see the paths of its
    /// files.
    fn is_near(&self) -> bool;

    /// Returns the identity of the client, for a tenant that it names or for its own.
    fn identity(&mut self, named: Option<Tenant>) -> Result<Identity, ErrorReport>;

    /// Hands the instance over, and waits for the end of the lease; keeps what the instance wrote.
    /// An instance that is not returned, or whose client breaks the protocol, is destroyed.
    ///
    /// # Errors
    /// The error that the client is to be told: its instance has ended, or it broke the protocol.
    fn follow(
        &mut self,
        out: Out<'_>,
        keep: Keep<'_>,
    ) -> impl Future<Output = Result<(), ErrorReport>> + Send;
}

impl LeaseClient for LeaseConnection<UnixStream> {
    type Stream = UnixStream;

    fn stream(&mut self) -> &mut Self {
        self
    }

    fn asks_within(&self) -> Duration {
        REQUEST_TIMEOUT
    }

    fn is_near(&self) -> bool {
        true
    }

    fn identity(&mut self, named: Option<Tenant>) -> Result<Identity, ErrorReport> {
        let user = self.sender().peer_cred().map_err(broken)?.uid();
        Identity::new(Peer::User(user), named)
    }

    async fn follow(&mut self, out: Out<'_>, keep: Keep<'_>) -> Result<(), ErrorReport> {
        let Out { held, connection, leased } = out;
        let sent = async {
            let reply = Frame::json(Kind::Reply, &leased)?;
            write_frame_with(self.sender(), &reply, &[connection.as_fd()]).await?;
            read_frame_within(self, 0).await
        };
        let said = tokio::select! {
            said = sent => Ok(said),
            // Its client only sees that the connection of its instance has ended.
            why = held.ended() => Err(why),
        };
        // The client may have kept its descriptor, or given it to others: it leads nowhere now.
        let _ = connection.shutdown(Shutdown::Both);
        let is_returned = matches!(&said, Ok(Ok(Some(frame))) if frame.kind == Kind::End);
        let text = held.close(is_returned).await;
        keep(&text);
        if is_returned {
            // A client that does not wait for it needs it not.
            let _ = write_frame(self, &end(&text)).await;
        }
        said.map(drop)
    }
}

/// Makes the frame that ends a lease whose instance was returned, with the text that it has
/// written.
pub(super) fn end(text: &str) -> Frame {
    let printed = beginning(text);
    let said = (!printed.is_empty()).then(|| Frame::json(Kind::End, &Returned { printed }));
    said.and_then(Result::ok).unwrap_or_else(|| Frame::new(Kind::End, Vec::new()))
}

pub(super) fn broken(error: impl std::fmt::Display) -> ErrorReport {
    ErrorReport::new(Code::INTERNAL, error.to_string())
}
