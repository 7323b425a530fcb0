//! The outputs of one query's tasks, and how other tasks read them.
//!
//! | member | job |
//! |---|---|
//! | `places` | the host that has each output |
//! | `inputs` | outputs opened for a task on this host |
//! | `copy_tree` | the tree of hosts that copy one output |
//! | `copies` | copies of outputs that several tasks read whole |

pub(super) mod copies;
mod copy_tree;
pub(super) mod inputs;
mod places;

pub(super) use copies::CopyTrees;
pub(super) use copy_tree::Spot;
pub(super) use inputs::by_host;
pub(super) use places::{Input, OutputPlace, Places};
