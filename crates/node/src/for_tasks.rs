//! What those get of a node who run tasks of queries and parts of jobs on it: leases in room that
//! they have reserved, the networks of jobs, and the trees of images and files.

use std::sync::Arc;
use std::time::{Duration, Instant};

use snowmelt_ledger::{Reservation, Use};
use snowmelt_network::JobSpec;
use snowmelt_rpc::HostStream;
use snowmelt_types::JobId;

use crate::account::{Account, Rooms, ZygoteRoom};
use crate::images::{HeldImage, TreePlace};
use crate::instances::acquire::Environment;
use crate::instances::ranks::PartRoom;
use crate::instances::rooms::needs_zygote;
use crate::networks::network::{HostRanks, RankNetwork};
use crate::{InstanceLease, InstanceLimits, Node, Result, Unit, WorkerLease, WorkerSpec};

impl Node {
    /// The account of this host, to reserve room for several sandboxes together.
    pub fn account(&self) -> &Account {
        &self.inner.account
    }

    /// Whether the first instance of a unit needs a zygote that does not run.
    pub fn needs_zygote(&self, unit: &Unit) -> bool {
        needs_zygote(&self.inner.imports, unit)
    }

    /// Room for new instances, and for their zygote if one has to be started: for as many as there
    /// is, and `most` at most; if there is none for any, for one that waits.
    pub async fn rooms(
        &self,
        unit: &Unit,
        limits: &InstanceLimits,
        use_: Use,
        most: usize,
    ) -> Result<Rooms> {
        self.inner.account.rooms(&self.inner.imports, unit, limits, use_, most).await
    }

    /// An idle query worker.
    pub fn idle_worker(&self, spec: &WorkerSpec, asked: Instant) -> Option<WorkerLease> {
        self.inner.workers.idle_one(spec, asked)
    }

    /// A query worker: idle if there is one, for which nothing more is reserved, and executed
    /// otherwise.
    pub async fn lease_worker(
        &self,
        spec: &WorkerSpec,
        room: Option<Reservation>,
        asked: Instant,
    ) -> Result<WorkerLease> {
        self.inner.workers.lease(spec, room, asked).await
    }

    /// An instance that waits, for one call at a time: no other call shares its slots.
    pub fn idle_instance(
        &self,
        unit: &Unit,
        limits: &Arc<InstanceLimits>,
    ) -> Option<InstanceLease> {
        self.inner.instances.at_once(unit, limits)
    }

    /// As many leases as there is room for in `rooms`. Idle instances are taken first, and what was
    /// reserved for these is given back.
    pub async fn lease_instances_in(
        &self,
        unit: &Unit,
        limits: &Arc<InstanceLimits>,
        rooms: Rooms,
    ) -> Vec<Result<InstanceLease>> {
        self.inner.instances.lease_in(unit, limits, rooms).await
    }

    /// Reserves the room of a part of a burst, all of it or none: the full limits of so many ranks.
    ///
    /// # Errors
    /// [`crate::Error::NoRoom`] when there is none within `patience`, and at once above the capacity.
    pub async fn reserve_part(
        &self,
        unit: &Unit,
        limits: &InstanceLimits,
        count: usize,
        patience: Duration,
    ) -> Result<PartRoom> {
        self.inner.instances.reserve_part(unit, limits, count, patience).await
    }

    /// Makes the network of a job for ranks of this unit.
    pub async fn open_job_network(
        &self,
        unit: &Unit,
        spec: JobSpec,
        hosts: &[HostRanks],
        count: usize,
        room: &ZygoteRoom,
    ) -> Result<RankNetwork> {
        self.inner.networks.open(unit, spec, hosts, count, room).await
    }

    /// A new instance for each of `environments`, which it has beside the function's own, all in
    /// one request, in the job's network if it has one. The failure of one is its own. Each owns
    /// its part of `room`.
    pub async fn lease_ranks(
        &self,
        unit: &Unit,
        limits: &Arc<InstanceLimits>,
        job: &JobId,
        environments: Vec<Environment>,
        network: Option<&RankNetwork>,
        room: PartRoom,
    ) -> Vec<Result<InstanceLease>> {
        self.inner.instances.lease_ranks(unit, limits, job, environments, network, room).await
    }

    /// Reads an image or a file from elsewhere from now on, if this host has it.
    pub async fn move_tree(&self, place: TreePlace) -> Result<()> {
        self.inner.shared_files.move_to(&place);
        self.inner.images.move_to(place).await
    }

    /// What this host has read and sent of the images and files that it has a place for.
    pub async fn held_trees(&self) -> Result<Vec<HeldImage>> {
        let mut held = self.inner.images.held().await?;
        let inner = Arc::clone(&self.inner);
        let files = tokio::task::spawn_blocking(move || inner.shared_files.held()).await;
        held.extend(files.unwrap_or_default());
        Ok(held)
    }

    /// Has blocks of images sent to another host, which has shown the token of the cluster, until
    /// its connection ends.
    pub async fn serve_image_blocks(&self, stream: HostStream) {
        self.inner.images.serve_host(stream).await;
    }

    /// Answers the requests of another host for blocks of files until its connection ends.
    pub async fn serve_file_blocks(&self, stream: HostStream) {
        self.inner.shared_files.serve(stream).await;
    }
}
