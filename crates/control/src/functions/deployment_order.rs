//! Deployments and removals of one function take place one after another, in the order of their
//! arrival: otherwise the function that is stored could be another one than the one that is called.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OwnedMutexGuard;

use crate::state::records::FunctionId;

type FunctionLock = Arc<tokio::sync::Mutex<()>>;

/// Functions that are being changed.
#[derive(Debug, Default)]
pub(crate) struct InTurn {
    // Held for a lookup only.
    locks: Mutex<HashMap<FunctionId, FunctionLock>>,
}

impl InTurn {
    /// Waits until all earlier changes of the function have ended. The turn ends when it is
    /// dropped.
    pub async fn wait(&self, id: &FunctionId) -> OwnedMutexGuard<()> {
        let lock = {
            let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
            locks.retain(|_, lock| Arc::strong_count(lock) > 1);
            Arc::clone(locks.entry(id.clone()).or_default())
        };
        lock.lock_owned().await
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn id(name: &str) -> FunctionId {
        FunctionId { tenant: "t".parse().unwrap(), name: name.parse().unwrap() }
    }

    #[tokio::test]
    async fn changes_of_one_function_take_turns_and_others_do_not_wait() {
        let in_turn = InTurn::default();
        let f = id("f");
        let g = id("g");
        let first = in_turn.wait(&f).await;
        let mut second = Box::pin(in_turn.wait(&f));
        assert!(second.as_mut().now_or_never().is_none());
        drop(in_turn.wait(&g).await);
        drop(first);
        drop(second.await);
        drop(in_turn.wait(&g).await);
        assert_eq!(in_turn.locks.lock().unwrap().len(), 1, "what is over is forgotten");
    }
}
