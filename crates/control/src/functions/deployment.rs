//! Deployment: a function is prepared, started and loaded before it is stored.

use std::sync::Arc;
use std::time::Instant;

use snowmelt_api::{FunctionSpec, FunctionSummary, PackRequest, Packed, Wheel};
use snowmelt_node::{InstanceLease, LOAD_LIMIT};
use snowmelt_types::{Code, Digest, ErrorReport, Report, Tenant};

use super::preparation::{self, Live};
use super::{Functions, Inner};
use crate::cluster::placements::{CallPlacement, MAX_FAILURES};
use crate::now_ms;
use crate::state::records::FunctionId;

impl Functions {
    /// Prepares, loads and stores a function; on return it survives a crash.
    pub async fn deploy(
        &self,
        tenant: Tenant,
        spec: FunctionSpec,
    ) -> Result<FunctionSummary, ErrorReport> {
        let id = FunctionId { tenant: tenant.clone(), name: spec.name.clone() };
        let _turn = self.inner.in_turn.wait(&id).await;
        let place = self.placements().quotas().function(&tenant, &spec.name)?;
        let accept = move |inner: &Inner| preparation::accept(&inner.node, tenant, spec, now_ms());
        let mut record = self.blocking(accept).await?;
        // A package by its manifest and not by its name: the record that is stored names what was
        // tested.
        preparation::pin(&self.inner.node, &mut record).await?;
        let live = Arc::new(self.prepare(record).await?);
        let began = Instant::now();
        // The instances that load it work for the tenant; one stands for all.
        let room = self.caller().room(&live, false).await?;
        // Before it is stored: code that cannot be loaded replaces nothing.
        if let Err(error) = self.start_expected(&live).await {
            let why = self.inner.node.preparation().why_image_failed(&live.unit, began).await;
            return Err(why.unwrap_or(error));
        }
        drop(room);
        if !live.record.spec.ephemeral {
            self.records().put_function(&live.record).await?;
        }
        place.keep();
        // After it is stored: no call is answered by a version that a crash would undo.
        let replaced = self.live().insert(live.record.id(), Arc::clone(&live));
        let other =
            |old: &Arc<Live>| old.unit.digest != live.unit.digest || old.limits != live.limits;
        if let Some(old) = replaced.filter(other) {
            // Last: calls of the old version ran until now, and its idle instances are of no use
            // any more.
            self.forget_instances(&old);
        }
        self.prewarm(&live);
        Ok(self.summary(&live.record))
    }

    /// Keeps a wheel of a user's own.
    pub async fn keep_wheel(
        &self,
        tenant: &Tenant,
        file: String,
        wheel: Vec<u8>,
    ) -> Result<Wheel, ErrorReport> {
        // Who acts for the default tenant can fill the disk anyhow.
        if *tenant != Tenant::default() {
            let bytes = wheel.len() as u64;
            self.inner.wheels.add(tenant, Digest::of(&wheel), bytes, Instant::now())?;
        }
        let kept = self.inner.node.preparation().keep_wheel(file, wheel).await;
        Ok(Wheel { requirement: kept.map_err(|error| error.report())? })
    }

    /// Makes a code package of a tenant.
    pub async fn pack(&self, tenant: &Tenant, request: PackRequest) -> Result<Packed, ErrorReport> {
        preparation::pack(&self.inner.node, &self.inner.analysis, tenant, request).await
    }

    /// Starts and loads as many instances as calls are expected to need, at least one, in one
    /// request.
    async fn start_expected(&self, live: &Live) -> Result<(), ErrorReport> {
        let options = &live.record.spec.options;
        let each = live.limits.concurrency.max(1);
        let expected = live.record.spec.expected.clamp(1, options.instances.max(1));
        let mut placed = self.placements().place(&live.needs, live.whose()).await?;
        let mut failures = 0;
        while !placed.host.is_local() {
            match self.start_there(live, &mut placed, expected).await {
                // As with calls: a failure of the platform may be that of this host only.
                Err(error)
                    if is_of_host(&error) || error.retryable && failures + 1 < MAX_FAILURES =>
                {
                    failures += u32::from(!is_of_host(&error));
                    placed = placed.refused(&live.needs, live.whose()).await?;
                }
                started => return started,
            }
        }
        // A lease is a slot, and an instance has as many as it takes calls.
        let slots = (expected * each) as usize;
        let mut leases = Vec::new();
        for lease in self.inner.node.lease_instances(&live.unit, &live.limits, slots).await {
            match lease {
                // On a host without room for all that may be needed later, some are enough.
                Err(snowmelt_node::Error::NoRoom(_)) if !leases.is_empty() => {}
                lease => leases.push(lease.map_err(|error| error.report())?),
            }
        }
        let loading = leases.iter_mut().map(|lease| lease.preload(&live.load, LOAD_LIMIT));
        for loaded in futures::future::join_all(loading).await {
            loaded.map_err(|error| error.report())?;
        }
        leases.into_iter().for_each(InstanceLease::give_back);
        Ok(())
    }

    /// Starts and loads the expected instances on another host.
    async fn start_there(
        &self,
        live: &Live,
        placed: &mut CallPlacement,
        expected: u32,
    ) -> Result<(), ErrorReport> {
        let host = Arc::clone(&placed.host);
        tokio::select! {
            prepared = self.placements().prepare(&host, live.callee(), expected, None) => prepared?,
            () = host.lost() => {
                let message = format!("{} was lost while it loaded the function", host.name);
                return Err(ErrorReport::new(Code::HOST_STOPPED, message));
            }
        }
        placed.has_instances(expected);
        Ok(())
    }

    /// Keeps instances prewarmed: on this host, or on another one where this one takes no
    /// functions.
    pub(super) fn prewarm(&self, live: &Arc<Live>) {
        let options = &live.record.spec.options;
        let count = options.prewarmed.min(options.instances);
        if count == 0 || self.placements().has_room_here(&live.needs) {
            return self.inner.node.prewarm(&live.unit, &live.limits, &live.load, count as usize);
        }
        let functions = self.clone();
        let live = Arc::clone(live);
        tokio::spawn(async move {
            let prewarmed = async {
                let placed = functions.placements().place(&live.needs, live.whose()).await?;
                if !functions.is_deployed(&live) {
                    return Ok(());
                }
                functions.placements().prepare(&placed.host, live.callee(), 0, Some(count)).await
            };
            if let Err(error) = prewarmed.await {
                tracing::warn!(function = %live.record.id(), %error, "nothing is prewarmed");
            }
        });
    }
}

/// Returns whether an error is one of this host, so that another host may succeed.
fn is_of_host(error: &ErrorReport) -> bool {
    matches!(error.known_code(), Code::NO_ROOM | Code::HOST_STOPPED | Code::SERVER_UNREACHABLE)
}
