//! The server's handle of the spawner: start it, request sandboxes, end it.

use std::fmt;
use std::num::NonZero;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use snowmelt_types::SandboxId;

use super::instance::{Sandbox, Zygote};
use super::lanes::{Lanes, SpawnerHealth};
use super::launch::{Launched, Launcher, Options};
use super::network::{LaneNetwork, NetworkNamespace};
use super::pidfd;
use super::registry::PendingStart;
use super::request::{Addresses, no_sandbox};
use super::run_dir::RunDir;
use crate::message::{MAX_LANES, SpawnerOperation, ZYGOTES};
use crate::spec::{ForkSpec, NetworkProgram, SandboxSpec, ZygoteSpec};
use crate::{Error, Result};

/// A running spawner whose socket is not read yet.
pub struct SpawnerProcess {
    launched: Launched,
    launcher: Launcher,
    run_dir: RunDir,
    lanes: u32,
}

impl SpawnerProcess {
    /// The process id of the spawner's first lane.
    pub fn pid(&self) -> u32 {
        pidfd::pid_of(&self.launched.pidfd)
    }

    /// Returns the set-up message of the spawner, with which another one may be started.
    ///
    /// # Errors
    /// Paths that are no text.
    pub fn setup(&self) -> std::io::Result<String> {
        self.launcher.setup(&self.run_dir)
    }

    /// Returns the processes of the spawner: the first lane, and init.
    ///
    /// # Errors
    /// `EMFILE` if this process has too many open files.
    pub fn processes(&self) -> std::io::Result<Vec<OwnedFd>> {
        let mut processes = self.run_dir.init_processes()?;
        processes.push(self.launched.pidfd.try_clone()?);
        Ok(processes)
    }

    /// Sets the maximum number of lanes, 1 to 4: processes that make sandboxes in parallel. The
    /// default is one for each core. All but the first are made when starts queue.
    #[must_use]
    pub fn with_lanes(self, most: u32) -> Self {
        Self { lanes: most, ..self }
    }

    /// Starts reading the spawner's socket; must be called in a tokio runtime.
    ///
    /// # Errors
    /// [`Error::Launch`] when the runtime cannot watch the socket.
    pub fn attach(self) -> Result<Spawner> {
        let first = self.launched.into_ready()?;
        Ok(Spawner { lanes: Lanes::new(first, self.launcher, self.run_dir, self.lanes) })
    }
}

/// A handle to the spawner, cheap to clone. The spawner ends when the last clone and the last
/// sandbox are dropped. Until then, a spawner that dies is replaced by another.
#[derive(Clone)]
pub struct Spawner {
    lanes: Arc<Lanes>,
}

impl fmt::Debug for SpawnerProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpawnerProcess").field("pid", &self.pid()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Spawner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spawner").finish_non_exhaustive()
    }
}

impl Spawner {
    /// Starts the spawner. Needs no runtime. Call it early: each sandbox is made by copying this
    /// process, which should still be small.
    ///
    /// # Errors
    /// [`Error::RunDir`] when the folder exists already or cannot be made, [`Error::Launch`] when
    /// the program does not start, [`Error::Unsupported`] and [`Error::Cgroup`] when the machine
    /// does not support sandboxes.
    pub fn launch(options: Options) -> Result<SpawnerProcess> {
        let run_dir = RunDir::create(&options.run_dir, &options.parent_cgroup)?;
        let launcher = Launcher::new(options);
        match launcher.launch(&run_dir) {
            Ok(launched) => {
                let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
                let lanes = u32::try_from(cores).unwrap_or(MAX_LANES);
                Ok(SpawnerProcess { launched, launcher, run_dir, lanes })
            }
            Err(error) => {
                // The first error is the one to report; a later sweep tries again.
                drop(run_dir.clean());
                Err(error)
            }
        }
    }

    /// Starts a program in its own sandbox; returns when it has been executed. If the lane dies
    /// meanwhile, the start is tried once more in another lane.
    ///
    /// # Errors
    /// [`Error::Start`] with the step that failed, [`Error::Spec`] for an invalid spec,
    /// [`Error::SpawnerLost`], [`Error::NotReplaced`].
    pub async fn start(&self, spec: SandboxSpec) -> Result<Sandbox> {
        match self.start_once(spec.clone()).await {
            // Once only: a spec that kills the lane by itself must not kill every lane in turn.
            Err(Error::SpawnerLost) => self.start_once(spec).await,
            done => done,
        }
    }

    async fn start_once(&self, spec: SandboxSpec) -> Result<Sandbox> {
        let id = spec.id.clone();
        let limits = spec.limits;
        let lane = self.lanes.pick(&id).await?;
        let started = lane.begin(id, limits, SpawnerOperation::Start(spec)).await?;
        Ok(Sandbox::new(started, lane))
    }

    /// Starts many programs with one request, or with several where it would be too long; returns
    /// when each has been executed or has failed, in the order of `specs`. A failure does not
    /// affect the others. Starts whose lane dies meanwhile are tried once more.
    pub async fn start_many(&self, specs: Vec<SandboxSpec>) -> Vec<Result<Sandbox>> {
        let mut started = self.start_many_once(specs.clone()).await;
        let is_lost = |one: &Result<Sandbox>| matches!(one, Err(Error::SpawnerLost));
        let lost: Vec<usize> =
            (0..started.len()).filter(|index| is_lost(&started[*index])).collect();
        let again = lost.iter().map(|index| specs[*index].clone()).collect::<Vec<_>>();
        if !again.is_empty() {
            let again = self.start_many_once(again).await;
            lost.into_iter().zip(again).for_each(|(index, one)| started[index] = one);
        }
        started
    }

    async fn start_many_once(&self, specs: Vec<SandboxSpec>) -> Vec<Result<Sandbox>> {
        let known = |spec: &SandboxSpec| (spec.id.clone(), spec.limits);
        let count = specs.len();
        let parts = match self.lanes.split(specs).await {
            Ok(parts) => parts,
            Err(error) => return (0..count).map(|_| Err(error.again())).collect(),
        };
        let mut pending = Vec::with_capacity(count);
        for (lane, specs) in parts {
            pending.extend(lane.request_many(specs, known, SpawnerOperation::StartMany).await);
        }
        // All lanes may have died since they were listed; callers rely on one result for each spec.
        pending.resize_with(count, || Err(Error::SpawnerLost));
        wait_for_all(pending).await
    }

    /// Starts a zygote; returns when its imports are done. There is no time limit: drop the future
    /// to kill the zygote.
    ///
    /// # Errors
    /// Fails as [`Self::start`], [`Error::ZygoteLost`] when the zygote ends before it is
    /// ready, and [`Error::ZygoteSlots`] when all slots are in use.
    pub async fn start_zygote(&self, spec: ZygoteSpec) -> Result<Zygote> {
        let id = spec.id.clone();
        let limits = spec.limits;
        // Each lane has slots of its own.
        let mut full = Vec::new();
        while let Some(lane) = self.lanes.pick_without(&id, &full).await? {
            let operation = SpawnerOperation::StartZygote(spec.clone());
            match lane.begin(id.clone(), limits, operation).await {
                // The slots of the other lanes are unknown here, so each is asked until one has a
                // slot.
                Err(Error::ZygoteSlots { .. }) => full.push(lane.lane()),
                started => return Ok(Zygote::new(started?, lane)),
            }
        }
        Err(Error::ZygoteSlots { id })
    }

    /// Forks a zygote into a new sandbox; returns when the child is about to call its entry. The
    /// child ends at the latest when its zygote ends.
    ///
    /// # Errors
    /// Fails as [`Self::start`], and [`Error::ZygoteLost`] when the zygote is dead or breaks
    /// its protocol.
    pub async fn fork(&self, zygote: &Zygote, spec: ForkSpec) -> Result<Sandbox> {
        let id = spec.id.clone();
        let limits = spec.limits;
        let lane = zygote.lane();
        let zygote: SandboxId = zygote.id().clone();
        let started = lane.begin(id, limits, SpawnerOperation::Fork { zygote, spec }).await?;
        Ok(Sandbox::new(started, lane.clone()))
    }

    /// Forks a zygote once for each spec, with one request; the results are in the order of
    /// `specs`. The forks do not wait for each other, and a failure does not affect the others.
    pub async fn fork_many(&self, zygote: &Zygote, specs: Vec<ForkSpec>) -> Vec<Result<Sandbox>> {
        let known = |spec: &ForkSpec| (spec.id.clone(), spec.limits);
        let operation = |specs| SpawnerOperation::ForkMany { zygote: zygote.id().clone(), specs };
        wait_for_all(zygote.lane().request_many(specs, known, operation).await).await
    }

    /// Forks a zygote into another that imports more: a copy of `parent` in its own sandbox with
    /// the root, limits, import path and imports of `spec`. Interpreter and environment are those
    /// of `parent`. The new zygote ends at the latest when `parent` ends, and `parent` does not end
    /// before it. A chain has at most three zygotes.
    ///
    /// # Errors
    /// Fails as [`Self::start_zygote`], and [`Error::Spec`] when `parent` can have no more
    /// zygotes below it.
    pub async fn grow(&self, parent: &Zygote, spec: ZygoteSpec) -> Result<Zygote> {
        let id = spec.id.clone();
        let limits = spec.limits;
        let zygote = parent.id().clone();
        let lane = parent.lane();
        let started = lane.begin(id, limits, SpawnerOperation::Grow { zygote, spec }).await?;
        Ok(Zygote::new(started, lane.clone()))
    }

    /// Makes an empty network namespace for the children of `owner`, or for programs if `owner` is
    /// `None`. The caller configures its interfaces, addresses and routes.
    ///
    /// # Errors
    /// Fails as [`Self::start`], and [`Error::ZygoteLost`].
    pub async fn make_network(&self, owner: Option<&Zygote>) -> Result<NetworkNamespace> {
        self.network(owner, Addresses::Free).await
    }

    /// Makes an empty network namespace like [`Self::make_network`], with a seccomp notifier in
    /// each sandbox of the network: calls that name an address wait until the caller has answered
    /// them ([`Sandbox::take_listener`]).
    ///
    /// # Errors
    /// Fails as [`Self::make_network`].
    pub async fn make_network_with_notifier(
        &self,
        owner: Option<&Zygote>,
    ) -> Result<NetworkNamespace> {
        self.network(owner, Addresses::Notifier).await
    }

    /// Makes an empty network namespace like [`Self::make_network`]. The entries of programs
    /// ([`Self::start_many_in`]) are written into this table of the kernel (a BPF map), whose keys
    /// are the numbers of control groups of version 2 in the machine's order of bytes.
    ///
    /// # Errors
    /// Fails as [`Self::make_network`].
    pub async fn make_network_with_table(
        &self,
        owner: Option<&Zygote>,
        table: BorrowedFd<'_>,
    ) -> Result<NetworkNamespace> {
        self.network(owner, Addresses::Table(table)).await
    }

    async fn network(
        &self,
        owner: Option<&Zygote>,
        addresses: Addresses<'_>,
    ) -> Result<NetworkNamespace> {
        let lane = match owner {
            // Only the lane of the zygote can put its children into a network.
            Some(zygote) => zygote.lane().clone(),
            None => self.lanes.pick(&no_sandbox()).await?,
        };
        let owner = owner.map(|zygote| zygote.id().clone());
        let network = LaneNetwork::new(lane);
        let namespace = network.lane().make_network(network.id(), owner, addresses).await?;
        Ok(NetworkNamespace::new(network, namespace))
    }

    /// Starts many programs in one network namespace, like [`Self::start_many`]; their specs name
    /// the network. A program that has an entry is executed only when the entry is in the table of
    /// the network.
    pub async fn start_many_in(
        &self,
        network: &NetworkNamespace,
        programs: Vec<NetworkProgram>,
    ) -> Vec<Result<Sandbox>> {
        let known = |one: &NetworkProgram| (one.program.id.clone(), one.program.limits);
        let pending = network.lane().request_many(programs, known, SpawnerOperation::StartManyIn);
        wait_for_all(pending.await).await
    }

    /// The current state of the spawner.
    pub fn health(&self) -> SpawnerHealth {
        self.lanes.health()
    }

    /// The maximum number of live zygotes that were not forked from another zygote.
    pub fn zygote_slots(&self) -> u32 {
        self.lanes.most() * ZYGOTES
    }

    /// Kills every sandbox, removes control groups and the run directory and ends the spawner;
    /// returns when all is removed.
    ///
    /// # Errors
    /// Only when a request cannot be encoded; a spawner that has ended already is not an error.
    pub async fn shutdown(&self) -> Result<()> {
        self.lanes.shutdown().await
    }
}

/// Waits for each start, in order.
async fn wait_for_all(pending: Vec<Result<PendingStart>>) -> Vec<Result<Sandbox>> {
    let mut started = Vec::with_capacity(pending.len());
    for pending in pending {
        started.push(match pending {
            Ok(pending) => {
                let lane = pending.lane().clone();
                pending.started().await.map(|started| Sandbox::new(started, lane))
            }
            Err(error) => Err(error),
        });
    }
    started
}
