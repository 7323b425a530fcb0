//! Pre-created network namespaces: when the network of a job is removed, the next one for functions
//! of the same zygote is made, because only its children may enter it (decision 013).
//!
//! Invariant: each serves one job and was not used before; there is at most one for each zygote and
//! one for programs, and never more than [`MOST`] on a node. It is removed with its zygote.

use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};

use snowmelt_network::{ConfiguredNamespace, Networks};
use snowmelt_sandbox::NetworkNamespace;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::imports::Member;
use crate::network::blocking;
use crate::node::Inner;
use crate::times::NETWORK_MADE_AFTER;
use crate::{Error, Result};

/// The most on a node.
pub(crate) const MOST: usize = 16;

/// A place for one pre-created namespace.
#[derive(Debug, Default)]
pub(crate) struct Precreated(Mutex<Option<Waiting>>);

#[derive(Debug)]
struct Waiting {
    fresh: Fresh,
    _counted: OwnedSemaphorePermit,
}

/// An unused namespace, and what the node needs in it.
#[derive(Debug)]
pub(crate) struct Fresh {
    pub namespace: NetworkNamespace,
    pub furnished: ConfiguredNamespace,
}

impl Precreated {
    fn take(&self) -> Option<Fresh> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take().map(|waiting| waiting.fresh)
    }

    fn is_empty(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    fn put(&self, waiting: Waiting) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(waiting);
    }
}

/// How many there may be.
pub(crate) fn bound() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(MOST))
}

impl Inner {
    /// A namespace for functions of a zygote, or for programs: a pre-created one, or a new one.
    pub(crate) async fn fresh_network(
        &self,
        networks: &Arc<Networks>,
        zygote: Option<&Member>,
    ) -> Result<Fresh> {
        let made = self.room(zygote).take();
        // A process cannot be put into the namespace of a lane that died.
        let usable = made.filter(|fresh| fresh.namespace.is_alive());
        let untouched = usable.and_then(|mut fresh| fresh.furnished.is_unused().then_some(fresh));
        match untouched {
            Some(fresh) => Ok(fresh),
            None => self.make_fresh(networks, zygote).await,
        }
    }

    async fn make_fresh(&self, networks: &Arc<Networks>, zygote: Option<&Member>) -> Result<Fresh> {
        let owner = zygote.map(Member::zygote);
        let namespace = match networks.enforces_by_cgroup() {
            true => self.spawner.make_network(owner).await?,
            false => self.spawner.make_network_with_notifier(owner).await?,
        };
        let kept = namespace.as_fd().try_clone_to_owned();
        let step = "keep the namespace".to_owned();
        let kept = kept.map_err(|source| Error::Job { step, source })?;
        let networks = Arc::clone(networks);
        let furnished = blocking(move || networks.configure(kept)).await??;
        Ok(Fresh { namespace, furnished })
    }

    /// Makes the next one in a moment, if there is room.
    pub(crate) fn prepare_network(self: &Arc<Self>, zygote: Option<Arc<Member>>) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let node = Arc::downgrade(self);
        runtime.spawn(async move {
            tokio::time::sleep(NETWORK_MADE_AFTER).await;
            let Some(node) = node.upgrade() else { return };
            // The next job gets the reason if it fails again.
            if let Err(error) = node.precreate(zygote.as_deref()).await {
                tracing::debug!(%error, "no network was pre-created");
            }
        });
    }

    async fn precreate(&self, zygote: Option<&Member>) -> Result<()> {
        let is_gone = zygote.is_some_and(|member| !member.is_alive());
        let room = self.room(zygote);
        let counted = Arc::clone(&self.precreated_bound).try_acquire_owned();
        // None once the node is ending.
        let networks = self.networks.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let (false, true, Ok(counted), Some(networks)) =
            (is_gone, room.is_empty(), counted, networks)
        {
            let fresh = self.make_fresh(&networks, zygote).await?;
            room.put(Waiting { fresh, _counted: counted });
        }
        Ok(())
    }

    fn room<'a>(&'a self, zygote: Option<&'a Member>) -> &'a Precreated {
        zygote.map_or(&self.precreated, |member| &member.precreated)
    }
}
