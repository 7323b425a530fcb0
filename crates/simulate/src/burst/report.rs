//! The outcome of a simulation that has ended.

use super::failures::BurstFailures;
use super::outcome::{SimulationOutcome, Spread};
use crate::model::{BlockSources, Engine, HostSlot, Local, Network};
use crate::setting::Setting;
use crate::strategy::Strategy;

/// The final state of a simulated burst.
pub(crate) struct BurstReport<'a> {
    pub(crate) setting: &'a Setting,
    pub(crate) strategy: Strategy,
    pub(crate) sources: BlockSources,
    pub(crate) network: Network,
    pub(crate) engine: Engine,
    pub(crate) local: Local,
    pub(crate) failures: BurstFailures,
}

impl BurstReport<'_> {
    pub(crate) fn outcome(&self) -> SimulationOutcome {
        let mut arrived = Vec::new();
        let mut started = Vec::new();
        let mut whole = Vec::new();
        for (slot, late) in self.survivors() {
            let hosts = u64::from(slot.hosts);
            whole.push((slot.whole + late, hosts));
            arrived.push((self.arrived(slot) + late, hosts));
            self.starts(slot, late, &mut started);
        }
        SimulationOutcome {
            strategy: self.strategy,
            hosts: whole.iter().map(|&(_, hosts)| hosts).sum(),
            containers: started.iter().map(|&(_, containers)| containers).sum(),
            arrived: Spread::new(arrived),
            started: Spread::new(started),
            whole: Spread::new(whole),
            registry_bytes: self.engine.from_registry.round() as u64,
            received_bytes: self.received(),
            lost_bytes: self.engine.lost.round() as u64,
            levels: self.sources.levels(),
            killed: self.failures.killed.len() as u64,
            moves: self.failures.moves,
            streams: self.network.receivers.len() as u64,
            events: self.engine.handled,
            seed: self.setting.seed,
        }
    }

    /// The slots of hosts that did not fail, each with the delay of the hops to the registry in
    /// nanoseconds.
    fn survivors(&self) -> Vec<(&HostSlot, u64)> {
        let mut hops = vec![None; self.local.slots.len()];
        for (stream, receiver) in (0..).zip(&self.network.receivers) {
            if self.engine.alive(stream) {
                let depth = match self.sources.depth(receiver.tree, receiver.host) {
                    Some(depth) if self.setting.kill > 0 => depth,
                    _ => receiver.depth,
                };
                let entry = &mut hops[self.local.slot_of(stream) as usize];
                *entry = (*entry).max(Some(u64::from(depth) + 1));
            }
        }
        let delay = self.setting.delay.as_nanos() as u64;
        let slots = self.local.slots.iter().zip(hops);
        slots.filter_map(|(slot, hops)| Some((slot, hops? * delay))).collect()
    }

    fn arrived(&self, slot: &HostSlot) -> u64 {
        if self.strategy == Strategy::Pull { slot.whole } else { slot.arrived }
    }

    /// Adds the moments at which the containers of a function start on its hosts.
    fn starts(&self, slot: &HostSlot, late: u64, started: &mut Vec<(u64, u64)>) {
        let read = match self.strategy {
            // The files of an image that was just unpacked are in memory.
            Strategy::Pull => slot.whole + self.unpacking(slot),
            _ => slot.read,
        };
        let first = read + late + self.setting.tail.as_nanos() as u64;
        let fork = self.setting.fork.as_nanos() as u64;
        started.extend(
            (0..slot.each).map(|index| (first + u64::from(index) * fork, u64::from(slot.hosts))),
        );
        started.push((first + u64::from(slot.each) * fork, u64::from(slot.fuller)));
    }

    fn unpacking(&self, slot: &HostSlot) -> u64 {
        // Functions on one host slow their unpacking as they slow their reading.
        let crowd = slot.per_byte * self.setting.read_rate as f64;
        (self.setting.image as f64 * crowd / self.setting.unpack_rate as f64) as u64
    }

    fn received(&self) -> u64 {
        let receivers = (0..).zip(&self.network.receivers);
        receivers.map(|(stream, receiver)| self.local.got(stream) * u64::from(receiver.hosts)).sum()
    }
}
