//! Inspects the networks of jobs on this host, for `snowmelt net`: it shows the state of the kernel
//! and changes nothing.

use std::os::fd::AsFd;
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use snowmelt_api::PartNetwork;
use snowmelt_node::RankNetwork;
use snowmelt_types::{Code, ErrorReport, JobId, Report};

use super::Agent;
use super::api::{RouteFound, RouteTo};

impl Agent {
    /// Describes the network of a job on this host.
    ///
    /// # Errors
    /// `SM-0605` where the job has no network here.
    pub async fn network(&self, job: &JobId) -> Result<PartNetwork, ErrorReport> {
        let network = self.network_of(job)?;
        let namespace = rustix::fs::fstat(network.namespace.as_fd()).map_or(0, |stat| stat.st_ino);
        let looked = network.ask(move |network| {
            let report = network.report()?;
            Ok(PartNetwork {
                spec: network.spec().clone(),
                namespace,
                device: report.device,
                mtu: report.mtu,
                enforcement: report.enforcement,
                counters: report.counters,
                contents: report.contents,
            })
        });
        looked.await.map_err(|error| error.report())
    }

    /// Traces the route of a packet from this host's part of a job, and lists the listeners if the
    /// packet stays on this host.
    ///
    /// # Errors
    /// `SM-0605` where the job has no network here.
    pub async fn route(&self, job: &JobId, asked: RouteTo) -> Result<RouteFound, ErrorReport> {
        let network = self.network_of(job)?;
        let within = Duration::from_millis(asked.within_ms);
        let looked = network.ask(move |network| {
            let route = network.trace(asked.to, within)?;
            let listeners = match asked.port {
                Some(port) => network.listeners(asked.to, port)?,
                None => Vec::new(),
            };
            Ok(RouteFound { route, listeners })
        });
        looked.await.map_err(|error| error.report())
    }

    fn network_of(&self, job: &JobId) -> Result<Arc<RankNetwork>, ErrorReport> {
        let networks = self.inner.networks.lock().unwrap_or_else(PoisonError::into_inner);
        let missing = || {
            ErrorReport::new(Code::NETWORK_MISSING, format!("{job} has no network here"))
                .hint("`snowmelt net ls` lists those that are there now")
        };
        networks.get(job).and_then(Weak::upgrade).ok_or_else(missing)
    }
}
