//! A host for a call or a lease, and on control's own host an instance.
//!
//! Invariant: what a host refuses has not run there. What fails on some hosts is not tried on all.

use snowmelt_node::InstanceLease;
use snowmelt_types::{ErrorReport, Report};

use super::{CallPlacement, Callee, Placements};

/// The number of hosts on which an instance is tried to be started for a call: what fails on all of
/// them would fail on others as well.
pub(crate) const MAX_FAILURES: u32 = 3;

/// A host for a call or a lease, and on control's own host an instance.
pub(crate) enum Acquired {
    /// An instance on control's own host.
    Here(InstanceLease, CallPlacement),
    /// Another host, which finds an instance for the call.
    There(CallPlacement),
}

impl Placements {
    /// Waits for a host, and on control's own host also for an instance.
    pub async fn acquire(&self, callee: Callee<'_>) -> Result<Acquired, ErrorReport> {
        let placed = self.place(callee.needs, callee.whose).await?;
        self.acquire_on(callee, placed).await
    }

    async fn acquire_on(
        &self,
        Callee { whose, needs, unit, limits, .. }: Callee<'_>,
        mut placed: CallPlacement,
    ) -> Result<Acquired, ErrorReport> {
        let node = &self.inner.node;
        loop {
            if !placed.host.is_local() {
                return Ok(Acquired::There(placed));
            }
            let leased = match placed.is_alone() {
                true => node.lease_instance(unit, limits).await,
                false => {
                    let leased = node.lease_instances_at_once(unit, limits, 1).await;
                    leased.into_iter().next().unwrap_or(Err(snowmelt_node::Error::NOT_STARTED))
                }
            };
            match leased {
                Ok(lease) => return Ok(Acquired::Here(lease, placed)),
                Err(snowmelt_node::Error::NoRoom(_)) if !placed.is_alone() => {
                    placed = placed.refused(needs, whose).await?;
                }
                Err(error) => return Err(error.report()),
            }
        }
    }

    /// Waits for another host than the one where a call has not run. If starting an instance
    /// `failed` on too many hosts, returns the error of the last one.
    pub async fn acquire_again(
        &self,
        callee: Callee<'_>,
        placed: CallPlacement,
        error: Box<ErrorReport>,
        failed: bool,
        failures: &mut u32,
    ) -> Result<Acquired, ErrorReport> {
        *failures += u32::from(failed);
        if *failures == MAX_FAILURES {
            return Err(*error);
        }
        tracing::debug!(host = %placed.host.name, %error, "a call is placed again");
        let placed = placed.refused(callee.needs, callee.whose).await?;
        self.acquire_on(callee, placed).await
    }

    /// Returns the number of instances on this host that are idle, or busy with other calls than
    /// the one that has ended.
    pub fn instances_here(&self, callee: Callee<'_>) -> u32 {
        let Callee { needs, unit, limits, .. } = callee;
        let idle = self.inner.node.idle_instances(unit, limits);
        let calls = self.running_here(&needs.function).saturating_sub(1);
        let busy = calls.div_ceil(limits.concurrency.max(1));
        u32::try_from(idle).unwrap_or(u32::MAX).saturating_add(busy)
    }
}
