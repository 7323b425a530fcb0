//! The trees of images: which host reads the blocks of an image from which other one (FaaSNet 3.2
//! and 3.3).
//!
//! Invariants: a host is told its parent with the request that has it use the image, and again when
//! that was lost. Trees are in memory only: after a restart of control they grow again, and until then hosts keep their parents.
//! A parent that a host has lost costs it a request to the registry, never an answer.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use snowmelt_api::{ImageBytes, ImageTree, TreeHost};
use snowmelt_image::peer::PeerHost;
use snowmelt_node::{TreePlace, Upstream, has_registry};
use snowmelt_tree::{BINARY, Tree};
use snowmelt_types::HostName;
use tokio_util::sync::CancellationToken;

use crate::hosts::{BEAT, Host, Hosts};
use crate::records::FunctionRecord;

/// The most trees; the one whose image was used longest ago is forgotten first.
const MOST_TREES: usize = 1000;

/// The trees of all images. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trees(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    by_image: BTreeMap<String, Grown>,
    /// Placements so far.
    placements: u64,
}

#[derive(Debug)]
struct Grown {
    hosts: Tree<HostName>,
    /// The number of its last placement.
    used: u64,
}

impl Trees {
    /// Gives hosts that are about to use an image their places in its tree.
    pub fn place(&self, image: &str, hosts: &Hosts, on: &[Arc<Host>]) -> Vec<TreePlace> {
        self.place_among(image, &by_name(hosts), on)
    }

    fn place_among(
        &self,
        image: &str,
        known: &HashMap<HostName, Arc<Host>>,
        on: &[Arc<Host>],
    ) -> Vec<TreePlace> {
        let mut trees = self.lock();
        let tree = trees.used(image);
        for host in on {
            tree.insert(host.name.clone());
        }
        on.iter().map(|host| place_in(tree, image, &host.name, known)).collect()
    }

    /// Takes lost hosts out of the trees and tells their children, until `over`.
    pub async fn repair(self, hosts: Hosts, over: CancellationToken) {
        loop {
            tokio::select! {
                () = over.cancelled() => return,
                () = tokio::time::sleep(BEAT) => {}
            }
            for (host, place) in self.without_lost(&by_name(&hosts)) {
                tokio::spawn(async move {
                    // A host that does not hear of it asks the registry.
                    if let Err(error) = host.agent.place(&place).await {
                        tracing::debug!(host = %host.name, %error, "a host keeps its parent");
                    }
                });
            }
        }
    }

    /// All trees, with what each host says of its bytes.
    pub async fn list(&self, hosts: &Hosts) -> Vec<ImageTree> {
        let asking = hosts.all().into_iter().map(|host| async move {
            let held = host.agent.image_bytes().await.unwrap_or_default();
            held.into_iter().map(move |held| ((host.name.clone(), held.tree), held.bytes))
        });
        let held: HashMap<(HostName, String), ImageBytes> =
            futures::future::join_all(asking).await.into_iter().flatten().collect();
        let trees = self.lock();
        let shown = trees.by_image.iter().map(|(image, Grown { hosts, .. })| {
            let host = |host: &HostName| TreeHost {
                host: host.clone(),
                parent: hosts.parent(host).cloned(),
                depth: u32::try_from(hosts.depth(host).unwrap_or_default()).unwrap_or(u32::MAX),
                bytes: held.get(&(host.clone(), image.clone())).copied(),
            };
            ImageTree { image: image.clone(), hosts: hosts.hosts().map(host).collect() }
        });
        shown.collect()
    }

    /// Removes hosts that are not known, and gives the new places of others.
    fn without_lost(&self, known: &HashMap<HostName, Arc<Host>>) -> Vec<(Arc<Host>, TreePlace)> {
        let mut moved = Vec::new();
        let mut trees = self.lock();
        for (image, Grown { hosts: tree, .. }) in &mut trees.by_image {
            let is_lost = |host: &&HostName| !known.contains_key(*host);
            let lost: Vec<HostName> = tree.hosts().filter(is_lost).cloned().collect();
            let moves = lost.iter().flat_map(|host| tree.remove(host));
            let hosts: BTreeSet<HostName> = moves.map(|it| it.host).collect();
            let hosts = hosts.iter().filter_map(|host| known.get(host));
            moved.extend(
                hosts.map(|host| (Arc::clone(host), place_in(tree, image, &host.name, known))),
            );
        }
        trees.by_image.retain(|_, tree| !tree.hosts.is_empty());
        moved
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn used(&mut self, image: &str) -> &mut Tree<HostName> {
        self.placements += 1;
        let used = self.placements;
        if self.by_image.len() >= MOST_TREES && !self.by_image.contains_key(image) {
            let oldest = self.by_image.iter().min_by_key(|(_, tree)| tree.used);
            if let Some(image) = oldest.map(|(image, _)| image.clone()) {
                self.by_image.remove(&image);
            }
        }
        let new = || Grown { hosts: Tree::new(BINARY), used };
        let tree = self.by_image.entry(image.to_owned()).or_insert_with(new);
        tree.used = used;
        &mut tree.hosts
    }
}

/// The place of control's own host among those that read an image, which it is about to use: above
/// all others, as it prepares each function first. None without a cluster.
#[derive(Clone, Debug)]
pub(crate) struct OwnPlaces {
    pub hosts: Hosts,
    pub trees: Trees,
}

impl OwnPlaces {
    pub fn of(&self, image: &str) -> Option<TreePlace> {
        let local = [self.hosts.local()];
        let is_shared = self.hosts.may_grow() && has_registry(image);
        is_shared.then(|| self.trees.place(image, &self.hosts, &local).pop()).flatten()
    }
}

/// The image of a function, if hosts read it from a registry.
pub(crate) fn image(record: &FunctionRecord) -> Option<String> {
    let (name, pinned) = match &record.packed {
        Some(at) => (&at.name, format!("{}@{}", at.name, at.manifest)),
        None => (record.spec.image.as_ref()?, record.spec.image.clone()?),
    };
    has_registry(name).then_some(pinned)
}

fn by_name(hosts: &Hosts) -> HashMap<HostName, Arc<Host>> {
    hosts.all().into_iter().map(|host| (host.name.clone(), host)).collect()
}

fn place_in(
    tree: &Tree<HostName>,
    image: &str,
    host: &HostName,
    known: &HashMap<HostName, Arc<Host>>,
) -> TreePlace {
    // One that was lost just now is taken out soon.
    let parent = tree.parent(host).and_then(|parent| known.get(parent));
    let from = parent.and_then(|parent| upstream(parent)).unwrap_or(Upstream::Registry);
    TreePlace { tree: image.to_owned(), from }
}

fn upstream(parent: &Host) -> Option<Upstream> {
    let name = parent.name.to_string();
    if parent.is_local() {
        return Some(Upstream::Control(name));
    }
    Some(Upstream::Host(PeerHost { name, address: parent.address()? }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts::fake::FakeHost;

    type Hosts = HashMap<HostName, Arc<Host>>;

    fn hosts(names: &[&str]) -> (Hosts, Vec<Arc<Host>>) {
        let made: Vec<_> = names.iter().map(|name| FakeHost::default().named(name).1).collect();
        let known = made.iter().map(|host| (host.name.clone(), Arc::clone(host))).collect();
        (known, made)
    }

    /// The name of the host from which each reads; `-` for the registry.
    fn parents(places: &[TreePlace]) -> Vec<String> {
        let parent = |place: &TreePlace| match &place.from {
            Upstream::Host(host) => host.name.clone(),
            Upstream::Control(name) => name.clone(),
            Upstream::Registry => "-".to_owned(),
        };
        places.iter().map(parent).collect()
    }

    #[test]
    fn hosts_get_places_once_and_children_of_a_lost_host_new_ones() {
        let trees = Trees::default();
        let (mut known, made) = hosts(&["a", "b", "c", "d", "e"]);
        let places = trees.place_among("image", &known, &made);
        assert_eq!(parents(&places), ["-", "a", "a", "b", "b"]);
        let again = trees.place_among("image", &known, &made[3..]);
        assert_eq!(parents(&again), ["b", "b"]);
        assert_eq!(parents(&trees.place_among("another", &known, &made[3..])), ["-", "d"]);
        known.remove(&made[1].name);
        // Before it is taken out, nobody is sent to it.
        assert_eq!(parents(&trees.place_among("image", &known, &made[3..4])), ["-"]);
        let moved = trees.without_lost(&known);
        assert!(!moved.is_empty() && moved.iter().all(|(_, place)| place.tree == "image"));
        let left = [&made[..1], &made[2..]].concat();
        let places = trees.place_among("image", &known, &left);
        assert_eq!(parents(&places)[..2], ["-", "a"]);
        assert!(parents(&places).iter().all(|parent| *parent != "b"));
        for (host, place) in moved {
            let at = left.iter().position(|it| it.name == host.name).unwrap();
            assert_eq!(place, places[at], "they were told where they are");
        }
        assert!(trees.without_lost(&known).is_empty());
        assert!(
            trees.without_lost(&Hosts::default()).is_empty() && trees.lock().by_image.is_empty()
        );
    }

    #[test]
    fn the_tree_that_was_used_longest_ago_is_forgotten() {
        let trees = Trees::default();
        let (known, made) = hosts(&["a"]);
        for image in 0..MOST_TREES {
            trees.place_among(&image.to_string(), &known, &made);
        }
        trees.place_among("0", &known, &made);
        trees.place_among("one more", &known, &made);
        let left = &trees.lock().by_image;
        assert_eq!(left.len(), MOST_TREES);
        assert!(left.contains_key("0") && !left.contains_key("1"));
    }
}
