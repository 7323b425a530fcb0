//! Instances of a job: one for each rank, always new, and never anybody else's afterwards.

use std::sync::Arc;
use std::time::Instant;

use snowmelt_types::{Digest, JobId};

use crate::supply::Environment;
use crate::{InstanceLease, InstanceLimits, Node, Result, Unit};

impl Node {
    /// A new instance for each of `environments`, which it has beside the function's own, all in
    /// one request. The failure of one is its own.
    pub async fn lease_ranks(
        &self,
        unit: &Unit,
        limits: &Arc<InstanceLimits>,
        job: &JobId,
        environments: Vec<Environment>,
    ) -> Vec<Result<InstanceLease>> {
        let asked = Instant::now();
        // A job's own key: what is under it is found by nobody who looks for the function.
        let key = Digest::of_parts([limits.key(&unit.digest).as_str(), job.as_str()]);
        let started = self.inner.start_each(unit, limits, &environments).await;
        let lease = |started| {
            let (instance, start) = started?;
            let (seat, _) = self.inner.seats.sit(&key, 1);
            // The seat is new, so it is empty.
            let _ = seat.instance.set(Arc::new(instance));
            let inner = Arc::clone(&self.inner);
            let lease = InstanceLease::sit(inner, key.clone(), Arc::clone(limits), seat, asked);
            Ok(lease.begin(start))
        };
        started.into_iter().map(lease).collect()
    }
}
