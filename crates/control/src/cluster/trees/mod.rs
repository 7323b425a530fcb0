//! The trees of images: which host reads the blocks of an image from which others (FaaSNet 3.2 and
//! 3.3). Each image has one for each stripe of its blocks. Without trees each host reads images from
//! the registry; files of functions have trees all the same.
//!
//! Invariants: a host is told its parents with the request that has it use the image, and again
//! when they change. Where images have no trees, it is told that it has none: an earlier control
//! may have given it some. Trees are in memory only: after a restart of control they grow again,
//! and until then hosts keep their parents. A parent that a host has lost costs it a request to the
//! registry, never an answer.

mod readers;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use snowmelt_api::{ImageBytes, ImageTree, StripePlace, TreeHost};
use snowmelt_image::peer::PeerHost;
use snowmelt_node::{TreePlace, Upstream, has_registry, is_file_tree};
use snowmelt_tree::StripeMove;
use snowmelt_types::{Digest, HostName};
use tokio_util::sync::CancellationToken;

use super::hosts::{BEAT, ClusterHost, Hosts};
use crate::state::records::FunctionRecord;
use readers::TreeReaders;

/// The most images with trees; the one that was used longest ago is forgotten first.
const MAX_TREES: usize = 1000;

/// The trees of all images and files. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trees(Arc<Mutex<Grown>>);

#[derive(Debug, Default)]
struct Grown {
    /// True if each host reads images from the registry by itself.
    images_alone: bool,
    by_image: BTreeMap<String, Used>,
    /// The number of placements so far.
    placements: u64,
    /// All hosts that are in trees, and some that were.
    members: BTreeSet<HostName>,
}

#[derive(Debug)]
struct Used {
    hosts: TreeReaders,
    /// The number of the last placement that used the image.
    last: u64,
    /// Hosts that were placed since [`Trees::roles`].
    placed: BTreeSet<HostName>,
}

/// The role of a host in the trees of an image.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TreeRole {
    /// The least number of hosts between the host and the registry, over all stripes; `u32::MAX` if
    /// it is in no tree.
    pub depth: u32,
    /// Whether the host sends blocks to others.
    pub is_inner: bool,
    /// Whether something was about to use the image on the host since roles were last asked for.
    pub is_used: bool,
}

/// Hosts, each with the place that it is to be told.
type Told = Vec<(Arc<ClusterHost>, TreePlace)>;

type HostMap = HashMap<HostName, Arc<ClusterHost>>;

impl Trees {
    /// Makes an empty set of trees. Images get trees only with `of_images`; files of functions
    /// always do.
    pub fn new(of_images: bool) -> Self {
        Self(Arc::new(Mutex::new(Grown { images_alone: !of_images, ..Grown::default() })))
    }

    /// Returns whether hosts read images from each other.
    pub fn are_of_images(&self) -> bool {
        !self.lock().images_alone
    }

    /// Gives hosts that are about to use an image their places in its trees, and tells others their
    /// places that change with it.
    pub fn place(&self, image: &str, hosts: &Hosts, on: &[Arc<ClusterHost>]) -> Vec<TreePlace> {
        let (places, moved) = self.place_among(image, &usable(hosts), on);
        tell(moved);
        places
    }

    fn place_among(
        &self,
        image: &str,
        known: &HostMap,
        on: &[Arc<ClusterHost>],
    ) -> (Vec<TreePlace>, Told) {
        let mut grown = self.lock();
        let joining = || on.iter().map(|host| &host.name).filter(|name| known.contains_key(*name));
        grown.members.extend(joining().cloned());
        let Used { hosts: readers, placed, .. } = grown.used(image);
        placed.extend(joining().cloned());
        let moves = joining().flat_map(|host| readers.insert(host.clone())).collect();
        let is_told = |name: &HostName| on.iter().any(|host| host.name == *name);
        let mut moved = moved(readers, image, moves, known);
        moved.retain(|(host, _)| !is_told(&host.name));
        (on.iter().map(|host| place_in(readers, image, &host.name, known)).collect(), moved)
    }

    /// Takes hosts that are no longer [`usable`] out of the trees and tells their children, until
    /// `over`.
    pub async fn repair(self, hosts: Hosts, over: CancellationToken) {
        loop {
            tokio::select! {
                () = over.cancelled() => return,
                () = tokio::time::sleep(BEAT) => {}
            }
            tell(self.without_lost(&usable(&hosts)));
        }
    }

    /// Returns the names of all trees.
    pub fn names(&self) -> Vec<String> {
        self.lock().by_image.keys().cloned().collect()
    }

    /// Returns trees by their names, with what each host says of its bytes.
    pub async fn list(&self, hosts: &Hosts, names: &[String]) -> Vec<ImageTree> {
        if names.is_empty() {
            return Vec::new();
        }
        let asking = hosts.all().into_iter().map(|host| async move {
            let held = host.agent.image_bytes().await.unwrap_or_default();
            held.into_iter().map(move |held| ((host.name.clone(), held.tree), held.bytes))
        });
        let held: HashMap<(HostName, String), ImageBytes> =
            futures::future::join_all(asking).await.into_iter().flatten().collect();
        let grown = self.lock();
        let known = names.iter().filter_map(|name| grown.by_image.get_key_value(name));
        let shown = known.map(|(image, Used { hosts, .. })| {
            let place = |stripe: usize, host: &HostName| StripePlace {
                parent: hosts.parent(stripe, host).cloned(),
                depth: hosts.depth(stripe, host).unwrap_or(0),
            };
            let host = |host: &HostName| TreeHost {
                host: host.clone(),
                stripes: (0..hosts.stripes()).map(|stripe| place(stripe, host)).collect(),
                bytes: held.get(&(host.clone(), image.clone())).copied(),
            };
            ImageTree { image: image.clone(), hosts: hosts.all().map(host).collect() }
        });
        shown.collect()
    }

    /// Says the role of each host of each image.
    pub fn roles(&self, mut role: impl FnMut(&str, &HostName, TreeRole)) {
        for (image, Used { hosts: readers, placed, .. }) in &mut self.lock().by_image {
            let placed = std::mem::take(placed);
            for host in readers.all() {
                let stripes = 0..readers.stripes();
                let depth = stripes.filter_map(|stripe| readers.depth(stripe, host)).min();
                let depth = depth.unwrap_or(u32::MAX);
                let is_inner = readers.sends(host);
                role(image, host, TreeRole { depth, is_inner, is_used: placed.contains(host) });
            }
        }
    }

    /// Takes a host out of the trees of an image that it no longer uses, and tells its children.
    /// The host keeps its parents and what it has cached, and nobody is sent to it.
    pub fn leave(&self, image: &Digest, host: &HostName, hosts: &Hosts) {
        tell(self.without(image, host, &usable(hosts)));
    }

    fn without(&self, image: &Digest, host: &HostName, known: &HostMap) -> Told {
        let mut grown = self.lock();
        let mut all = grown.by_image.iter_mut();
        let found = all.find(|(name, _)| Digest::of(name.as_str()) == *image);
        // One that was placed meanwhile stays.
        let Some((name, trees)) = found.filter(|(_, trees)| !trees.placed.contains(host)) else {
            return Told::new();
        };
        let moves = trees.hosts.remove(host);
        let told = moved(&trees.hosts, name, moves, known);
        grown.by_image.retain(|_, trees| !trees.hosts.is_empty());
        told
    }

    /// Removes hosts that are not known, and gives the new places of others. Looks at the trees
    /// only if there is one.
    fn without_lost(&self, known: &HostMap) -> Told {
        let mut grown = self.lock();
        let is_lost = |host: &HostName| !known.contains_key(host);
        let lost: Vec<HostName> = grown.members.extract_if(.., is_lost).collect();
        let mut told = Vec::new();
        if lost.is_empty() {
            return told;
        }
        for (image, Used { hosts: readers, .. }) in &mut grown.by_image {
            let moves = lost.iter().flat_map(|host| readers.remove(host)).collect();
            told.extend(moved(readers, image, moves, known));
        }
        grown.by_image.retain(|_, trees| !trees.hosts.is_empty());
        told
    }

    fn lock(&self) -> MutexGuard<'_, Grown> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Grown {
    fn used(&mut self, image: &str) -> &mut Used {
        self.placements += 1;
        let last = self.placements;
        if self.by_image.len() >= MAX_TREES && !self.by_image.contains_key(image) {
            let oldest = self.by_image.iter().min_by_key(|(_, trees)| trees.last);
            if let Some(image) = oldest.map(|(image, _)| image.clone()) {
                self.by_image.remove(&image);
            }
        }
        // Only control has a file: without trees all hosts would read it over control's link.
        let by_trees = !self.images_alone || is_file_tree(image);
        let new = || Used { hosts: TreeReaders::new(by_trees), last, placed: BTreeSet::new() };
        let trees = self.by_image.entry(image.to_owned()).or_insert_with(new);
        trees.last = last;
        trees
    }
}

/// The place of control's own host among those that read an image, which it is about to use: above
/// all others, as it prepares each function first. None without a cluster, and on a host that runs
/// no functions: it reads little of an image.
#[derive(Clone, Debug)]
pub(crate) struct OwnPlaces {
    pub hosts: Hosts,
    pub trees: Trees,
}

impl OwnPlaces {
    pub fn of(&self, image: &str) -> Option<TreePlace> {
        let local = [self.hosts.local()];
        let runs_any = local[0].memory_of_functions() > 0;
        let is_shared = self.hosts.may_grow() && runs_any && has_registry(image);
        is_shared.then(|| self.trees.place(image, &self.hosts, &local).pop()).flatten()
    }
}

/// Returns the image of a function, if hosts read it from a registry.
pub(crate) fn image(record: &FunctionRecord) -> Option<String> {
    let (name, pinned) = match &record.packed {
        Some(at) => (&at.name, format!("{}@{}", at.name, at.manifest)),
        None => (record.spec.image.as_ref()?, record.spec.image.clone()?),
    };
    has_registry(name).then_some(pinned)
}

/// Tells hosts their new places.
fn tell(told: Told) {
    for (host, place) in told {
        tokio::spawn(async move {
            // A host that does not hear of it asks its old parents, and then the registry.
            if let Err(error) = host.agent.place(&place).await {
                tracing::debug!(host = %host.name, %error, "a host keeps its parents");
            }
        });
    }
}

/// Returns the hosts that may be in trees: those that get new work, and that no other host accuses
/// of wrong blocks. Others read from the registry, and nobody reads from them.
fn usable(hosts: &Hosts) -> HostMap {
    let mut known: HostMap =
        hosts.open().into_iter().map(|host| (host.name.clone(), host)).collect();
    for name in hosts.all().iter().flat_map(|host| host.expelled()) {
        known.remove(&name);
    }
    known
}

/// Returns the places of hosts that have moved, once for each host.
fn moved(
    readers: &TreeReaders,
    image: &str,
    moves: Vec<StripeMove<HostName>>,
    known: &HostMap,
) -> Told {
    let hosts: BTreeSet<HostName> = moves.into_iter().map(|step| step.host).collect();
    let hosts = hosts.iter().filter_map(|host| known.get(host));
    hosts.map(|host| (Arc::clone(host), place_in(readers, image, &host.name, known))).collect()
}

fn place_in(readers: &TreeReaders, image: &str, host: &HostName, known: &HostMap) -> TreePlace {
    let from = |stripe: usize| {
        // One that was lost just now is taken out soon.
        let parent = readers.parent(stripe, host).and_then(|parent| known.get(parent));
        parent.and_then(|parent| upstream(parent)).unwrap_or(Upstream::Registry)
    };
    let beside = readers.beside(host).and_then(|other| upstream(known.get(other)?));
    TreePlace { tree: image.to_owned(), from: (0..readers.stripes()).map(from).collect(), beside }
}

fn upstream(parent: &ClusterHost) -> Option<Upstream> {
    let name = parent.name.to_string();
    if parent.is_local() {
        return Some(Upstream::Control(name));
    }
    Some(Upstream::Host(PeerHost { name, address: parent.address()? }))
}

#[cfg(test)]
mod tests;
