//! Makes network namespaces for jobs, in advance where a job may follow.

use std::os::fd::AsFd;
use std::sync::Arc;

use snowmelt_network::HostNetworks;

use super::{JobNetworks, blocking};
use crate::import_cache::ZygoteMember;
use crate::namespaces::{Fresh, Precreated, SpareNamespace};
use crate::times::NETWORK_MADE_AFTER;
use crate::{Error, Result};

impl JobNetworks {
    /// Returns a namespace for functions forked from `zygote`, or without it for programs: a
    /// pre-created one that is unused, or a new one.
    pub(crate) async fn fresh(
        &self,
        networks: &Arc<HostNetworks>,
        zygote: Option<&ZygoteMember>,
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

    async fn make_fresh(
        &self,
        networks: &Arc<HostNetworks>,
        zygote: Option<&ZygoteMember>,
    ) -> Result<Fresh> {
        let owner = zygote.map(ZygoteMember::zygote);
        let namespace = match networks.table() {
            Some(table) => self.spawner.make_network_with_table(owner, table).await?,
            None => self.spawner.make_network_with_notifier(owner).await?,
        };
        let kept = namespace.as_fd().try_clone_to_owned();
        let step = "keep the namespace".to_owned();
        let kept = kept.map_err(|source| Error::Job { step, source })?;
        let networks = Arc::clone(networks);
        let furnished = blocking(move || networks.configure(kept)).await??;
        Ok(Fresh { namespace, furnished })
    }

    /// Makes the namespace for the next job a moment later, if there is none and fewer than the
    /// bound are pre-created.
    pub(crate) fn prepare(self: &Arc<Self>, zygote: Option<Arc<ZygoteMember>>) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let own = Arc::downgrade(self);
        runtime.spawn(async move {
            tokio::time::sleep(NETWORK_MADE_AFTER).await;
            let Some(own) = own.upgrade() else { return };
            // The next job gets the reason if it fails again.
            if let Err(error) = own.precreate(zygote.as_deref()).await {
                tracing::debug!(%error, "no network was pre-created");
            }
        });
    }

    async fn precreate(&self, zygote: Option<&ZygoteMember>) -> Result<()> {
        let is_gone = zygote.is_some_and(|member| !member.is_alive());
        let room = self.room(zygote);
        let counted = Arc::clone(&self.bound).try_acquire_owned();
        // There are no networks once the node is ending.
        let networks = self.if_opened();
        if let (false, true, Ok(counted), Some(networks)) =
            (is_gone, room.is_empty(), counted, networks)
        {
            let fresh = self.make_fresh(&networks, zygote).await?;
            room.put(SpareNamespace { fresh, _counted: counted });
        }
        Ok(())
    }

    fn room<'a>(&'a self, zygote: Option<&'a ZygoteMember>) -> &'a Precreated {
        zygote.map_or(&self.precreated, |member| &member.precreated)
    }
}
