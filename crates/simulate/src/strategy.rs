//! The ways to bring images to hosts that are compared.

use serde::Serialize;

use crate::setting::Setting;

/// The way in which images reach the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// A tree for each function (FaaSNet 3.2).
    Tree,
    /// Each host reads blocks from the registry.
    Registry,
    /// A tree for each layer of each image (FaaSNet 3.4).
    Layers,
    /// Several trees for each function, as many as the fan-out, each with a part of the blocks. A
    /// host has children in one of them, so that no link carries more than one image.
    Stripes,
    /// Each host pulls whole images from the registry and unpacks them.
    Pull,
}

impl Strategy {
    /// The number of parts of an image that have trees of their own.
    pub(crate) fn parts(self, setting: &Setting) -> u32 {
        match self {
            Self::Layers => setting.layers,
            Self::Stripes => setting.fanout.get().try_into().unwrap_or(u32::MAX),
            Self::Tree | Self::Registry | Self::Pull => 1,
        }
    }
}
