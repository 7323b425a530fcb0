//! Code packages: a function's code and its wheels as one block image, so that any host runs it
//! from what it reads of a registry and asks no package index (FaaSNet 4.5).
//!
//! | part | file |
//! |---|---|
//! | what a package says of itself | `label` |
//! | from code and requirements to a package, sent where its name says | `pack` |
//! | from a name to a package that fits this host, mounted | `open` |
//! | what an instance of it sees, and which zygotes it may come from | `start` |
//!
//! Invariant: what is mounted is what the deployment found, by the digest of its manifest: a name
//! that leads elsewhere meanwhile changes no function.

mod label;
mod open;
mod pack;
mod start;

pub(crate) use open::Opened;
pub use open::PackageAt;
