//! The instances of a job: one for each rank, always new, and never used for anything else
//! afterwards.

use std::sync::Arc;
use std::time::{Duration, Instant};

use snowmelt_api::Start;
use snowmelt_ledger::{Amount, Reservation, Use};
use snowmelt_sandbox::Error::{SpawnerLost, ZygoteLost};
use snowmelt_sandbox::{ForkSpec, Network, NetworkProgram, Sandbox, SandboxSpec, SyscallPolicy};
use snowmelt_types::{Digest, JobId, SandboxId};

use super::Instances;
use super::acquisition::Environment;
use super::instance::Instance;
use super::zygote_room::needs_zygote;
use crate::import_cache::Child;
use crate::networks::network::RankNetwork;
use crate::resources::account::{InstanceRooms, ZygoteRoom, zygote};
use crate::user_code::unit::{ENTRY, WarmStart};
use crate::{Error, InstanceLease, InstanceLimits, Result, Unit};

/// The room of a part of a burst: for all of its ranks, and for the zygote that they are forked
/// from if it does not run.
#[derive(Debug)]
pub struct PartRoom {
    ranks: Reservation,
    /// The room of the zygote.
    pub zygote: ZygoteRoom,
}

impl PartRoom {
    fn split(self, count: usize) -> InstanceRooms {
        let Self { ranks, zygote } = self;
        InstanceRooms { each: ranks.split(count).into_iter().map(Some).collect(), zygote }
    }
}

impl Instances {
    /// Reserves the room of a part, all of it or none: the full limits of `count` ranks, because
    /// the ranks of a burst all work at the same time. Idle sandboxes are ended to make room.
    ///
    /// # Errors
    /// [`Error::NoRoom`] when there is no room within `patience`, and at once for more than the
    /// capacity of the host.
    pub(crate) async fn reserve_part(
        &self,
        unit: &Unit,
        limits: &InstanceLimits,
        count: usize,
        patience: Duration,
    ) -> Result<PartRoom> {
        let account = &self.account;
        let first = needs_zygote(&self.imports, unit).then(zygote);
        let ranks = Amount::one(limits.memory, limits.cpu).times(count as u64);
        let ask = account.ask(&unit.tenant, Use::Burst, ranks + first.unwrap_or_default());
        let mut ranks = account.within(ask, patience).await?;
        let zygote = first.map(|amount| ranks.take(amount, Use::Zygote));
        Ok(PartRoom { ranks, zygote: ZygoteRoom::new(zygote) })
    }

    /// Starts a new instance for each of `environments`, whose variables it has beside the
    /// function's own, all in one request to the spawner, and in the job's network if the job has
    /// one. Each instance fails or starts by itself, and owns its part of `room`.
    pub(crate) async fn lease_ranks(
        self: &Arc<Self>,
        unit: &Unit,
        limits: &Arc<InstanceLimits>,
        job: &JobId,
        environments: Vec<Environment>,
        network: Option<&RankNetwork>,
        room: PartRoom,
    ) -> Vec<Result<InstanceLease>> {
        let asked = Instant::now();
        // The key is the job's own: a call of the function does not find these instances.
        let key = Digest::of_parts([limits.key(&unit.digest).as_str(), job.as_str()]);
        let rooms = room.split(environments.len());
        let started = match network {
            None => self.start_each(unit, limits, &environments, rooms).await,
            Some(network) => {
                let started = self.start_in(unit, limits, environments, network, rooms).await;
                let held = |(slot, started): (u32, Result<(Instance, Start)>)| {
                    let (mut instance, start) = started?;
                    network.attach(&mut instance.sandbox, slot)?;
                    Ok((instance, start))
                };
                (0..).zip(started).map(held).collect()
            }
        };
        let lease = |started: Result<(Instance, Start)>| {
            let (instance, start) = started?;
            let (slot, _) = self.slots.take(&key, 1);
            // The slot is new, so it is empty.
            let _ = slot.instance.set(Arc::new(instance));
            let instances = Arc::clone(self);
            let key = key.clone();
            let tenant = unit.tenant.clone();
            let limits = Arc::clone(limits);
            let lease = InstanceLease::reserve(instances, key, tenant, limits, slot, asked);
            Ok(lease.begin(start))
        };
        started.into_iter().map(lease).collect()
    }
}

impl Instances {
    async fn start_in(
        &self,
        unit: &Unit,
        limits: &InstanceLimits,
        environments: Vec<Environment>,
        network: &RankNetwork,
        rooms: InstanceRooms,
    ) -> Vec<Result<(Instance, Start)>> {
        let mut root = unit.root.clone();
        root.binds.extend(network.binds());
        let of_function = limits.environment.clone().into_iter();
        let own: Environment = of_function.chain(unit.own.environment()).collect();
        match (&unit.start, &network.zygote) {
            (WarmStart::Zygote(forked), Some((member, found))) => {
                let spec = |environment: Environment| ForkSpec {
                    id: SandboxId::new(),
                    root: root.clone(),
                    env: own.iter().cloned().chain(environment).collect(),
                    limits: limits.of_sandbox(),
                    network: Some(network.namespace.id()),
                    entry: ENTRY.to_owned(),
                    sys_path: forked.source.python_path.clone(),
                };
                let specs = environments.into_iter().map(spec).collect();
                let forked = self.spawner.fork_many(member.zygote(), specs).await;
                if forked.iter().any(|one| matches!(one, Err(ZygoteLost { .. } | SpawnerLost))) {
                    self.imports.release(member);
                }
                let start = Start::from(*found);
                let child = || Some(member.child(*found));
                let made = |(sandbox, room)| made(sandbox, child(), unit, limits, start, room);
                forked.into_iter().zip(rooms.each).map(made).collect()
            }
            (WarmStart::Program(program), _) => {
                let variables = |environment: Environment| {
                    let known = program.environment.iter().chain(&own).cloned();
                    known.chain(environment).collect()
                };
                let spec = |environment: Environment| SandboxSpec {
                    id: SandboxId::new(),
                    root: root.clone(),
                    command: program.command.clone(),
                    env: variables(environment),
                    limits: limits.of_sandbox(),
                    network: Network::Job(network.namespace.id()),
                    policy: SyscallPolicy::Function,
                    process: limits.of_process(&program.process),
                };
                // Without an entry [`RankNetwork::attach`] fails for the same reason.
                let of_slot = |(slot, environment)| NetworkProgram {
                    program: spec(environment),
                    entry: network.entry(slot).ok().flatten(),
                };
                let programs = (0..).zip(environments).map(of_slot).collect();
                let started = self.spawner.start_many_in(&network.namespace, programs).await;
                let start = Start::Program;
                let made = |(sandbox, room)| made(sandbox, None, unit, limits, start, room);
                started.into_iter().zip(rooms.each).map(made).collect()
            }
            (WarmStart::Zygote(_), None) => Vec::new(),
        }
    }
}

fn made(
    sandbox: snowmelt_sandbox::Result<Sandbox>,
    child: Option<Child>,
    unit: &Unit,
    limits: &InstanceLimits,
    start: Start,
    room: Option<Reservation>,
) -> Result<(Instance, Start)> {
    let sandbox = sandbox.map_err(Error::from)?;
    Ok((Instance::new(sandbox, child, limits.log, room)?.of(unit), start))
}
