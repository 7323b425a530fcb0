//! The route of a packet between two functions of a job, step by step: what the kernel of the
//! sender's host would do with it, whether the receiver's host accepts it, and the route back.

use std::time::Duration;

use snowmelt_api::{Trace, TracePoint, TraceRequest, TraceStep, TraceTo};
use snowmelt_network::{AddressEnforcement, Listener, TracedRoute, Transport};
use snowmelt_tasks::agent::api::{RouteFound, RouteTo};
use snowmelt_types::{ErrorReport, HostName, JobId};

use super::jobs::{BurstNetwork, JobNetworks};

/// How long a host may take to answer an echo over the overlay.
const ECHO: Duration = Duration::from_secs(1);

impl JobNetworks {
    /// Traces a packet. A step that fails is in the trace; it is an error if a host does not answer
    /// control.
    pub async fn trace(&self, id: &JobId, asked: TraceRequest) -> Result<Trace, ErrorReport> {
        let job = self.find(id)?;
        let (from, near) = job.rank(asked.from, asked.ipv6)?;
        let (to, far) = match asked.to {
            TraceTo::Rank(rank) => job.rank(rank, asked.ipv6).map(|(to, far)| (to, Some(far)))?,
            TraceTo::Address(address) => job.address(address),
        };
        let mut steps = Steps { job: &job, list: Vec::new() };
        steps.sender(near, &from).await?;
        let port_near = asked.port.filter(|_| far == Some(near));
        let there = steps.route(near, &to, port_near, "").await?;
        if let Some(port) = port_near {
            steps.port(near, port, &there.listeners);
        }
        if let Some(far) = far.filter(|far| *far != near) {
            steps.receiver(near, far, &there.route).await?;
            let arrived = steps.route(far, &to, asked.port, "").await?;
            if let Some(port) = asked.port {
                steps.port(far, port, &arrived.listeners);
            }
            steps.route(far, &from, None, "return: ").await?;
        }
        let steps = steps.list;
        let arrives = steps.iter().all(|step| step.ok);
        Ok(Trace { job: id.clone(), from, to, port: asked.port, steps, arrives })
    }
}

/// The steps so far.
struct Steps<'a> {
    job: &'a BurstNetwork,
    list: Vec<TraceStep>,
}

impl Steps<'_> {
    fn add(&mut self, part: usize, check: impl Into<String>, found: Result<String, String>) {
        let host: HostName = self.job.parts[part].host.name.clone();
        let ok = found.is_ok();
        let found = found.unwrap_or_else(|found| found);
        self.list.push(TraceStep { host, check: check.into(), ok, found });
    }

    async fn sender(&mut self, near: usize, from: &TracePoint) -> Result<(), ErrorReport> {
        let network = self.job.parts[near].host.agent.network(&self.job.id).await?;
        let how = match network.enforcement {
            AddressEnforcement::Cgroup => "by programs on its control group",
            AddressEnforcement::Notifier => "by the node, which answers its system calls",
        };
        self.add(near, "sender", Ok(format!("uses {} only, enforced {how}", from.address)));
        Ok(())
    }

    /// Asks a host for its kernel's route to an address, and records the result.
    async fn route(
        &mut self,
        part: usize,
        to: &TracePoint,
        port: Option<u16>,
        prefix: &str,
    ) -> Result<RouteFound, ErrorReport> {
        let within_ms = u64::try_from(ECHO.as_millis()).unwrap_or(u64::MAX);
        let asked = RouteTo { to: to.address, port, within_ms };
        let found = self.job.parts[part].host.agent.route(&self.job.id, asked).await?;
        for (check, found) in checks(&found.route, to) {
            self.add(part, format!("{prefix}{check}"), found);
        }
        Ok(found)
    }

    /// Checks that the route leads to the receiver's host, and that both hosts have the same
    /// overlay.
    async fn receiver(
        &mut self,
        near: usize,
        far: usize,
        route: &TracedRoute,
    ) -> Result<(), ErrorReport> {
        let part = &self.job.parts[far];
        let network = part.host.agent.network(&self.job.id).await?;
        let own = &self.job.specs[near];
        let theirs = &network.spec;
        let found = format!("{} at {}, {} bytes", theirs.vni, theirs.host, network.mtu);
        let leads = matches!(route, TracedRoute::Host { host, .. } if *host == theirs.host);
        let found = match (own.vni == theirs.vni, leads) {
            (true, true) => Ok(found),
            (false, _) => Err(format!("{found}, but the sender's overlay is {}", own.vni)),
            (_, false) => Err(format!("{found}, but the route does not lead there")),
        };
        self.add(far, "overlay", found);
        Ok(())
    }

    fn port(&mut self, part: usize, port: u16, listeners: &[Listener]) {
        let name = |listener: &Listener| match listener.transport {
            Transport::Tcp => format!("tcp {}", listener.address),
            Transport::Udp => format!("udp {}", listener.address),
        };
        let all: Vec<_> = listeners.iter().map(name).collect();
        let found = match all.is_empty() {
            true => Err("nobody listens: a connection is refused".to_owned()),
            false => Ok(all.join(", ")),
        };
        self.add(part, format!("port {port}"), found);
    }
}

type Check = (&'static str, Result<String, String>);

/// Returns the answer of a kernel as checks, one for each of its lookups.
fn checks(route: &TracedRoute, to: &TracePoint) -> Vec<Check> {
    let address = to.address;
    match route {
        TracedRoute::Local => vec![("address", here(to))],
        TracedRoute::Host { gateway, mac, host, round_trip } => {
            let echo = round_trip.map(|time| format!("{host} answers in {} us", time.as_micros()));
            let silent = || format!("{host} did not answer over the overlay within {ECHO:?}");
            vec![
                ("route", Ok(format!("{address} by {gateway} on overlay0"))),
                ("neighbour", Ok(format!("{gateway} is {mac}"))),
                ("forwarding entry", Ok(format!("{mac} is {host}"))),
                ("echo", echo.ok_or_else(silent)),
            ]
        }
        TracedRoute::Outside { gateway } => {
            let found = format!("{address} by {gateway}, out of the job as far as its policy goes");
            vec![("route", Ok(found))]
        }
        TracedRoute::Unreachable { missing } => {
            vec![("route", Err(format!("to {address} {missing} is missing: it is refused")))]
        }
    }
}

/// Describes an address of the receiving host's part, which is local to it; an error if no function
/// has the address.
fn here(to: &TracePoint) -> Result<String, String> {
    match to.rank {
        Some(rank) => Ok(format!("{} is local, of rank {rank}", to.address)),
        None => Err(format!("{} is local, but no function has it", to.address)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(rank: Option<u32>) -> TracePoint {
        TracePoint { rank, host: None, address: [10, 192, 0, 2].into() }
    }

    #[test]
    fn a_host_is_three_entries_and_an_echo() {
        let route = |round_trip| TracedRoute::Host {
            gateway: "fe80::1".parse().unwrap(),
            mac: "02:73:0a:c0:00:00".into(),
            host: "192.0.2.2".parse().unwrap(),
            round_trip,
        };
        let steps = checks(&route(Some(Duration::from_micros(120))), &point(Some(1)));
        let names: Vec<_> = steps.iter().map(|(check, _)| *check).collect();
        assert_eq!(names, ["route", "neighbour", "forwarding entry", "echo"]);
        assert_eq!(steps[3].1, Ok("192.0.2.2 answers in 120 us".to_owned()));
        let steps = checks(&route(None), &point(Some(1)));
        assert!(steps[3].1.as_ref().is_err_and(|found| found.contains("within 1s")), "{steps:?}");
    }

    #[test]
    fn a_packet_without_a_route_or_a_listener_does_not_arrive() {
        let missing = TracedRoute::Unreachable { missing: "a route".into() };
        assert!(checks(&missing, &point(None))[0].1.is_err());
        assert!(checks(&TracedRoute::Local, &point(None))[0].1.is_err());
        assert!(checks(&TracedRoute::Local, &point(Some(3)))[0].1.is_ok());
    }
}
