//! Leases of instances of prepared functions, which control takes here for its clients. The
//! protocol is that of [`crate::remote::leases`].
//!
//! Invariant: an instance is leased as long as its connection. An instance that control does not
//! return is destroyed, also if control has vanished.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::get;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use snowmelt_node::LOAD_LIMIT;
use snowmelt_rpc::{HostStream, Problem};
use snowmelt_types::{Digest, ErrorReport, Report};
use snowmelt_wire::{
    Error as WireError, Frame, Kind, MAX_REQUEST_BYTES, read_frame_within, write_frame,
};
use tokio::runtime::Handle;

use super::Agent;
use crate::instance_relay::{Said, relay, tell};
use crate::peers::relay::wait_for_readers_within;
use crate::remote::leases::{InstanceLeased, LEASES, LeaseEnd, LeaseInstance, READ_TIMEOUT};
use crate::remote::routes::take;

/// The interval at which the agent checks whether control has closed its side of a connection.
const LOOKED_EVERY: Duration = Duration::from_secs(2);

#[derive(Clone)]
struct Leasing {
    agent: Agent,
    // The thread that serves HTTP may be one that must be on time: connections move to this.
    runtime: Handle,
}

/// Returns the route of leases. Call it in the runtime that is to serve their connections.
pub(super) fn routes(agent: Agent) -> Router {
    let leasing = Leasing { agent, runtime: Handle::current() };
    Router::new().route(LEASES, get(lease)).with_state(leasing)
}

async fn lease(State(leasing): State<Leasing>, request: Request) -> Result<Response, Problem> {
    let Leasing { agent, runtime } = leasing;
    take(request, runtime, |mut stream| async move {
        if let Err(error) = agent.serve_lease(&mut stream).await {
            tracing::debug!(%error, "the connection of a lease broke");
        }
    })
}

impl Agent {
    async fn serve_lease(&self, stream: &mut HostStream) -> snowmelt_wire::Result<()> {
        wait_for_readers_within(stream, READ_TIMEOUT);
        let asked = read_frame_within(stream, MAX_REQUEST_BYTES).await?.ok_or(WireError::Closed)?;
        let asked: LeaseInstance = asked.expect(Kind::Request, "LeaseInstance")?.parse()?;
        match self.lease_function(&asked.function, stream).await {
            Ok(served) => served,
            Err(report) => write_frame(stream, &Frame::json(Kind::Failure, &report)?).await,
        }
    }

    /// Serves the lease of an instance.
    ///
    /// # Errors
    /// Fails if there is no instance. A connection that breaks later is no such error.
    async fn lease_function(
        &self,
        function: &Digest,
        stream: &mut HostStream,
    ) -> Result<snowmelt_wire::Result<()>, ErrorReport> {
        let node = &self.inner.node;
        let leasing = async {
            let (running, lease, _) = self.take(function).await?;
            let opened = lease.open(&running.0.load, LOAD_LIMIT).await;
            let connection = opened.map_err(|error| error.report())?;
            Ok::<_, ErrorReport>((running, lease, connection))
        };
        let (running, lease, connection) = tokio::select! {
            leased = leasing => leased?,
            // Control says nothing before the answer: it is gone, or does not wait any more.
            _ = stream.spoken_to() => return Ok(Ok(())),
        };
        let leased = InstanceLeased { start: lease.start, cold: lease.cold };
        let first = Frame::json(Kind::Reply, &leased).map_err(|error| error.report())?;
        let ended = async {
            let (error, log) = lease.why_ended(&running.0.load.function).await;
            // The lease counts as running until it is dropped.
            let instances = Some(running.0.instances(node).saturating_sub(1));
            Frame::json(Kind::Return, &LeaseEnd { error: Some(error), log, instances })
        };
        let broken = |error| WireError::Io(error).report();
        let watched = stream.as_fd().try_clone_to_owned().map_err(broken)?;
        let relayed = tokio::select! {
            relayed = relay(stream, connection, &first, ended) => relayed.map_err(broken)?,
            () = closed_for_long(&watched) => Some(Said::Gone),
        };
        let Some(said) = relayed else { return Ok(Ok(())) };
        let log = lease.take_log().text;
        let error = match said {
            Said::Returned => {
                lease.give_back();
                None
            }
            Said::Gone => {
                drop(lease);
                None
            }
            Said::Wrong(error) => {
                drop(lease);
                Some(error.report())
            }
        };
        let end = LeaseEnd { error, log, instances: Some(running.end(node)) };
        // Control may not wait for it.
        tell(stream, Frame::json(Kind::Return, &end)).await;
        Ok(Ok(()))
    }
}

/// Waits until control has closed its side of a connection for a while without the end of the
/// lease: an instance that does not read the bytes that were sent to it keeps the agent from
/// reading the end behind those bytes.
async fn closed_for_long(stream: &OwnedFd) {
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut was_closed = false;
    loop {
        tokio::time::sleep(LOOKED_EVERY).await;
        let mut watched = [PollFd::new(stream, PollFlags::RDHUP)];
        let is_closed = poll(&mut watched, Some(&at_once)).is_ok_and(|count| count > 0);
        if is_closed && was_closed {
            return;
        }
        was_closed = is_closed;
    }
}
