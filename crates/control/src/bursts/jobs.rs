//! All bursts that run, and those that ended a short time ago.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use snowmelt_api::BurstStatus;
use snowmelt_types::{Code, ErrorReport, JobId, Tenant};

use super::job::{BurstJob, Identity};

/// How long the outcome of a burst is kept for a client that comes back.
pub(super) const KEPT: Duration = Duration::from_secs(600);
/// The most outcomes that are kept of one tenant.
const MAX_KEPT: usize = 100;
/// The most bytes of answers that are kept of one tenant.
const MAX_KEPT_BYTES: u64 = 1 << 30;

/// The bursts by their identifiers. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Jobs {
    // Held for a lookup only.
    all: Arc<Mutex<BTreeMap<JobId, Arc<BurstJob>>>>,
}

impl Jobs {
    /// Adds a burst, and returns it with true. If the tenant has a burst with the identifier
    /// already, returns that one with false: a client repeats a request whose answer was lost.
    pub(super) fn add(&self, identity: Identity) -> Result<(Arc<BurstJob>, bool), ErrorReport> {
        let mut all = self.lock();
        if let Some(known) = all.get(&identity.id) {
            if known.tenant == identity.tenant {
                return Ok((Arc::clone(known), false));
            }
            let message = format!("the identifier {} is taken", identity.id);
            return Err(ErrorReport::new(Code::OPTION, message).hint("take a new one"));
        }
        let job = Arc::new(BurstJob::new(identity));
        all.insert(job.id.clone(), Arc::clone(&job));
        Ok((job, true))
    }

    /// Returns a burst of a tenant.
    pub fn find(&self, tenant: &Tenant, id: &JobId) -> Result<Arc<BurstJob>, ErrorReport> {
        let found = self.lock().get(id).filter(|job| job.tenant == *tenant).cloned();
        found.ok_or_else(|| missing(id))
    }

    /// Returns the bursts of a tenant, the oldest first.
    pub fn list(&self, tenant: &Tenant) -> Vec<BurstStatus> {
        let all = self.lock();
        all.values().filter(|job| job.tenant == *tenant).map(|job| job.status()).collect()
    }

    /// Forgets a burst that has ended.
    pub(super) fn forget(&self, id: &JobId) {
        self.lock().remove(id);
    }

    /// Forgets outcomes that are too old or too many, and returns the identifiers of their bursts.
    pub(super) fn expire(&self) -> Vec<JobId> {
        let mut all = self.lock();
        let mut kept: BTreeMap<Tenant, (usize, u64)> = BTreeMap::new();
        let mut expired = Vec::new();
        // The youngest first: identifiers sort by the time of their making.
        for (id, job) in all.iter().rev() {
            let Some((over_for, length)) = job.over_for() else { continue };
            let (count, bytes) = kept.entry(job.tenant.clone()).or_default();
            (*count, *bytes) = (*count + 1, *bytes + length);
            if over_for > KEPT || *count > MAX_KEPT || *bytes > MAX_KEPT_BYTES {
                expired.push(id.clone());
            }
        }
        for id in &expired {
            all.remove(id);
        }
        expired
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<JobId, Arc<BurstJob>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes the error of a burst that is not there, or not for this client.
pub(crate) fn missing(id: &JobId) -> ErrorReport {
    ErrorReport::new(Code::JOB_MISSING, format!("there is no burst {id}"))
        .hint("its outcome is kept for 10 minutes, or until it was fetched; `snowmelt burst ls`")
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::bursts::job::AnswerContent;

    fn identity(tenant: &str) -> Identity {
        let function = "f".parse().unwrap();
        let tenant = tenant.parse().unwrap();
        Identity::new(JobId::new(), tenant, function, 1)
    }

    #[test]
    fn a_repeated_request_finds_its_burst_and_other_tenants_do_not() {
        let jobs = Jobs::default();
        let asked = identity("one");
        let (job, is_new) = jobs.add(asked.clone()).unwrap();
        let (same, again) = jobs.add(asked.clone()).unwrap();
        assert!(is_new && !again && Arc::ptr_eq(&job, &same));
        let other = Identity { tenant: "two".parse().unwrap(), ..asked };
        assert_eq!(jobs.add(other.clone()).unwrap_err().code, Code::OPTION.code);
        assert_eq!(jobs.find(&other.tenant, &job.id).unwrap_err().code, Code::JOB_MISSING.code);
        assert_eq!((jobs.list(&job.tenant).len(), jobs.list(&other.tenant).len()), (1, 0));
    }

    #[test]
    fn the_oldest_outcomes_of_a_tenant_are_forgotten_and_no_running_burst() {
        let jobs = Jobs::default();
        let (running, _) = jobs.add(identity("one")).unwrap();
        let mut ids = Vec::new();
        for _ in 0..MAX_KEPT + 2 {
            let (job, _) = jobs.add(identity("one")).unwrap();
            job.finish(Ok(AnswerContent::Memory(Bytes::new())));
            ids.push(job.id.clone());
        }
        let (other, _) = jobs.add(identity("two")).unwrap();
        other.finish(Ok(AnswerContent::Memory(Bytes::new())));
        let mut expired = jobs.expire();
        expired.sort();
        assert_eq!(expired, ids[..2]);
        assert!(jobs.find(&running.tenant, &running.id).is_ok());
        assert!(jobs.find(&other.tenant, &other.id).is_ok());
    }
}
