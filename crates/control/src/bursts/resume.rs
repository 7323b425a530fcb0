//! Bursts of an earlier control: what ran goes on, what had ended is known.

use std::sync::Arc;
use std::time::{Duration, Instant};

use snowmelt_types::ErrorReport;

use super::gather::lost;
use super::job::{Identity, Job};
use super::run::Ready;
use super::{Bursts, Part};
use crate::now_ms;
use crate::records::JobRecord;

impl Bursts {
    /// Goes on with the bursts that ran when the last control ended. Parts on control's own host
    /// ended with it, so a burst that had one has failed.
    pub async fn resume(&self) -> Result<(), ErrorReport> {
        let Some(kept) = &self.kept else { return Ok(()) };
        for (record, outcome) in kept.load().await? {
            let function = record.function.name.clone();
            let size = record.parts.iter().map(|part| part.count as usize).sum();
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
        Ok(())
    }

    fn go_on(&self, job: Arc<Job>, record: JobRecord) {
        tracing::info!(job = %job.id, "a burst of an earlier control goes on");
        let part = |part: &crate::records::PartRecord| {
            let host = match part.address {
                Some(address) => self.hosts.at(part.host.clone(), address),
                None => self.hosts.local(),
            };
            Part { host, first: part.first, count: part.count }
        };
        let parts = job.parts.get_or_init(|| record.parts.iter().map(part).collect());
        let gone = parts.iter().find(|part| part.host.is_local()).map(lost);
        let overlay = record.networks.first().map(|network| self.overlays.keep(network.vni));
        let (bursts, running) = (self.clone(), Arc::clone(&job));
        let ago = Duration::from_millis(now_ms().saturating_sub(record.since_ms));
        let begun = Instant::now().checked_sub(ago).unwrap_or_else(Instant::now);
        tokio::spawn(async move {
            if let Some(error) = gone {
                bursts.close(&running).await;
                return bursts.fail(&running, &record, error).await;
            }
            let ready = Ready { record, calls: None, _overlay: overlay };
            bursts.run_ready(&running, ready, begun).await;
        });
    }

    async fn fail(&self, job: &Job, record: &JobRecord, error: ErrorReport) {
        job.finish(match &self.kept {
            Some(kept) => kept.end(record, Err(error)).await,
            None => Err(error),
        });
    }
}
