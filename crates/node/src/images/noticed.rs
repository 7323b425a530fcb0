//! What daemons of images have told their node.

use std::collections::{BTreeSet, HashSet};
use std::sync::Mutex;

use snowmelt_types::HostName;

use super::locked;
use super::message::Notice;

/// What is known from notices.
#[derive(Debug, Default)]
pub(super) struct Noticed {
    /// Images that are mounted on raw files meanwhile, by their digests.
    raw: Mutex<HashSet<String>>,
    /// Hosts that sent wrong blocks to this one since it was started.
    expelled: Mutex<BTreeSet<HostName>>,
}

impl Noticed {
    /// Takes the next notice.
    pub fn take(&self, notice: Notice) {
        match notice {
            Notice::IsRaw(digest) => drop(locked(&self.raw).insert(digest.to_string())),
            Notice::Expelled(name) => {
                if let Ok(name) = HostName::try_from(name) {
                    locked(&self.expelled).insert(name);
                }
            }
        }
    }

    /// Whether copies of the mount of an image are of one on raw files.
    pub fn is_raw(&self, digest: &str) -> bool {
        locked(&self.raw).contains(digest)
    }

    /// The mounts are gone.
    pub fn forget_mounts(&self) {
        locked(&self.raw).clear();
    }

    /// Hosts that sent wrong blocks.
    pub fn expelled(&self) -> Vec<HostName> {
        locked(&self.expelled).iter().cloned().collect()
    }
}
