//! Bursts of an earlier control: what ran goes on, what had ended is known, and what was accepted
//! and not called yet starts.

use std::sync::Arc;
use std::time::{Duration, Instant};

use snowmelt_rpc::trace::Context;
use snowmelt_types::ErrorReport;

use super::calls::lost;
use super::job::{BurstJob, Identity};
use super::run::{ReadyBurst, share_of};
use super::storage::Accepted;
use super::{BurstStorage, Bursts, RankRange, identity};
use crate::now_ms;
use crate::state::records::JobRecord;

impl Bursts {
    /// Goes on with the bursts that ran when the last control ended, and starts those that it had
    /// accepted and not called. Parts on control's own host ended with it: a burst with a network
    /// that had one has failed, and so have those ranks of another one.
    pub async fn resume(&self) -> Result<(), ErrorReport> {
        let Some(kept) = &self.kept else { return Ok(()) };
        for (record, outcome) in kept.load().await? {
            let function = record.function.name.clone();
            let placed: usize = record.parts.iter().map(|part| part.count as usize).sum();
            let size = placed.max(record.ranks as usize);
            let identity = Identity {
                claim_within: Duration::from_millis(record.claim_within_ms),
                since_ms: record.since_ms,
                ..Identity::new(record.job.clone(), record.tenant.clone(), function, size)
            };
            let (job, _) = self.jobs.add(identity)?;
            match outcome {
                Some(outcome) => job.finish(outcome),
                None => self.go_on(job, record),
            }
        }
        for request in kept.requests().await {
            // What is wrong with one burst is not in the way of all others.
            if let Err(error) = self.start_again(kept, request).await {
                tracing::error!(%error, "a burst that an earlier control has accepted is left");
            }
        }
        Ok(())
    }

    async fn start_again(&self, kept: &BurstStorage, request: Accepted) -> Result<(), ErrorReport> {
        let (job, is_new) = self.jobs.add(identity(&request))?;
        if !is_new {
            // It has a record: control ended between the two steps.
            return kept.remove_request(&job.id).await;
        }
        tracing::info!(job = %job.id, "a burst that an earlier control has accepted starts");
        let bursts = self.clone();
        tokio::spawn(Context::current_or_new().scope(async move {
            bursts.run_accepted(&job, request).await;
        }));
        Ok(())
    }

    fn go_on(&self, job: Arc<BurstJob>, record: JobRecord) {
        tracing::info!(job = %job.id, "a burst of an earlier control goes on");
        let part = |part: &crate::state::records::PartRecord| {
            let host = match part.address {
                Some(address) => self.hosts.at(part.host.clone(), address),
                None => self.hosts.local(),
            };
            RankRange { host, first: part.first, count: part.count }
        };
        let parts = job.parts.get_or_init(|| record.parts.iter().map(part).collect());
        let has_failed =
            !record.networks.is_empty() || parts.iter().all(|part| part.host.is_local());
        let gone = parts.iter().find(|part| part.host.is_local() && has_failed).map(lost);
        // Of one that has failed nothing is left.
        let room = gone.is_none().then(|| self.place_again(&record));
        let overlay = record.networks.first().map(|network| self.overlays.keep(network.vni));
        let bursts = self.clone();
        let running = Arc::clone(&job);
        let ago = Duration::from_millis(now_ms().saturating_sub(record.since_ms));
        let begun = Instant::now().checked_sub(ago).unwrap_or_else(Instant::now);
        tokio::spawn(async move {
            if let Some(error) = gone {
                bursts.close(&running).await;
                return bursts.finish(&running, &record, Err(error)).await;
            }
            let share = share_of(&running, &record.function, record.ranks.into());
            let share = bursts.placements.quotas().runs(&record.tenant, share);
            let ready =
                ReadyBurst { record, calls: None, _overlay: overlay, _room: room, _share: share };
            bursts.run_ready(&running, ready, begun).await;
        });
    }
}

#[cfg(test)]
mod tests {
    use snowmelt_tasks::agent::api::{PartOpen, PartReady};
    use snowmelt_types::{Code, JobId, Tenant};

    use super::*;
    use crate::platform::rig::{idle_platform, spec};
    use crate::state::records::{FunctionRecord, JobEnd, PartRecord};

    fn record(address: Option<std::net::SocketAddr>) -> JobRecord {
        let host = "this-host".to_owned().try_into().unwrap();
        let open = PartOpen::default();
        let ready = PartReady::default();
        JobRecord {
            job: JobId::new(),
            tenant: Tenant::default(),
            function: spec("def handler(event): pass"),
            since_ms: now_ms(),
            claim_within_ms: 60_000,
            ranks: 1,
            parts: vec![PartRecord { host, address, first: 0, count: 1, open, ready }],
            networks: Vec::new(),
            started_us: 1,
            ended: None,
        }
    }

    /// For three functions, that nobody waits for.
    fn request(job: &JobId) -> Accepted {
        let calls = format!(r#"{{"events": [1, 2, 3], "asynchronous": true, "job": "{job}"}}"#);
        let tenant = Tenant::default();
        let spec = spec("def handler(event): pass");
        Accepted {
            since_ms: 7,
            record: FunctionRecord { tenant, spec, deployed_ms: 1, files: None, packed: None },
            calls: serde_json::from_str(&calls).unwrap(),
        }
    }

    #[tokio::test]
    async fn a_burst_of_an_earlier_control_with_ranks_on_its_own_host_has_failed() {
        let idle = idle_platform().await;
        let bursts = &idle.platform.bursts;
        let running = record(None);
        idle.records.put_job(&running).await.unwrap();
        bursts.resume().await.unwrap();
        let job = bursts.jobs.find(&running.tenant, &running.job).unwrap();
        assert_eq!(job.outcome().await.unwrap_err().code, Code::HOST_LOST.code);
        // The next control knows it as well.
        let ended = idle.records.jobs().await.unwrap().remove(0).ended.unwrap();
        assert_eq!(ended.error.unwrap().code, Code::HOST_LOST.code);
    }

    #[tokio::test]
    async fn a_burst_that_was_accepted_starts_and_its_failure_is_kept() {
        let idle = idle_platform().await;
        let bursts = &idle.platform.bursts;
        let kept = bursts.kept.clone().unwrap();
        let job = JobId::new();
        let tenant = Tenant::default();
        kept.accept(&job, &request(&job)).await.unwrap();
        bursts.resume().await.unwrap();
        let found = bursts.jobs.find(&tenant, &job).unwrap();
        assert_eq!((found.size, found.since_ms), (3, 7));
        // Nothing can run on this platform.
        let error = found.outcome().await.unwrap_err();
        let [record] = &idle.records.jobs().await.unwrap()[..] else { panic!("one record") };
        assert_eq!(record.ended.clone().unwrap().error.unwrap().code, error.code);
        assert_eq!((record.ranks, record.parts.len()), (3, 0));
        while !kept.requests().await.is_empty() {
            tokio::task::yield_now().await;
        }
        bursts.remove(&tenant, &job).await.unwrap();
        assert!(idle.records.jobs().await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_request_of_a_burst_with_a_record_is_removed() {
        let idle = idle_platform().await;
        let bursts = &idle.platform.bursts;
        let running = record(None);
        let kept = bursts.kept.clone().unwrap();
        kept.accept(&running.job, &request(&running.job)).await.unwrap();
        let error = Some(ErrorReport::new(Code::HOST_LOST, "gone"));
        let ended = Some(JobEnd { at_ms: now_ms(), error, answer: None });
        idle.records.put_job(&JobRecord { ended, ..running.clone() }).await.unwrap();
        bursts.resume().await.unwrap();
        assert!(kept.requests().await.is_empty());
        let job = bursts.jobs.find(&running.tenant, &running.job).unwrap();
        assert_eq!(job.outcome().await.unwrap_err().message, "gone");
    }

    #[tokio::test]
    async fn answers_and_failures_of_an_earlier_control_are_known_until_they_are_forgotten() {
        let idle = idle_platform().await;
        let bursts = &idle.platform.bursts;
        let answer = serde_json::value::RawValue::from_string("[1]".to_owned()).unwrap();
        let ended = Some(JobEnd { at_ms: now_ms(), error: None, answer: Some(answer) });
        let succeeded = JobRecord { ended, ..record(None) };
        let failed = record(None);
        let error = Some(ErrorReport::new(Code::HOST_LOST, "gone"));
        let ended = Some(JobEnd { at_ms: now_ms(), error, answer: None });
        let failed = JobRecord { ended, ..failed };
        for record in [&succeeded, &failed] {
            idle.records.put_job(record).await.unwrap();
        }
        bursts.resume().await.unwrap();
        let find = |record: &JobRecord| bursts.jobs.find(&record.tenant, &record.job).unwrap();
        let answer = find(&succeeded).outcome().await.unwrap().read().await.unwrap();
        assert_eq!(answer, "[1]");
        assert_eq!(find(&failed).outcome().await.unwrap_err().message, "gone");
        bursts.remove(&succeeded.tenant, &succeeded.job).await.unwrap();
        assert_eq!(idle.records.jobs().await.unwrap().len(), 1);
    }

    #[tokio::test]
    async fn a_long_answer_is_a_file_until_it_is_forgotten() {
        let idle = idle_platform().await;
        let bursts = &idle.platform.bursts;
        let record = record(None);
        let kept = bursts.kept.clone().unwrap();
        let long = serde_json::to_vec(&"x".repeat(1 << 20)).unwrap();
        kept.end(&record, Ok(long.clone().into())).await.unwrap();
        bursts.resume().await.unwrap();
        let job = bursts.jobs.find(&record.tenant, &record.job).unwrap();
        assert_eq!(job.outcome().await.unwrap().read().await.unwrap(), long);
        kept.forget(&record.job).await.unwrap();
        assert!(kept.load().await.unwrap().is_empty());
        assert!(job.outcome().await.unwrap().read().await.is_err(), "its file is removed");
    }
}
