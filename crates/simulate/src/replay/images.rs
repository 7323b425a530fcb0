//! The images of functions on their way to hosts that come and go: the trees of each function, and
//! the streams between its hosts.
//!
//! Invariant: a host that has a function has one stream for each part of its image, from the host's
//! parent in the tree of that part.

use std::collections::HashMap;

use snowmelt_tree::{Striped, Tree};

use crate::model::{Engine, HostSlot, ImageBlocks, Local, REGISTRY};
use crate::setting::Setting;
use crate::strategy::Strategy;

/// The number of changes after which trees are checked as a whole, as a part of the number of their
/// hosts.
const CHECKED_PART: usize = 16;

/// The source from which the hosts of a function read.
enum FunctionSource {
    Tree(Tree<u32>),
    Striped(Striped<u32>),
    Registry,
}

pub(super) struct ReplayImages {
    pub engine: Engine,
    pub local: Local,
    sources: Vec<FunctionSource>,
    /// For each function, the number of changes of its trees since they were checked.
    unchecked: Vec<usize>,
    /// For each function, the hosts in its trees. `None` if the trees have changed since this was
    /// computed.
    roles: Vec<Option<Vec<Role>>>,
    /// The stream of each pair of tree and host. Trees are numbered function by function.
    streams: HashMap<(u32, u32), u32>,
    /// The host of each stream.
    hosts: Vec<u32>,
    /// The links of each host: up, then down.
    links: Vec<[u32; 2]>,
    /// The rate of hosts' links in bytes a second.
    rate: f64,
    registry: u32,
    parts: u32,
    /// The number of times that a host got another parent.
    pub moves: u64,
    /// The number of levels of the highest tree so far.
    pub levels: usize,
}

/// A host in the trees of a function.
pub(super) struct Role {
    pub host: u32,
    /// The number of hosts above this one, in the tree where that is the least.
    pub depth: u32,
    /// Whether other hosts read from this one.
    pub is_inner: bool,
}

impl ReplayImages {
    pub fn new(setting: &Setting, strategy: Strategy, functions: usize) -> Self {
        let parts = strategy.parts(setting);
        let bytes = setting.image.div_ceil(u64::from(parts));
        let blocks = ImageBlocks::new(bytes, setting.block.min(bytes));
        let mut engine = Engine::new(blocks);
        let registry = engine.links.link(setting.registry_link as f64);
        let rate = setting.link as f64;
        let links = (0..setting.hosts)
            .map(|_| [engine.links.link(rate), engine.links.link(rate)])
            .collect();
        let source = |_| match strategy {
            Strategy::Tree => {
                FunctionSource::Tree(Tree::with_repair(setting.fanout, setting.repair))
            }
            Strategy::Stripes => FunctionSource::Striped(Striped::new(setting.fanout)),
            Strategy::Registry | Strategy::Pull | Strategy::Layers => FunctionSource::Registry,
        };
        Self {
            engine,
            local: Local::new(blocks, setting.start.div_ceil(u64::from(parts))),
            sources: (0..functions).map(source).collect(),
            unchecked: vec![0; functions],
            roles: (0..functions).map(|_| None).collect(),
            streams: HashMap::new(),
            hosts: Vec::new(),
            links,
            rate,
            registry,
            parts,
            moves: 0,
            levels: 0,
        }
    }

    /// Adds a host to the trees of a function: it begins to read the image. Returns the number of
    /// the host's slot.
    ///
    /// # Errors
    /// An invariant does not hold: the message says which.
    pub fn join(&mut self, function: u32, host: u32) -> Result<u32, String> {
        let slot = self.local.slots.len() as u32;
        self.local.slots.push(HostSlot::new(1, 0.0));
        let (parents, moves) = match &mut self.sources[function as usize] {
            FunctionSource::Tree(tree) => (vec![tree.insert(host).parent], Vec::new()),
            FunctionSource::Striped(striped) => {
                let moves = striped.insert(host);
                let stripes = 0..striped.stripes();
                (stripes.map(|stripe| striped.parent(stripe, &host).copied()).collect(), moves)
            }
            FunctionSource::Registry => (vec![None], Vec::new()),
        };
        for (part, parent) in (0..).zip(parents) {
            let tree = self.tree(function, part);
            let parent = parent.map_or(REGISTRY, |parent| self.streams[&(tree, parent)]);
            let up = self.up(parent);
            let stream = self.engine.add(parent, up, self.links[host as usize][1], 1.0);
            self.streams.insert((tree, host), stream);
            self.hosts.push(host);
            self.local.add_stream(slot);
        }
        for step in moves {
            self.reconnect(self.tree(function, step.stripe as u32), step.host, step.to);
        }
        self.changed(function)?;
        Ok(slot)
    }

    /// Gives a host that has just joined the whole image.
    pub fn fill(&mut self, function: u32, host: u32) {
        for part in 0..self.parts {
            let stream = self.streams[&(self.tree(function, part), host)];
            self.engine.fill(stream);
            self.local.fill(stream);
        }
    }

    /// Adds a new, empty host.
    pub fn add_host(&mut self) {
        let links = &mut self.engine.links;
        self.links.push([links.link(self.rate), links.link(self.rate)]);
    }

    /// Interrupts all streams from and to a host that has failed. The host stays in the trees until
    /// it [leaves](Self::leave) them.
    pub fn fail(&mut self, function: u32, host: u32) {
        for part in 0..self.parts {
            if let Some(&stream) = self.streams.get(&(self.tree(function, part), host)) {
                self.engine.fail(stream);
            }
        }
    }

    /// The number of streams so far.
    pub fn streams(&self) -> u64 {
        self.hosts.len() as u64
    }

    /// Whether hosts read from each other.
    pub fn has_trees(&self) -> bool {
        self.sources.iter().any(|source| !matches!(source, FunctionSource::Registry))
    }

    /// Removes a host from the trees of a function, because the function is taken back or the host
    /// has failed. The host keeps nothing of the image.
    ///
    /// # Errors
    /// Fails as [`Self::join`].
    pub fn leave(&mut self, function: u32, host: u32) -> Result<(), String> {
        for part in 0..self.parts {
            if let Some(stream) = self.streams.remove(&(self.tree(function, part), host)) {
                self.engine.leave(stream);
            }
        }
        match &mut self.sources[function as usize] {
            FunctionSource::Tree(tree) => {
                for step in tree.remove(&host) {
                    self.reconnect(self.tree(function, 0), step.host, step.to);
                }
            }
            FunctionSource::Striped(striped) => {
                for step in striped.remove(&host) {
                    self.reconnect(self.tree(function, step.stripe as u32), step.host, step.to);
                }
            }
            FunctionSource::Registry => {}
        }
        self.changed(function)
    }

    /// The number of hops from the registry to a host of a function, in the tree where that is the
    /// most.
    pub fn hops(&self, function: u32, host: u32) -> u64 {
        let depth = match &self.sources[function as usize] {
            FunctionSource::Tree(tree) => tree.depth(&host),
            FunctionSource::Striped(striped) => {
                (0..striped.stripes()).filter_map(|stripe| striped.depth(stripe, &host)).max()
            }
            FunctionSource::Registry => None,
        };
        depth.unwrap_or(0) as u64 + 1
    }

    /// The hosts in the trees of a function, as control tells them to the scheduler.
    pub fn roles(&mut self, function: u32) -> &[Role] {
        let Self { roles, sources, .. } = self;
        let source = &sources[function as usize];
        roles[function as usize].get_or_insert_with(|| source.roles())
    }

    /// Checks that every present host has each byte of its images once. All streams must have
    /// ended.
    ///
    /// # Errors
    /// A host has not: the message names the first one.
    pub fn check_all(&mut self) -> Result<(), String> {
        (0..self.sources.len()).try_for_each(|function| self.check_trees(function))?;
        let streams = 0..self.hosts.len() as u32;
        streams
            .filter(|&stream| self.engine.alive(stream))
            .try_for_each(|stream| self.local.check(stream))
    }

    fn changed(&mut self, function: u32) -> Result<(), String> {
        let function = function as usize;
        let (hosts, levels) = match &self.sources[function] {
            FunctionSource::Tree(tree) => (tree.len(), tree.height()),
            FunctionSource::Striped(striped) => (striped.len(), striped.height()),
            FunctionSource::Registry => (0, 0),
        };
        self.levels = self.levels.max(levels);
        self.unchecked[function] += 1;
        self.roles[function] = None;
        match self.unchecked[function] * CHECKED_PART >= hosts {
            true => self.check_trees(function),
            false => Ok(()),
        }
    }

    fn check_trees(&mut self, function: usize) -> Result<(), String> {
        self.unchecked[function] = 0;
        let checked = match &self.sources[function] {
            FunctionSource::Tree(tree) => tree.check().map_err(|broken| broken.to_string()),
            FunctionSource::Striped(striped) => {
                striped.check().map_err(|broken| broken.to_string())
            }
            FunctionSource::Registry => Ok(()),
        };
        checked.map_err(|broken| format!("the tree of function {function}: {broken}"))
    }

    fn reconnect(&mut self, tree: u32, host: u32, to: Option<u32>) {
        self.moves += 1;
        let parent = to.map_or(REGISTRY, |parent| self.streams[&(tree, parent)]);
        let up = self.up(parent);
        self.engine.reconnect(self.streams[&(tree, host)], parent, up);
    }

    fn tree(&self, function: u32, part: u32) -> u32 {
        function * self.parts + part
    }

    /// The number of the link over which the receiver of a stream sends.
    fn up(&self, parent: u32) -> u32 {
        match parent {
            REGISTRY => self.registry,
            _ => self.links[self.hosts[parent as usize] as usize][0],
        }
    }
}

impl FunctionSource {
    /// The hosts in the trees of one function.
    fn roles(&self) -> Vec<Role> {
        match self {
            FunctionSource::Tree(tree) => {
                let role = |host: &u32| Role {
                    host: *host,
                    depth: tree.depth(host).unwrap_or(0) as u32,
                    is_inner: tree.children(host).next().is_some(),
                };
                tree.hosts().map(role).collect()
            }
            FunctionSource::Striped(striped) => {
                let stripes = || 0..striped.stripes();
                let role = |host: &u32| {
                    let depth = stripes().filter_map(|stripe| striped.depth(stripe, host)).min();
                    let is_inner =
                        stripes().any(|stripe| striped.children(stripe, host).next().is_some());
                    Role { host: *host, depth: depth.unwrap_or(0) as u32, is_inner }
                };
                striped.hosts(0).map(role).collect()
            }
            FunctionSource::Registry => Vec::new(),
        }
    }
}
