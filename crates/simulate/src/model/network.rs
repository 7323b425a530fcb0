//! The streams of a simulation: for each tree, one stream into each of its hosts.
//!
//! Hosts that cannot differ form one group, which is simulated once. These are hosts with the same
//! number of siblings, below parents of one group. A tree of 100,000 hosts has about thirty groups.
//! Hosts are simulated one by one where they can differ: if some fail, or if trees share links.

use std::collections::HashMap;
use std::ops::Range;

use snowmelt_tree::{Striped, Tree};

use super::engine::{Engine, REGISTRY};
use crate::setting::Setting;

/// The sources from which hosts read images.
pub(crate) enum BlockSources {
    /// A tree of hosts for each image. Hosts are numbers.
    Trees(Vec<Tree<u32>>),
    /// Several trees for each image, each for a part of its blocks.
    Striped(Vec<Striped<u32>>),
    /// The registry, for each host. There is a list of hosts for each image.
    Registry(Vec<Vec<u32>>),
}

/// A stream into a host, or into each host of a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receiver {
    /// The host, or one host of the group.
    pub(crate) host: u32,
    /// The number of hosts in the group, 1 for a single host.
    pub(crate) hosts: u32,
    /// The number of hops to the root of the tree, which reads from the registry: 0 for the root.
    pub(crate) depth: u32,
    /// The number of the tree, or of the image if there are no trees.
    pub(crate) tree: u32,
}

/// The receivers, in the order of the engine's streams.
pub(crate) struct Network {
    pub(crate) receivers: Vec<Receiver>,
    /// Each host with the number of its stream, or of its group's stream: one entry for each tree.
    pub(crate) members: Vec<(u32, u32)>,
    /// The stream of each pair of tree and host, where hosts are simulated one by one.
    pub(crate) streams: HashMap<(u32, u32), u32>,
    /// The links of each host where hosts are simulated one by one: up, then down.
    pub(crate) links: Vec<[u32; 2]>,
    pub(crate) registry: u32,
}

impl BlockSources {
    /// The number of trees, or of images if there are no trees.
    pub(crate) fn count(&self) -> u32 {
        match self {
            Self::Trees(trees) => trees.len() as u32,
            Self::Striped(images) => images.iter().map(Striped::stripes).sum::<usize>() as u32,
            Self::Registry(images) => images.len() as u32,
        }
    }

    /// The number of levels of the highest tree.
    pub(crate) fn levels(&self) -> u32 {
        match self {
            Self::Trees(trees) => trees.iter().map(Tree::height).max().unwrap_or(0) as u32,
            Self::Striped(images) => images.iter().map(Striped::height).max().unwrap_or(0) as u32,
            Self::Registry(_) => 0,
        }
    }

    /// The number of hops from a host to the root of a tree. `None` if the host is not in the tree.
    pub(crate) fn depth(&self, tree: u32, host: u32) -> Option<u32> {
        match self {
            Self::Trees(trees) => trees[tree as usize].depth(&host).map(|depth| depth as u32),
            Self::Striped(images) => {
                let stripes = images[0].stripes();
                let image = tree as usize / stripes;
                let stripe = tree as usize % stripes;
                images[image].depth(stripe, &host).map(|depth| depth as u32)
            }
            Self::Registry(_) => None,
        }
    }
}

impl Network {
    pub(crate) fn build(
        setting: &Setting,
        sources: &BlockSources,
        grouped: bool,
        engine: &mut Engine,
    ) -> Self {
        let registry = engine.links.link(setting.registry_link as f64);
        let receivers = Vec::new();
        let members = Vec::new();
        let links = Vec::new();
        let mut network = Self { receivers, members, streams: HashMap::new(), links, registry };
        match sources {
            BlockSources::Trees(trees) if grouped => {
                network.add_groups(setting, &trees[0], engine);
            }
            BlockSources::Registry(images) if grouped => {
                let hosts = &images[0];
                let down = engine.links.link(setting.link as f64);
                let count = hosts.len() as u32;
                engine.add(REGISTRY, registry, down, f64::from(count));
                let host = hosts.first().copied().unwrap_or(0);
                network.receivers.push(Receiver { host, hosts: count, depth: 0, tree: 0 });
                network.members.extend(hosts.iter().map(|&host| (host, 0)));
            }
            BlockSources::Trees(trees) => {
                network.add_links(setting, engine);
                for (tree, hosts) in (0..).zip(trees) {
                    let parents = hosts.hosts().map(|host| (*host, hosts.parent(host).copied()));
                    network.add_tree(tree, parents, engine);
                }
            }
            BlockSources::Striped(images) => {
                network.add_links(setting, engine);
                let mut tree = 0;
                for hosts in images {
                    let first = tree;
                    for stripe in 0..hosts.stripes() {
                        let parent = |host: &u32| (*host, hosts.parent(stripe, host).copied());
                        network.add_tree(tree, hosts.hosts(stripe).map(parent), engine);
                        tree += 1;
                    }
                    network.read_on_demand(setting, first..tree, engine);
                }
            }
            BlockSources::Registry(images) => {
                network.add_links(setting, engine);
                for (image, hosts) in (0..).zip(images) {
                    for &host in hosts {
                        network.add_one(REGISTRY, host, image, 0, engine);
                    }
                }
            }
        }
        network
    }

    fn add_links(&mut self, setting: &Setting, engine: &mut Engine) {
        let rate = setting.link as f64;
        self.links
            .extend((0..setting.hosts).map(|_| [engine.links.link(rate), engine.links.link(rate)]));
    }

    /// Adds the streams of a tree. Parents come before their children.
    fn add_tree(
        &mut self,
        tree: u32,
        hosts: impl Iterator<Item = (u32, Option<u32>)>,
        engine: &mut Engine,
    ) {
        for (host, parent) in hosts {
            let parent = parent.map(|parent| self.streams[&(tree, parent)]);
            let depth = parent.map_or(0, |parent| self.receivers[parent as usize].depth + 1);
            self.add_one(parent.unwrap_or(REGISTRY), host, tree, depth, engine);
        }
    }

    /// Makes the streams of other stripes begin when the host has the blocks that it reads on
    /// demand, which are in the first stripe.
    fn read_on_demand(&self, setting: &Setting, mut trees: Range<u32>, engine: &mut Engine) {
        let blocks = setting.on_demand.div_ceil(setting.block) as u32;
        let Some(first) = trees.next().filter(|_| blocks > 0) else { return };
        for receiver in self.receivers.iter().filter(|receiver| trees.contains(&receiver.tree)) {
            let stream = self.streams[&(receiver.tree, receiver.host)];
            engine.begin_after(stream, self.streams[&(first, receiver.host)], blocks);
        }
    }

    fn add_one(&mut self, parent: u32, host: u32, tree: u32, depth: u32, engine: &mut Engine) {
        let up = self.up(parent);
        let stream = engine.add(parent, up, self.links[host as usize][1], 1.0);
        self.streams.insert((tree, host), stream);
        self.members.push((host, stream));
        self.receivers.push(Receiver { host, hosts: 1, depth, tree });
    }

    /// The number of the link over which the receiver of a stream sends.
    pub(crate) fn up(&self, parent: u32) -> u32 {
        match parent {
            REGISTRY => self.registry,
            _ => self.links[self.receivers[parent as usize].host as usize][0],
        }
    }

    fn add_groups(&mut self, setting: &Setting, tree: &Tree<u32>, engine: &mut Engine) {
        let rate = setting.link as f64;
        let mut groups: HashMap<(u32, u32), u32> = HashMap::new();
        let mut of_host: HashMap<u32, u32> = HashMap::new();
        for &host in tree.hosts() {
            let parent = tree.parent(&host);
            let above = parent.map_or(REGISTRY, |parent| of_host[parent]);
            let siblings = parent.map_or(1, |parent| tree.children(parent).count() as u32);
            let group = *groups.entry((above, siblings)).or_insert_with(|| {
                // Parents with as many children send over equal links, which is simulated once.
                let up = match above {
                    REGISTRY => self.registry,
                    _ => engine.links.link(rate),
                };
                let depth = match above {
                    REGISTRY => 0,
                    _ => self.receivers[above as usize].depth + 1,
                };
                self.receivers.push(Receiver { host, hosts: 0, depth, tree: 0 });
                let down = engine.links.link(rate);
                engine.add(above, up, down, f64::from(siblings))
            });
            self.receivers[group as usize].hosts += 1;
            self.members.push((host, group));
            of_host.insert(host, group);
        }
    }
}
