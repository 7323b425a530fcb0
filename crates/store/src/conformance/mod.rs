//! The conformance suite: tests that every implementation of the trait passes.
//!
//! An implementation provides a [`Rig`] and expands the tests:
//!
//! ```ignore
//! conformance_tests!(MyRig::new());
//! ```
//!
//! Every test expects a store of its own, and uses only the public trait.

pub mod keys;
pub mod leases;
pub mod lists;
pub mod races;
pub mod transactions;
pub mod watches;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::Store;

/// A store under test.
#[async_trait]
pub trait Rig: Send + Sync {
    /// The store.
    fn store(&self) -> Arc<dyn Store>;

    /// Advances the clock of the leases, or sleeps.
    async fn pass(&self, time: Duration);
}

/// The tests of the suite; the expression creates a rig for each.
#[macro_export]
macro_rules! conformance_tests {
    ($rig:expr) => {
        mod conforms {
            use super::*;

            #[tokio::test(flavor = "multi_thread")]
            async fn keys_have_values_and_versions() {
                $crate::conformance::keys::all(&*$rig.store()).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn transactions_apply_as_a_whole() {
                $crate::conformance::transactions::all(&*$rig.store()).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn lists_are_in_order_and_in_pages() {
                $crate::conformance::lists::all(&*$rig.store()).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn watches_are_complete_and_in_order() {
                let rig = $rig;
                $crate::conformance::watches::all(rig.store()).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn keys_are_deleted_with_their_lease() {
                $crate::conformance::leases::all(&$rig).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 8)]
            async fn concurrent_writes_are_serialised() {
                let rig = $rig;
                $crate::conformance::races::all(rig.store()).await;
            }
        }
    };
}

pub use crate::conformance_tests;
