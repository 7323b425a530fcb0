//! The places of a host in the trees of images, as control gives them.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use snowmelt_api::ImageBytes;
use snowmelt_image::peer::{ExportProgress, Flow, PeerHost};
use snowmelt_rpc::Credential;

use super::daemon::sharing::SharedContent;
use super::message::DaemonPlace;

/// The source of some blocks of an image for a host, as its place in one of the image's trees says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Upstream {
    /// The registry: the host is the root of the tree.
    Registry,
    /// The host of this name on which control runs, at the address where hosts report.
    Control(String),
    /// Another host, at the address that is given.
    Host(PeerHost),
}

/// The places of a host in the trees of an image, one for each stripe of its blocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreePlace {
    /// The name of the trees: the image as functions name it.
    pub tree: String,
    /// The source from which the host reads the blocks of each stripe.
    pub from: Vec<Upstream>,
    /// For a root, the root of another stripe, which is asked before the registry for the blocks
    /// that it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<Upstream>,
}

/// The cluster that this host is in.
#[derive(Debug)]
pub(crate) struct OwnCluster {
    pub credential: Credential,
    /// The address where hosts report; `None` on control's own host.
    pub control: Option<ControlAddress>,
}

/// The address of the control that leads, which may change. Clones of it are the same.
#[derive(Clone, Debug)]
pub struct ControlAddress(Arc<Mutex<SocketAddr>>);

impl ControlAddress {
    /// Begins with an address.
    pub fn new(address: SocketAddr) -> Self {
        Self(Arc::new(Mutex::new(address)))
    }

    /// Returns the address now.
    pub fn get(&self) -> SocketAddr {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the address.
    pub fn set(&self, address: SocketAddr) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = address;
    }
}

/// An image, or a file of a function, that a host has as a part of a tree.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HeldImage {
    /// The name of the tree.
    pub tree: String,
    /// How many bytes of the image the host has, and has read and sent.
    pub bytes: ImageBytes,
}

impl OwnCluster {
    /// Returns a place with the addresses of the hosts that it names.
    pub fn place(&self, place: &TreePlace) -> DaemonPlace {
        let parent = |from: &Upstream| match from {
            Upstream::Registry => None,
            Upstream::Control(name) => {
                let control = self.control.as_ref()?;
                Some(PeerHost { name: name.clone(), address: control.get() })
            }
            Upstream::Host(host) => Some(host.clone()),
        };
        DaemonPlace {
            tree: place.tree.clone(),
            parents: place.from.iter().map(parent).collect(),
            beside: place.beside.as_ref().and_then(parent),
        }
    }
}

impl From<SharedContent> for HeldImage {
    fn from(SharedContent { tree, flow, progress }: SharedContent) -> Self {
        let Flow { from_parents, from_registry, to_children, failures, wrong_blocks } = flow;
        let ExportProgress { here, of } = progress;
        let bytes = ImageBytes {
            here,
            of,
            from_parents,
            from_registry,
            to_children,
            failures,
            wrong_blocks,
        };
        Self { tree, bytes }
    }
}
