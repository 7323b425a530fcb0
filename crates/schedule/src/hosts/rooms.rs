//! All hosts, and the hosts that hold each image, in the order in which they are asked for a new
//! instance.
//!
//! Invariant: once [`HostOrders::settle`] was called for each host that has changed, every host
//! that may get new instances is in the order of all hosts, and in that of each image that it
//! holds.

use std::collections::{BTreeMap, HashMap};

use snowmelt_types::Digest;

use super::directory::HostEntry;
use super::host::{Holding, HostUsage};
use super::load::CoreLoad;
use super::order::{HostKey, Ranked};

/// The depth of a host that is in no tree of the image.
pub(crate) const IN_NO_TREE: u32 = u32::MAX;

/// The orders of all hosts and of the hosts of each image.
#[derive(Debug, Default)]
pub(crate) struct HostOrders {
    all: Ranked,
    by_image: HashMap<Digest, Ranked>,
    known: BTreeMap<u32, HostPositions>,
}

/// The positions of a host in the orders.
#[derive(Debug, Default)]
struct HostPositions {
    at: Option<(CoreLoad, HostKey)>,
    /// The depth of the host in the tree of each image.
    images: HashMap<Digest, u32>,
}

impl HostOrders {
    pub fn all(&self) -> &Ranked {
        &self.all
    }

    /// The hosts that hold an image.
    pub fn with(&self, image: &Digest) -> Option<&Ranked> {
        self.by_image.get(image)
    }

    /// Updates the orders after a change of a host. `entry` is `None` if the host was removed.
    pub fn settle(&mut self, id: u32, entry: Option<&HostEntry>) {
        let Self { all, by_image, known } = self;
        let held = known.entry(id).or_default();
        let after = entry.and_then(|entry| place_of(id, entry, IN_NO_TREE));
        let before = std::mem::replace(&mut held.at, after);
        all.replace(before, after);
        let images = entry.map(|entry| &entry.host.images);
        held.images.retain(|image, depth| {
            let deep = images.and_then(|images| images.get(image)).map(Holding::depth_of_tree);
            let after = deep.and_then(|deep| at_depth(after, deep));
            move_in(by_image, image, at_depth(before, *depth), after);
            *depth = deep.unwrap_or(*depth);
            deep.is_some()
        });
        for (image, holding) in images.into_iter().flatten() {
            if held.images.len() == images.map_or(0, HashMap::len) {
                break;
            }
            if !held.images.contains_key(image) {
                let deep = holding.depth_of_tree();
                move_in(by_image, image, None, at_depth(after, deep));
                held.images.insert(image.clone(), deep);
            }
        }
        if entry.is_none() {
            known.remove(&id);
        }
    }
}

/// The place of a host in an order for new instances. `None` if the host gets no new instances.
pub(crate) fn place_of(id: u32, entry: &HostEntry, depth: u32) -> Option<(CoreLoad, HostKey)> {
    let HostEntry { host, order, .. } = entry;
    let place = HostKey { depth, inner: host.inner, left: host.left(), order: *order, id };
    host.is_open().then(|| (CoreLoad::of(host), place))
}

/// The depth of a host in the tree of an image. The greatest number if it is in none.
pub(crate) fn depth_of(host: &HostUsage, image: Option<&Digest>) -> u32 {
    let held = image.and_then(|image| host.images.get(image));
    held.map_or(IN_NO_TREE, Holding::depth_of_tree)
}

fn at_depth(place: Option<(CoreLoad, HostKey)>, depth: u32) -> Option<(CoreLoad, HostKey)> {
    place.map(|(load, place)| (load, HostKey { depth, ..place }))
}

fn move_in(
    by_image: &mut HashMap<Digest, Ranked>,
    image: &Digest,
    before: Option<(CoreLoad, HostKey)>,
    after: Option<(CoreLoad, HostKey)>,
) {
    if before == after {
        return;
    }
    let ranked = match by_image.get_mut(image) {
        Some(ranked) => ranked,
        None => by_image.entry(image.clone()).or_default(),
    };
    ranked.replace(before, after);
    if ranked.is_empty() {
        by_image.remove(image);
    }
}
