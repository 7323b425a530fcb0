//! Sources of stored bytes.
//!
//! | part | file |
//! |---|---|
//! | the trait | `block_source` |
//! | local folders | `local_source` |
//! | the decorator that retries | `retry` |
//! | how long a read takes at most | `deadline` |
//! | tests of the trait | `conformance` |

mod block_source;
pub mod conformance;
pub(crate) mod deadline;
mod local_source;
mod retry;

pub use block_source::{BlockSource, Pieces};
pub use local_source::LocalSource;
pub(crate) use local_source::outside;
pub use retry::{Retried, RetryPolicy};
