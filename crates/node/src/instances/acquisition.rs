//! Acquires instances: from the handler cache, from the prewarmed ones, or by a new start. Returns
//! them to the handler cache when their last call has ended.

use std::sync::Arc;

use snowmelt_api::Start;
use snowmelt_ledger::Use;
use snowmelt_sandbox::{ForkSpec, Network, SandboxSpec, SyscallPolicy};
use snowmelt_types::{Digest, SandboxId};

use super::Instances;
use super::instance::Instance;
use super::slots::SharedInstance;
use super::zygote_room::{InstanceRoom, needs_zygote};
use crate::import_cache::Child;
use crate::resources::account::{InstanceRooms, zygote};
use crate::user_code::unit::{ENTRY, Forked, LOAD_AHEAD, WarmStart};
use crate::{Error, InstanceLimits, Program, Result, Unit};

/// The environment variables of one instance: names and values.
pub type Environment = Vec<(String, String)>;

impl Instances {
    /// Fills new slots with idle and prewarmed instances; starts the rest in one request.
    pub(crate) async fn fill(
        self: &Arc<Self>,
        unit: &Unit,
        limits: &InstanceLimits,
        key: &Digest,
        slots: &[Arc<SharedInstance>],
        room: InstanceRoom,
    ) -> Vec<Result<Start>> {
        let channels = slots.iter().map(|_| tokio::sync::oneshot::channel());
        let (senders, receivers): (Vec<_>, Vec<_>) = channels.unzip();
        let filling = slots
            .iter()
            .zip(receivers)
            .map(|(slot, own)| slot.fill(async { own.await.unwrap_or(Err(Error::NOT_STARTED)) }));
        let deliver = async {
            let instances = self.instances(unit, limits, key, slots.len(), room).await;
            for (sender, instance) in senders.into_iter().zip(instances) {
                // A caller that joined may have filled the slot already; the instance is then kept
                // for another.
                if let Err(Ok((instance, _))) = sender.send(instance) {
                    self.take_back(key, limits, instance);
                }
            }
        };
        let ((), filled) = tokio::join!(deliver, futures::future::join_all(filling));
        filled
    }

    /// Waits for the instance of a slot that was joined. Starts one if the first caller of the slot
    /// could not, and with `waits` waits for room for it.
    pub(crate) async fn join(
        self: &Arc<Self>,
        unit: &Unit,
        limits: &InstanceLimits,
        key: &Digest,
        slot: &SharedInstance,
        waits: bool,
    ) -> Result<Start> {
        let start = async {
            let room = match waits {
                true => InstanceRoom::Asked(Use::Function),
                false => InstanceRoom::AtOnce(Use::Function),
            };
            let mut started = self.instances(unit, limits, key, 1, room).await;
            started.pop().unwrap_or(Err(Error::NOT_STARTED))
        };
        slot.fill(start).await
    }

    async fn instances(
        self: &Arc<Self>,
        unit: &Unit,
        limits: &InstanceLimits,
        key: &Digest,
        count: usize,
        room: InstanceRoom,
    ) -> Vec<Result<(Arc<Instance>, Start)>> {
        let mut found: Vec<Result<_>> = Vec::with_capacity(count);
        while found.len() < count {
            // Idle ones first: they need no room, and room that was reserved for them is given
            // back.
            let Some(idle) = self.waiting(key) else { break };
            found.push(Ok(idle));
        }
        let missing = count - found.len();
        if missing == 0 {
            return found;
        }
        let is_first = found.is_empty();
        match self.rooms(unit, limits, room, missing, is_first).await {
            Ok(rooms) => {
                let started = self.start_new(unit, limits, rooms).await;
                let shared = |(one, start): (Instance, Start)| (Arc::new(one), start);
                found.extend(started.into_iter().map(|one| one.map(shared)));
            }
            Err(error) => found.push(Err(error)),
        }
        let ask = self.account.ask(&unit.tenant, Use::Function, self.account.instance(limits));
        // Each of the callers gets an answer, also those for whom there was no room.
        found.resize_with(count, || Err(self.account.ledger.no_room(&ask).into()));
        found
    }

    /// Returns room for new instances: the room that was reserved before, or as much as there is. A
    /// caller that has an instance already does not wait for another.
    async fn rooms(
        &self,
        unit: &Unit,
        limits: &InstanceLimits,
        room: InstanceRoom,
        missing: usize,
        is_first: bool,
    ) -> Result<InstanceRooms> {
        let account = &self.account;
        match room {
            InstanceRoom::Given(mut rooms) => {
                rooms.each.truncate(missing);
                Ok(rooms)
            }
            InstanceRoom::Asked(use_) if is_first => {
                account.rooms(&self.imports, unit, limits, use_, missing).await
            }
            InstanceRoom::Asked(use_) | InstanceRoom::AtOnce(use_) => {
                let first = needs_zygote(&self.imports, unit).then(zygote);
                let rooms = account.rooms_at_once(&unit.tenant, limits, use_, missing, first);
                Ok(rooms.unwrap_or_default())
            }
        }
    }

    /// Takes an idle instance or else a prewarmed one; `None` if none waits.
    pub(crate) fn waiting(self: &Arc<Self>, key: &Digest) -> Option<(Arc<Instance>, Start)> {
        while let Some(instance) = self.idle.take(key) {
            if instance.is_sound() {
                return Some((instance, Start::Idle));
            }
        }
        while let Some(instance) = self.prewarmed.take(key) {
            if instance.is_sound() {
                return Some((instance, Start::Prewarmed));
            }
        }
        None
    }

    /// Starts an instance in each room, all in one request.
    pub(crate) async fn start_new(
        &self,
        unit: &Unit,
        limits: &InstanceLimits,
        rooms: InstanceRooms,
    ) -> Vec<Result<(Instance, Start)>> {
        // The caller loads the function next.
        let own = match &unit.start {
            WarmStart::Zygote(_) => vec![(LOAD_AHEAD.to_owned(), unit.code())],
            WarmStart::Program(_) => Vec::new(),
        };
        let own = vec![own; rooms.each.len()];
        self.start_each(unit, limits, &own, rooms).await
    }

    /// Starts an instance for each of `own`, whose variables it has in its environment beside the
    /// function's, all in one request. No code of the user runs before it is loaded.
    pub(crate) async fn start_each(
        &self,
        unit: &Unit,
        limits: &InstanceLimits,
        own: &[Environment],
        rooms: InstanceRooms,
    ) -> Vec<Result<(Instance, Start)>> {
        if own.is_empty() {
            return Vec::new();
        }
        let with_unit = |one: &Environment| unit.own.environment().chain(one.clone()).collect();
        let own: Vec<Environment> = own.iter().map(with_unit).collect();
        match &unit.start {
            WarmStart::Zygote(forked) => self.fork(unit, forked, limits, &own, rooms).await,
            WarmStart::Program(program) => self.execute(unit, program, limits, &own, rooms).await,
        }
    }

    async fn fork(
        &self,
        unit: &Unit,
        forked: &Forked,
        limits: &InstanceLimits,
        own: &[Environment],
        InstanceRooms { each, zygote }: InstanceRooms,
    ) -> Vec<Result<(Instance, Start)>> {
        let spec = |own: &Environment| ForkSpec {
            network: None,
            id: SandboxId::new(),
            root: unit.root.clone(),
            env: limits.environment.clone().into_iter().chain(own.clone()).collect(),
            limits: limits.of_sandbox(),
            entry: ENTRY.to_owned(),
            sys_path: forked.source.python_path.clone(),
        };
        let specs = own.iter().map(spec).collect();
        // Boxed, so that callers that find an instance do not carry its size.
        let forking = Box::pin(self.imports.fork(&forked.want, &forked.source, specs, &zygote));
        let started = forking.await;
        let instance = |(sandbox, child): (_, Child), room| {
            let start = Start::from(child.found);
            let instance = Instance::new(sandbox, Some(child), limits.log, room)?;
            Ok((instance.of(unit), start))
        };
        let started = started.into_iter().zip(each);
        started.map(|(one, room)| one.and_then(|one| instance(one, room))).collect()
    }

    async fn execute(
        &self,
        unit: &Unit,
        program: &Program,
        limits: &InstanceLimits,
        own: &[Environment],
        rooms: InstanceRooms,
    ) -> Vec<Result<(Instance, Start)>> {
        let mut env = program.environment.clone();
        env.extend(limits.environment.clone());
        let root = self.images.current(&unit.root);
        let spec = |own: &Environment| SandboxSpec {
            id: SandboxId::new(),
            root: root.clone(),
            command: program.command.clone(),
            env: env.iter().chain(own).cloned().collect(),
            limits: limits.of_sandbox(),
            network: Network::None,
            policy: SyscallPolicy::Function,
            process: limits.of_process(&program.process),
        };
        let started = self.spawner.start_many(own.iter().map(spec).collect()).await;
        let instance = |sandbox, room| {
            let instance = Instance::new(sandbox, None, limits.log, room)?.of(unit);
            Ok((instance, Start::Program))
        };
        let started = started.into_iter().zip(rooms.each);
        started.map(|(one, room)| instance(one.map_err(Error::from)?, room)).collect()
    }

    /// Keeps an instance whose last call has ended, paused, if it is sound, has room of its own and
    /// nobody waits for room.
    pub(crate) fn take_back(&self, key: &Digest, limits: &InstanceLimits, instance: Arc<Instance>) {
        if limits.idle.is_zero() || !instance.is_sound() || !instance.has_room() {
            return;
        }
        // The room of this instance goes to the request that waits for it.
        if self.account.ledger.is_wanted() {
            return;
        }
        let memory = instance.memory();
        if instance.pause() {
            // What had to make room for it is destroyed here, outside of the pool's lock.
            drop(self.idle.put(key.clone(), instance, limits.idle, memory));
            self.imports.instance_is_idle();
            // A request that began to wait meanwhile did not find this instance.
            self.account.make_room();
        }
    }
}
