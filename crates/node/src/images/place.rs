//! The places of a host in the trees of images, as control gives them.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use snowmelt_api::ImageBytes;
use snowmelt_image::peer::{Flow, PeerHost, Progress};
use snowmelt_rpc::Token;

use super::message::Place;
use super::sharing::Shared;

/// From where a host reads some blocks of an image: its place in one of the image's trees.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Upstream {
    /// It is the root.
    Registry,
    /// Control's own host of this name, where hosts report.
    Control(String),
    /// Another host.
    Host(PeerHost),
}

/// The places of a host in the trees of an image, one for each stripe of its blocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreePlace {
    /// The name of the trees: the image as functions name it.
    pub tree: String,
    /// From where the host reads the blocks of each stripe.
    pub from: Vec<Upstream>,
    /// Of a root, the root of another stripe: asked before the registry for what it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<Upstream>,
}

/// The cluster of this host.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub token: Token,
    /// Where hosts report; none on control's own host.
    pub control: Option<SocketAddr>,
}

/// An image that a host has mounted as a part of its tree.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HeldImage {
    /// The name of the tree.
    pub tree: String,
    /// What the host has read and sent of it.
    pub bytes: ImageBytes,
}

impl Cluster {
    /// The host behind a place.
    pub fn place(&self, place: &TreePlace) -> Place {
        let parent = |from: &Upstream| match from {
            Upstream::Registry => None,
            Upstream::Control(name) => {
                self.control.map(|address| PeerHost { name: name.clone(), address })
            }
            Upstream::Host(host) => Some(host.clone()),
        };
        Place {
            tree: place.tree.clone(),
            parents: place.from.iter().map(parent).collect(),
            beside: place.beside.as_ref().and_then(parent),
        }
    }
}

impl From<Shared> for HeldImage {
    fn from(Shared { tree, flow, progress }: Shared) -> Self {
        let Flow { from_parents, from_registry, to_children, failures, wrong_blocks } = flow;
        let Progress { here, of } = progress;
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
