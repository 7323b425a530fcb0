//! Leases of instances for calls, and the memory of answers from other hosts.

use std::sync::Arc;

use snowmelt_api::AnswerGuard;
use snowmelt_types::Tenant;

use crate::{InstanceLease, InstanceLimits, Node, Result, Unit};

impl Node {
    /// Leases an instance of user code: an idle or a prewarmed one if there is any, otherwise one
    /// that is forked from a zygote or executed.
    pub async fn lease_instance(
        &self,
        unit: &Unit,
        limits: &Arc<InstanceLimits>,
    ) -> Result<InstanceLease> {
        self.inner.instances.lease(unit, limits).await
    }

    /// Leases `count` instances; those that have to be started are one request to the spawner. Each
    /// lease fails or succeeds by itself: where the host has no room for all, those for which there
    /// is room are started, and the rest fail with [`crate::Error::NoRoom`]. If there is room for
    /// none, one of them waits.
    pub async fn lease_instances(
        &self,
        unit: &Unit,
        limits: &Arc<InstanceLimits>,
        count: usize,
    ) -> Vec<Result<InstanceLease>> {
        self.inner.instances.lease_all(unit, limits, count).await
    }

    /// Leases `count` instances, without waiting for room even if there is room for none.
    pub async fn lease_instances_at_once(
        &self,
        unit: &Unit,
        limits: &Arc<InstanceLimits>,
        count: usize,
    ) -> Vec<Result<InstanceLease>> {
        self.inner.instances.lease_all_at_once(unit, limits, count).await
    }

    /// Waits for memory for an answer of a tenant that comes from another host.
    pub async fn room_for_answer(&self, tenant: &Tenant, bytes: u64) -> Result<AnswerGuard> {
        self.inner.instances.room_for_answer(tenant, bytes).await
    }
}
