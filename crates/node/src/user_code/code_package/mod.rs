//! Code packages: a function's code and its wheels as one block image, so that any host runs the
//! function from a registry, without a package index (FaaSNet 4.5).
//!
//! | part | file |
//! |---|---|
//! | the description of a package | `label` |
//! | makes a package of code and requirements, and sends it to its registry | `pack` |
//! | finds a package by its name, checks that it fits this host, mounts it | `open` |
//! | what an instance of a package sees, and which zygotes it may be forked from | `start` |
//!
//! Invariant: the mounted package is the one that the deployment found, by the digest of its
//! manifest: a name that leads elsewhere later changes no function.

mod label;
mod open;
mod pack;
mod start;

pub(crate) use open::OpenedPackage;
pub use open::PackageAt;
pub use pack::PackageSource;
