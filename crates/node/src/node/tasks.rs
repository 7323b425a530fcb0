//! The part of a node for its callers that run tasks of queries and parts of jobs: leases in room
//! that they have reserved, the networks of jobs, and the trees of images and files.

use std::sync::Arc;
use std::time::{Duration, Instant};

use snowmelt_ledger::{Reservation, Use};
use snowmelt_network::JobSpec;
use snowmelt_rpc::HostStream;
use snowmelt_types::JobId;

use crate::images::{HeldImage, TreePlace};
use crate::instances::acquisition::Environment;
use crate::instances::ranks::PartRoom;
use crate::instances::zygote_room::needs_zygote;
use crate::networks::network::{HostRanks, RankNetwork};
use crate::resources::account::{Account, InstanceRooms, ZygoteRoom};
use crate::{InstanceLease, InstanceLimits, Node, Result, Unit, WorkerLease, WorkerSpec};

impl Node {
    /// Returns the account of this host, in which room for several sandboxes is reserved together.
    pub fn account(&self) -> &Account {
        &self.inner.account
    }

    /// Returns whether the first instance of a unit needs a zygote that does not run yet.
    pub fn needs_zygote(&self, unit: &Unit) -> bool {
        needs_zygote(&self.inner.imports, unit)
    }

    /// Reserves room for new instances, and for their zygote if one has to be started: for as many
    /// instances as there is room for, `most` at most. If there is room for none, waits until there
    /// is room for one.
    pub async fn rooms(
        &self,
        unit: &Unit,
        limits: &InstanceLimits,
        use_: Use,
        most: usize,
    ) -> Result<InstanceRooms> {
        self.inner.account.rooms(&self.inner.imports, unit, limits, use_, most).await
    }

    /// Leases an idle query worker with the limits of `spec`; `None` if there is none.
    pub fn idle_worker(&self, spec: &WorkerSpec, asked: Instant) -> Option<WorkerLease> {
        self.inner.workers.idle_one(spec, asked)
    }

    /// Leases a query worker: an idle one if there is one, for which nothing more is reserved, or
    /// else a worker that is executed now.
    pub async fn lease_worker(
        &self,
        spec: &WorkerSpec,
        room: Option<Reservation>,
        asked: Instant,
    ) -> Result<WorkerLease> {
        self.inner.workers.lease(spec, room, asked).await
    }

    /// Leases an idle instance for one call at a time, so that no other call shares its slots;
    /// `None` if there is none.
    pub fn idle_instance(
        &self,
        unit: &Unit,
        limits: &Arc<InstanceLimits>,
    ) -> Option<InstanceLease> {
        self.inner.instances.at_once(unit, limits)
    }

    /// Leases as many instances as there is room for in `rooms`. Idle instances are taken first,
    /// and the room that was reserved for them is given back.
    pub async fn lease_instances_in(
        &self,
        unit: &Unit,
        limits: &Arc<InstanceLimits>,
        rooms: InstanceRooms,
    ) -> Vec<Result<InstanceLease>> {
        self.inner.instances.lease_in(unit, limits, rooms).await
    }

    /// Reserves the room of a part of a burst, all of it or none: the full limits of `count` ranks.
    ///
    /// # Errors
    /// [`crate::Error::NoRoom`] when there is no room within `patience`, and at once for more than
    /// the capacity of the host.
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

    /// Starts a new instance for each of `environments`, whose variables it has beside the
    /// function's own, all in one request to the spawner, and in the job's network if the job has
    /// one. Each instance fails or starts by itself, and owns its part of `room`.
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

    /// Reads an image or a file from the hosts of a new place from now on, if this host has that
    /// image or file.
    pub async fn move_tree(&self, place: TreePlace) -> Result<()> {
        self.inner.shared_files.move_to(&place);
        self.inner.images.move_to(place).await
    }

    /// Returns how much this host has read and sent of each image and file that it has a place for.
    pub async fn held_trees(&self) -> Result<Vec<HeldImage>> {
        let mut held = self.inner.images.held().await?;
        let inner = Arc::clone(&self.inner);
        let files = tokio::task::spawn_blocking(move || inner.shared_files.held()).await;
        held.extend(files.unwrap_or_default());
        Ok(held)
    }

    /// Hands the connection of another host to the daemon, which sends it blocks of images until
    /// the connection ends. The host has shown the token of the cluster before.
    pub async fn serve_image_blocks(&self, stream: HostStream) {
        self.inner.images.serve_host(stream).await;
    }

    /// Answers the requests of another host for blocks of files until its connection ends.
    pub async fn serve_file_blocks(&self, stream: HostStream) {
        self.inner.shared_files.serve(stream).await;
    }
}
