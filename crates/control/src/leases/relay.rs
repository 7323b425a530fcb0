//! A lease over one connection, for clients that no descriptor can reach: what the client and its
//! instance send each other is in frames (`RelayConnection`) between those of the lease.
//!
//! Invariant: the end of the connection is the end of the instance.

use std::time::Duration;

use snowmelt_tasks::instance_relay::{Said, relay, tell};
use snowmelt_types::{ErrorReport, Report, Tenant};
use snowmelt_wire::{Frame, Kind};
use tokio::io::{AsyncRead, AsyncWrite};

use super::client::{Keep, LeaseClient, broken, end};
use super::lease::Out;
use super::watch::LeaseConnection;
use crate::access::identity::Identity;

/// How long a client may take to send its request, with its code, over a slow line.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// A connection that left HTTP, and the identity of the request that it began with.
pub(super) struct RelayConnection<S> {
    pub stream: LeaseConnection<S>,
    pub identity: Identity,
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> LeaseClient for RelayConnection<S> {
    type Stream = S;

    fn stream(&mut self) -> &mut LeaseConnection<S> {
        &mut self.stream
    }

    fn asks_within(&self) -> Duration {
        REQUEST_TIMEOUT
    }

    fn is_near(&self) -> bool {
        false
    }

    fn identity(&mut self, named: Option<Tenant>) -> Result<Identity, ErrorReport> {
        self.identity.check(named.as_ref())?;
        Ok(self.identity.clone())
    }

    async fn follow(&mut self, out: Out<'_>, keep: Keep<'_>) -> Result<(), ErrorReport> {
        let Out { held, connection, leased } = out;
        let reply = Frame::json(Kind::Reply, &leased).map_err(|error| error.report())?;
        let why = async { Frame::json(Kind::Failure, &held.why_ended().await) };
        let said = relay(&mut self.stream, connection, &reply, why).await.map_err(broken)?;
        let text = held.close(matches!(said, Some(Said::Returned))).await;
        keep(&text);
        match said {
            Some(Said::Returned) => {
                // A client that does not wait for it needs it not.
                tell(&mut self.stream, Ok(end(&text))).await;
                Ok(())
            }
            Some(Said::Wrong(error)) => Err(error.report()),
            Some(Said::Gone) | None => Ok(()),
        }
    }
}
