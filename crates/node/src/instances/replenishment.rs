//! Starts prewarmed instances: those that are asked for, and the replacements of those that were
//! taken.

use std::sync::{Arc, Weak};
use std::time::Instant;

use snowmelt_ledger::Use;
use snowmelt_types::Digest;
use snowmelt_wire::{Kind, Load};

use super::Instances;
use super::instance::Instance;
use super::prewarming::PrewarmOrder;
use super::zygote_room::needs_zygote;
use crate::resources::account::zygote;
use crate::times::{REPLACED_AFTER, SETTLE_TIMEOUT};
use crate::{Error, LOAD_LIMIT, Result};

impl Instances {
    /// Starts the prewarmed instances that are missing a moment later, and not beside the call that
    /// has just begun. Without a running runtime nothing is started: the node ends, and no instance
    /// is needed any more.
    pub fn replenish_soon(self: &Arc<Self>) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let instances = Arc::downgrade(self);
        runtime.spawn(async move {
            tokio::time::sleep(REPLACED_AFTER).await;
            if let Some(instances) = instances.upgrade() {
                instances.replenish(Instant::now());
            }
        });
    }

    /// Starts the prewarmed instances that are missing, in the background, with one request for
    /// each function.
    pub fn replenish(self: &Arc<Self>, now: Instant) {
        for (key, order, missing) in self.prewarmed.missing(now) {
            tokio::spawn(fill(Arc::downgrade(self), key, order, missing));
        }
    }
}

async fn fill(instances: Weak<Instances>, key: Digest, order: Arc<PrewarmOrder>, count: usize) {
    let Some(instances) = instances.upgrade() else { return };
    // A call is worth more than an instance that may be needed later: this start waits for nothing
    // and evicts nothing.
    let first = needs_zygote(&instances.imports, &order.unit).then(zygote);
    let tenant = &order.unit.tenant;
    let rooms = instances.account.ahead(tenant, &order.limits, Use::Function, count, first);
    let started = instances.start_new(&order.unit, &order.limits, rooms).await;
    let loading = started.into_iter().map(|one| {
        let order = &order;
        async move {
            let (instance, _) = one?;
            preload(&instance, &order.load).await?;
            // The instance settles before it waits for its first call, which then finds nothing
            // else left to do.
            tokio::time::sleep(SETTLE_TIMEOUT).await;
            Ok::<_, crate::Error>(Arc::new(instance))
        }
    });
    let mut ready = Vec::new();
    for loaded in futures::future::join_all(loading).await {
        match loaded {
            Ok(instance) if instance.pause() => ready.push(instance),
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "an instance could not be prewarmed"),
        }
    }
    instances.prewarmed.add(&key, &order, ready, count);
}

/// Loads the function and keeps the connection, so that the first call needs no load.
async fn preload(instance: &Instance, load: &Load) -> Result<()> {
    let loaded = tokio::time::timeout(LOAD_LIMIT, instance.load(load)).await;
    let (stream, said) =
        loaded.map_err(|_| Error::Defect { what: "its code was not loaded in time" })??;
    said.expect(Kind::Ready, "the word that it is ready")?;
    instance.keep_loaded(load, stream);
    Ok(())
}
