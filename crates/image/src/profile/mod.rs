//! Start profiles: which blocks a start touches, in which order, so that the next start elsewhere
//! fetches them ahead.
//!
//! | part | file |
//! |---|---|
//! | recorded, merged, fetched ahead | `start` |
//! | few requests for many blocks | `plan` |
//! | the bytes of a profile, and who signed them | `signed` |
//! | keys of platforms | `key` |
//! | kept on this host, merged over its starts | `shelf` |
//! | beside the image in its registry | `artifact` |
//!
//! Invariant: a profile is a hint. One that is damaged or that nobody trusted signed is ignored, and
//! a true one cannot do more than have blocks of its image fetched, each of which is verified.

mod artifact;
mod key;
mod plan;
mod shelf;
mod signed;
mod start;

pub use artifact::{PROFILE, publish, trusted};
pub use key::{Keys, PublicKey};
pub use shelf::Shelf;
pub use signed::Signed;
pub use start::StartProfile;
