//! Distributions as users name them, and the wheels in which they come.
//!
//! | member | job |
//! |---|---|
//! | `name` | names of distributions |
//! | `requirement` | requirements of users, checked |
//! | `upload`, `archive` | wheels that users upload, and the check of their bytes |
//! | `wheel` | unpacked wheels and their manifests |
//! | `record` | a wheel's list of files with their hashes |

mod archive;
mod name;
pub(crate) mod record;
mod requirement;
pub(crate) mod upload;
pub(crate) mod wheel;

pub(crate) use name::normalized;
pub(crate) use record::{Record, public, records};
pub use requirement::Requirement;
pub(crate) use requirement::parse_set;
pub(crate) use upload::version_of;
pub use wheel::Wheel;
pub(crate) use wheel::{LockedWheel, WheelManifest, site};
