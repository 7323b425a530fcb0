//! Start profiles: the blocks that a start reads, in order, so that the next start elsewhere can
//! prefetch them.
//!
//! | part | file |
//! |---|---|
//! | recording, merging, prefetching | `start` |
//! | combination of blocks to few requests | `plan` |
//! | the encoding of a profile and its signature | `signed_profile` |
//! | keys of platforms | `key` |
//! | profiles on this host, merged over its starts | `store` |
//! | profiles in the image's registry | `artifact` |
//!
//! Invariant: a profile is a hint. A damaged or untrusted profile is ignored, and a trusted one can
//! only cause blocks of its image to be fetched, each of which is verified.

mod artifact;
mod key;
mod plan;
mod signed_profile;
mod start;
mod store;

pub use artifact::{PROFILE, publish, trusted};
pub use key::{ProfileKeys, PublicKey};
pub use signed_profile::Signed;
pub use start::StartProfile;
pub use store::ProfileStore;
