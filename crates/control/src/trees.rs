//! The trees of images: which host reads the blocks of an image from which other one (FaaSNet 3.2
//! and 3.3).
//!
//! Invariants: a host is told its parent with the request that has it use the image. Trees are in
//! memory only: after a restart of control they grow again, and until then hosts keep their parents.
//! A parent that a host has lost costs it a request to the registry, never an answer.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use snowmelt_image::peer::PeerHost;
use snowmelt_node::{Upstream, has_registry};
use snowmelt_tree::{BINARY, Tree};
use snowmelt_types::HostName;

use crate::hosts::{Host, Hosts};
use crate::records::FunctionRecord;

/// The most trees; the one whose image was used longest ago is forgotten first.
const MOST_TREES: usize = 1000;

/// The trees of all images. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trees(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    by_image: BTreeMap<String, ImageTree>,
    /// Placements so far.
    placements: u64,
}

#[derive(Debug)]
struct ImageTree {
    hosts: Tree<HostName>,
    /// The number of its last placement.
    used: u64,
}

impl Trees {
    /// Gives hosts that are about to use an image their places, and says from where each reads it.
    /// Hosts that were lost leave the tree.
    pub fn place(&self, image: &str, hosts: &Hosts, on: &[Arc<Host>]) -> Vec<Option<Upstream>> {
        let known: HashMap<HostName, Arc<Host>> =
            hosts.all().into_iter().map(|host| (host.name.clone(), host)).collect();
        let mut trees = self.lock();
        let tree = trees.used(image);
        let lost: Vec<_> =
            tree.hosts().filter(|host| !known.contains_key(*host)).cloned().collect();
        for host in lost {
            tree.remove(&host);
        }
        for host in on {
            tree.insert(host.name.clone());
        }
        let upstream = |host: &Arc<Host>| match tree.parent(&host.name) {
            None => Some(Upstream::Registry),
            Some(parent) => known.get(parent).and_then(|parent| address(parent)),
        };
        on.iter().map(upstream).collect()
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
        let new = || ImageTree { hosts: Tree::new(BINARY), used };
        let tree = self.by_image.entry(image.to_owned()).or_insert_with(new);
        tree.used = used;
        &mut tree.hosts
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

fn address(parent: &Host) -> Option<Upstream> {
    let name = parent.name.to_string();
    if parent.is_local() {
        return Some(Upstream::Control(name));
    }
    Some(Upstream::Host(PeerHost { name, address: parent.address()? }))
}
