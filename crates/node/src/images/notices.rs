//! The notices that daemons of images have sent to their node.

use std::collections::{BTreeSet, HashSet};
use std::sync::Mutex;

use snowmelt_types::HostName;

use super::locked;
use super::message::Notice;

/// The knowledge that the node has from notices of its daemons.
#[derive(Debug, Default)]
pub(super) struct Noticed {
    /// The digests of the images that are mounted on raw files meanwhile.
    raw: Mutex<HashSet<String>>,
    /// The hosts that sent wrong blocks to this host since its node was started.
    expelled: Mutex<BTreeSet<HostName>>,
}

impl Noticed {
    /// Notes what a notice says.
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

    /// Returns whether copies of the mount of an image are copies of a mount on raw files.
    pub fn is_raw(&self, digest: &str) -> bool {
        locked(&self.raw).contains(digest)
    }

    /// Forgets what is known of mounts, because the mounts are gone.
    pub fn forget_mounts(&self) {
        locked(&self.raw).clear();
    }

    /// Returns the hosts that sent wrong blocks.
    pub fn expelled(&self) -> Vec<HostName> {
        locked(&self.expelled).iter().cloned().collect()
    }
}
