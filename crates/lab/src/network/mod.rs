//! The network of a lab: its bridge, and the links of members to it.
//!
//! | part | file |
//! |---|---|
//! | messages that create and configure devices | `device` |
//! | messages that give a device a rate and a delay | `shape` |
//! | the bridge, and the namespaces and links of new members | `wiring` |

pub(crate) mod device;
pub(crate) mod shape;
pub(crate) mod wiring;

pub(crate) use device::{ETH0, port};
pub(crate) use wiring::set_shape;
