//! Instances of a job: one for each rank, always new, and never used for anything else afterwards.

use std::sync::Arc;
use std::time::Instant;

use snowmelt_api::Start;
use snowmelt_sandbox::Error::{SpawnerLost, ZygoteLost};
use snowmelt_sandbox::{ForkSpec, Network, Policy, Sandbox, SandboxSpec};
use snowmelt_types::{Digest, JobId, SandboxId};

use crate::acquire::Environment;
use crate::imports::Child;
use crate::instance::Instance;
use crate::network::RankNetwork;
use crate::node::Inner;
use crate::unit::{ENTRY, WarmStart};
use crate::{Error, InstanceLease, InstanceLimits, Node, Result, Unit};

impl Node {
    /// A new instance for each of `environments`, which it has beside the function's own, all in
    /// one request, in the job's network if it has one. The failure of one is its own.
    pub(crate) async fn lease_ranks(
        &self,
        unit: &Unit,
        limits: &Arc<InstanceLimits>,
        job: &JobId,
        environments: Vec<Environment>,
        network: Option<&RankNetwork>,
    ) -> Vec<Result<InstanceLease>> {
        let asked = Instant::now();
        // The job's own key: a call of the function does not find these instances.
        let key = Digest::of_parts([limits.key(&unit.digest).as_str(), job.as_str()]);
        let started = match network {
            None => self.inner.start_each(unit, limits, &environments).await,
            Some(network) => {
                let started = self.inner.start_in(unit, limits, environments, network).await;
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
            let (slot, _) = self.inner.slots.take(&key, 1);
            // The slot is new, so it is empty.
            let _ = slot.instance.set(Arc::new(instance));
            let (inner, whose) = (Arc::clone(&self.inner), (key.clone(), unit.tenant.clone()));
            let lease = InstanceLease::reserve(inner, whose, Arc::clone(limits), slot, asked);
            Ok(lease.begin(start))
        };
        started.into_iter().map(lease).collect()
    }
}

impl Inner {
    async fn start_in(
        &self,
        unit: &Unit,
        limits: &InstanceLimits,
        environments: Vec<Environment>,
        network: &RankNetwork,
    ) -> Vec<Result<(Instance, Start)>> {
        let mut root = unit.root.clone();
        root.binds.extend(network.binds());
        let image = unit.image();
        let own: Environment = limits.environment.clone().into_iter().collect();
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
                let made = |sandbox| made(sandbox, child(), &image, (limits, start));
                forked.into_iter().map(made).collect()
            }
            (WarmStart::Program(program), _) => {
                let spec = |environment: Environment| SandboxSpec {
                    id: SandboxId::new(),
                    root: root.clone(),
                    command: program.command.clone(),
                    env: program
                        .environment
                        .iter()
                        .chain(&own)
                        .cloned()
                        .chain(environment)
                        .collect(),
                    limits: limits.of_sandbox(),
                    network: Network::Job(network.namespace.id()),
                    policy: Policy::Function,
                    process: program.process.clone(),
                };
                let specs = environments.into_iter().map(spec).collect();
                let started = self.spawner.start_many_in(&network.namespace, specs).await;
                let made = |sandbox| made(sandbox, None, &image, (limits, Start::Program));
                started.into_iter().map(made).collect()
            }
            (WarmStart::Zygote(_), None) => Vec::new(),
        }
    }
}

fn made(
    sandbox: snowmelt_sandbox::Result<Sandbox>,
    child: Option<Child>,
    image: &Option<String>,
    (limits, start): (&InstanceLimits, Start),
) -> Result<(Instance, Start)> {
    let sandbox = sandbox.map_err(Error::from)?;
    Ok((Instance::new(sandbox, child, limits.log)?.in_image(image.clone()), start))
}
