//! The hosts of the cluster, as queries see them.

use std::net::SocketAddr;
use std::sync::Arc;

use snowmelt_node::TreePlace;
use snowmelt_schedule::TaskDemand;
use snowmelt_tasks::peers::{Peer, Peers, TaskNeeds, TaskPlace};
use snowmelt_types::{ByteSize, CpuMillis, HostName, Tenant};

use super::Placements;
use super::tasks::PlacedTask;
use crate::cluster::hosts::Hosts;
use crate::cluster::trees::Trees;

/// The hosts of a cluster, the trees in which they read images and files, and who decides where
/// tasks run.
#[derive(Clone, Debug)]
pub(crate) struct QueryPeers {
    pub hosts: Hosts,
    pub trees: Trees,
    pub placements: Placements,
    /// True if the query runs on control's own host only.
    pub is_alone: bool,
}

impl QueryPeers {
    /// Returns the peers of a query, which may have to run on control's own host.
    pub fn of_query(&self, is_alone: bool) -> Self {
        Self { is_alone, ..self.clone() }
    }

    /// Returns whether the scheduler decides about the hosts of the query's tasks: there are other
    /// hosts, or some may come while the query runs.
    pub fn are_several(&self) -> bool {
        self.hosts.of_query(false).len() > 1 || !self.placements.is_alone()
    }

    fn needs(&self, needs: TaskNeeds) -> TaskDemand {
        let TaskNeeds { tenant, memory, cpu, is_here_only } = needs;
        let only = (is_here_only || self.is_alone).then(|| self.own_name());
        TaskDemand { tenant, memory: memory.bytes(), cpu_millis: cpu.0, only }
    }
}

fn boxed(placed: PlacedTask) -> Box<dyn TaskPlace> {
    Box::new(placed)
}

impl Peers for QueryPeers {
    fn others(&self) -> Vec<Arc<dyn Peer>> {
        let all = self.hosts.all().into_iter().filter(|_| !self.is_alone);
        let others = all.filter(|host| !host.is_local() && host.is_of_this_build());
        others.map(|host| host as Arc<dyn Peer>).collect()
    }

    fn own_name(&self) -> HostName {
        self.hosts.local().name.clone()
    }

    fn own_address(&self) -> Option<SocketAddr> {
        self.hosts.local().address()
    }

    fn tree_place(&self, tree: &str, host: &HostName) -> Option<TreePlace> {
        let host = self.hosts.all().into_iter().find(|known| known.name == *host)?;
        // Control's own host has a place already if it needs one: it has read the signatures in the
        // image. It is no member of the trees of files, as it has them.
        self.trees.place(tree, &self.hosts, &[host]).pop()
    }

    fn join_tree(&self, tree: &str, hosts: &[HostName]) {
        let known = self.hosts.all().into_iter();
        let joining: Vec<_> = known.filter(|known| hosts.contains(&known.name)).collect();
        self.trees.place(tree, &self.hosts, &joining);
    }

    fn places_tasks(&self) -> bool {
        !self.placements.is_alone()
    }

    fn task(&self, needs: TaskNeeds) -> Option<Box<dyn TaskPlace>> {
        self.placements.task(self.needs(needs)).map(boxed)
    }

    fn tasks(
        &self,
        tasks: Vec<(TaskNeeds, HostName)>,
    ) -> Result<Vec<Box<dyn TaskPlace>>, HostName> {
        let tasks = tasks.into_iter().map(|(needs, host)| (self.needs(needs), host));
        let placed = self.placements.tasks(tasks.collect())?;
        Ok(placed.into_iter().map(boxed).collect())
    }

    fn uses(&self, tenant: &Tenant, host: &HostName) -> Option<Box<dyn TaskPlace>> {
        let memory = ByteSize(0);
        let cpu = CpuMillis(0);
        let needs = TaskNeeds { tenant: tenant.clone(), memory, cpu, is_here_only: false };
        Some(boxed(self.placements.uses(self.needs(needs), host)))
    }
}
