//! Hosts that fail at random moments, and the repair of their trees.

use std::collections::BTreeSet;

use fastrand::Rng;

use crate::model::{BlockSources, Engine, Network, Observe, REGISTRY};
use crate::setting::Setting;

/// The effect of the failures in a simulation.
#[derive(Debug, Default)]
pub(crate) struct BurstFailures {
    /// The numbers of the hosts that failed.
    pub(crate) killed: BTreeSet<u32>,
    /// The number of times that a host got another parent.
    pub(crate) moves: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum HostEvent {
    Fail(u32),
    Repair(u32),
}

impl BurstFailures {
    /// Runs a simulation with failing hosts to its end. The moments of failures are evenly
    /// distributed over the time that an image takes over a host's share of its parent's link.
    ///
    /// # Errors
    /// An invariant does not hold: the message says which.
    pub(crate) fn run(
        setting: &Setting,
        random: &mut Rng,
        sources: &mut BlockSources,
        network: &Network,
        engine: &mut Engine,
        to: &mut dyn Observe,
    ) -> Result<Self, String> {
        let mut failures = Self::default();
        for (moment, event) in plan(setting, random) {
            engine.run(Some(moment), to)?;
            match event {
                HostEvent::Fail(host) => failures.fail(host, sources, network, engine),
                HostEvent::Repair(host) => failures.repair(host, sources, network, engine)?,
            }
        }
        engine.run(None, to)?;
        Ok(failures)
    }

    fn fail(&mut self, host: u32, sources: &BlockSources, network: &Network, engine: &mut Engine) {
        self.killed.insert(host);
        for tree in 0..sources.count() {
            if let Some(&stream) = network.streams.get(&(tree, host)) {
                engine.fail(stream);
            }
        }
    }

    fn repair(
        &mut self,
        host: u32,
        sources: &mut BlockSources,
        network: &Network,
        engine: &mut Engine,
    ) -> Result<(), String> {
        match sources {
            BlockSources::Trees(trees) => {
                for (number, tree) in (0..).zip(trees) {
                    for step in tree.remove(&host) {
                        self.reconnect(number, step.host, step.to, network, engine);
                    }
                    tree.check().map_err(|broken| format!("tree {number}: {broken}"))?;
                }
            }
            BlockSources::Striped(images) => {
                for (image, striped) in (0..).zip(images) {
                    let first = image * striped.stripes() as u32;
                    for step in striped.remove(&host) {
                        let tree = first + step.stripe as u32;
                        self.reconnect(tree, step.host, step.to, network, engine);
                    }
                    striped.check().map_err(|broken| format!("image {image}: {broken}"))?;
                }
            }
            BlockSources::Registry(_) => {}
        }
        Ok(())
    }

    fn reconnect(
        &mut self,
        tree: u32,
        host: u32,
        to: Option<u32>,
        network: &Network,
        engine: &mut Engine,
    ) {
        self.moves += 1;
        let parent = to.map_or(REGISTRY, |parent| network.streams[&(tree, parent)]);
        engine.reconnect(network.streams[&(tree, host)], parent, network.up(parent));
    }
}

/// Returns the failures and repairs in the order of their moments, in nanoseconds.
fn plan(setting: &Setting, random: &mut Rng) -> Vec<(u64, HostEvent)> {
    let seconds = setting.image as f64 * setting.fanout.get() as f64 / setting.link as f64;
    let mut hosts: Vec<u32> = (0..setting.hosts).collect();
    random.shuffle(&mut hosts);
    let mut events = Vec::new();
    for &host in &hosts[..setting.kill as usize] {
        let moment = (random.f64() * seconds * 1e9) as u64;
        events.push((moment, HostEvent::Fail(host)));
        events.push((moment + setting.detect.as_nanos() as u64, HostEvent::Repair(host)));
    }
    events.sort_unstable();
    events
}
