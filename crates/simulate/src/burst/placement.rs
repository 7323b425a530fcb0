//! The assignment of containers to hosts, and the sources that the hosts read from at the
//! beginning.

use std::collections::HashMap;

use fastrand::Rng;
use snowmelt_tree::{Striped, Tree};

use crate::model::{BlockSources, HostSlot, Local, Network};
use crate::setting::Setting;
use crate::strategy::Strategy;

/// The hosts of one function, in the order in which they join its tree.
pub(crate) struct Placement {
    pub(crate) hosts: Vec<u32>,
    /// The number of containers on each host.
    each: u32,
    /// For each host, whether it has one more container.
    fuller: Vec<bool>,
}

impl Placement {
    /// Places the containers of each function on as many hosts as possible, in an order of its own.
    pub(crate) fn of_all(setting: &Setting, random: &mut Rng) -> Vec<Self> {
        (0..setting.functions).map(|function| Self::of(setting, function, random)).collect()
    }

    fn of(setting: &Setting, function: u32, random: &mut Rng) -> Self {
        let containers = setting.containers_of(function);
        let mut hosts: Vec<u32> = (0..setting.hosts).collect();
        random.shuffle(&mut hosts);
        hosts.truncate(containers as usize);
        let count = hosts.len() as u32;
        let mut fuller = vec![false; setting.hosts as usize];
        for &host in &hosts[..(containers % count) as usize] {
            fuller[host as usize] = true;
        }
        Self { hosts, each: containers / count, fuller }
    }
}

/// Builds the trees, or the lists of hosts that read from the registry.
pub(crate) fn sources(
    setting: &Setting,
    strategy: Strategy,
    placements: &[Placement],
    random: &mut Rng,
) -> BlockSources {
    let planted = |hosts: &[u32]| {
        let mut tree = Tree::with_repair(setting.fanout, setting.repair);
        for &host in hosts {
            tree.insert(host);
        }
        tree
    };
    match strategy {
        Strategy::Tree => {
            BlockSources::Trees(placements.iter().map(|placed| planted(&placed.hosts)).collect())
        }
        Strategy::Layers => {
            let mut trees = Vec::new();
            for placed in placements {
                for _ in 0..setting.layers {
                    let mut hosts = placed.hosts.clone();
                    random.shuffle(&mut hosts);
                    trees.push(planted(&hosts));
                }
            }
            BlockSources::Trees(trees)
        }
        Strategy::Stripes => {
            let striped = |placed: &Placement| {
                let mut striped = Striped::new(setting.fanout);
                for &host in &placed.hosts {
                    striped.insert(host);
                }
                striped
            };
            BlockSources::Striped(placements.iter().map(striped).collect())
        }
        Strategy::Registry | Strategy::Pull => {
            BlockSources::Registry(placements.iter().map(|placed| placed.hosts.clone()).collect())
        }
    }
}

/// Adds a slot for each function on each host, or on each host of a group.
pub(crate) fn add_slots(
    setting: &Setting,
    placements: &[Placement],
    parts: u32,
    network: &Network,
    local: &mut Local,
) {
    let mut functions_of = vec![0_u32; setting.hosts as usize];
    for &host in placements.iter().flat_map(|placed| &placed.hosts) {
        functions_of[host as usize] += 1;
    }
    let mut slots: HashMap<(u32, u32), u32> = HashMap::new();
    for receiver in &network.receivers {
        let function = receiver.tree / parts;
        let host = receiver.host;
        let slot = *slots.entry((function, host)).or_insert_with(|| {
            let crowd = f64::from(functions_of[host as usize]) / f64::from(setting.cores);
            let per_byte = crowd.max(1.0) * 1e9 / setting.read_rate as f64;
            local.slots.push(HostSlot::new(placements[function as usize].each, per_byte));
            (local.slots.len() - 1) as u32
        });
        local.add_stream(slot);
    }
    for &(host, stream) in &network.members {
        let tree = network.receivers[stream as usize].tree;
        // A slot has a stream for each part of the image.
        if tree.is_multiple_of(parts) {
            let fuller = placements[(tree / parts) as usize].fuller[host as usize];
            let slot = local.slot_of(stream);
            local.slots[slot as usize].add_host(fuller);
        }
    }
}
