//! Operations on whole images.
//!
//! | part | file |
//! |---|---|
//! | compare two images | `diff` |
//! | compare every digest of an image | `verification` |
//! | copy images between registries and folders | `exchange` |
//! | remove unreferenced files from a folder | `collection` |

mod collection;
pub mod diff;
pub mod exchange;
mod verification;

pub use collection::collect;
pub use verification::{Damage, Verified, verify_image};
