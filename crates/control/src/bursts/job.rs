//! A burst as an object of its own: it does not end with the connection that asked for it.
//!
//! Invariant: a burst ends once, by its outcome. While clients wait for it, or within the time that
//! it was given after the last of them, it is claimed; a burst that nobody claims is ended.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use snowmelt_api::{BurstRoom, BurstState, BurstStatus};
use snowmelt_types::{Code, ErrorReport, FunctionName, JobId, Tenant};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::RankRange;
use crate::access::permissions;
use crate::now_ms;

/// The outcome of a burst: its answer, or its failure.
pub(crate) type BurstOutcome = Result<AnswerContent, ErrorReport>;

/// The answer of a burst, as JSON.
#[derive(Clone, Debug)]
pub(crate) enum AnswerContent {
    Memory(Bytes),
    /// The path of a file, and its length in bytes.
    File(PathBuf, u64),
}

impl AnswerContent {
    /// Returns the answer, read from its file if it has one.
    pub async fn read(&self) -> Result<Bytes, ErrorReport> {
        match self {
            Self::Memory(bytes) => Ok(bytes.clone()),
            Self::File(path, _) => {
                let read = tokio::fs::read(path).await;
                Ok(read.map_err(|error| permissions::failure(path, &error))?.into())
            }
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::File(_, bytes) => *bytes,
        }
    }
}

/// A burst that runs, or whose outcome is kept.
#[derive(Debug)]
pub(crate) struct BurstJob {
    pub id: JobId,
    pub tenant: Tenant,
    pub function: FunctionName,
    pub since_ms: u64,
    /// The number of functions of the burst.
    pub size: u32,
    /// The time for which the burst goes on after the last client that waited for it.
    pub claim_within: Duration,
    /// The parts of the burst, in the order of ranks; set once it is placed.
    pub parts: OnceLock<Vec<RankRange>>,
    /// The number of functions that have ended.
    pub ended: AtomicU32,
    /// Whether the burst's request could be kept; `None` while that is not known yet.
    accepted: watch::Sender<Option<Result<(), ErrorReport>>>,
    phase: watch::Sender<BurstPhase>,
    claims: Mutex<Claims>,
    cancelled: CancellationToken,
}

#[derive(Clone, Debug)]
enum BurstPhase {
    /// The hosts have no room for the whole burst yet.
    Waiting(BurstRoom),
    /// The instances start; nothing of the user's runs yet.
    Starting,
    /// The functions are called.
    Running,
    /// The outcome of the burst, and when it ended.
    Ended(Box<BurstOutcome>, Instant),
}

#[derive(Debug)]
struct Claims {
    waiting: u32,
    /// When the last client that waited for the burst went away.
    last: Instant,
}

/// The claim of a client that waits for a burst.
#[derive(Debug)]
pub(crate) struct BurstClaim(Arc<BurstJob>);

/// The facts of a burst that are known before it is placed.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    pub id: JobId,
    pub tenant: Tenant,
    pub function: FunctionName,
    pub size: u32,
    pub claim_within: Duration,
    pub since_ms: u64,
    /// Whether clients are told of the burst only when its request is kept.
    pub is_to_be_kept: bool,
}

impl BurstJob {
    pub(super) fn new(identity: Identity) -> Self {
        let Identity { id, tenant, function, size, claim_within, since_ms, is_to_be_kept } =
            identity;
        Self {
            id,
            tenant,
            function,
            since_ms,
            size,
            claim_within,
            parts: OnceLock::new(),
            ended: AtomicU32::new(0),
            accepted: watch::channel((!is_to_be_kept).then_some(Ok(()))).0,
            phase: watch::channel(BurstPhase::Starting).0,
            claims: Mutex::new(Claims { waiting: 0, last: Instant::now() }),
            cancelled: CancellationToken::new(),
        }
    }

    /// Tells waiting clients that the burst's request is kept, or cannot be.
    pub(super) fn is_kept(&self, kept: Result<(), ErrorReport>) {
        self.accepted.send_replace(Some(kept));
    }

    /// Waits until the burst's request is kept, if it is to be.
    pub(super) async fn accepted(&self) -> Result<(), ErrorReport> {
        let mut accepted = self.accepted.subscribe();
        match accepted.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(accepted)) => accepted.clone(),
            _ => Ok(()),
        }
    }

    /// Claims the burst until the claim is dropped.
    pub fn claim(self: &Arc<Self>) -> BurstClaim {
        self.claims().waiting += 1;
        BurstClaim(Arc::clone(self))
    }

    /// Ends the burst, if it has not ended.
    pub fn cancel(&self) {
        self.cancelled.cancel();
    }

    /// Waits until the burst is to be ended, and says why.
    pub(super) async fn is_given_up(&self) -> ErrorReport {
        tokio::select! {
            error = self.is_cancelled() => error,
            error = self.is_abandoned() => error,
        }
    }

    async fn is_cancelled(&self) -> ErrorReport {
        self.cancelled.cancelled().await;
        let message = format!("{} was cancelled", self.id);
        ErrorReport::new(Code::JOB_CANCELLED, message).hint("run the burst again")
    }

    async fn is_abandoned(&self) -> ErrorReport {
        loop {
            let (waiting, last) = {
                let claims = self.claims();
                (claims.waiting, claims.last)
            };
            let until = if waiting > 0 { Instant::now() } else { last } + self.claim_within;
            sleep_until(until).await;
            let claims = self.claims();
            if claims.waiting == 0 && claims.last + self.claim_within <= Instant::now() {
                let time = self.claim_within;
                let message =
                    format!("{} was ended: no client waited for it for {time:?}", self.id);
                return ErrorReport::new(Code::JOB_ABANDONED, message)
                    .hint("a burst that is to go on without its client takes `claim_within_ms`");
            }
        }
    }

    /// Notes that the burst waits because there is too little room for it.
    pub(super) fn waits(&self, room: BurstRoom) {
        self.phase.send_replace(BurstPhase::Waiting(room));
    }

    /// Notes that the burst has its hosts.
    pub(super) fn starts(&self) {
        self.phase.send_replace(BurstPhase::Starting);
    }

    /// Notes that the functions are called now.
    pub(super) fn begin(&self) {
        self.phase.send_replace(BurstPhase::Running);
    }

    /// Sets the outcome of the burst. Later outcomes change nothing.
    pub(super) fn finish(&self, outcome: BurstOutcome) {
        self.phase.send_if_modified(|phase| {
            let runs = !matches!(phase, BurstPhase::Ended(..));
            if runs {
                *phase = BurstPhase::Ended(Box::new(outcome), Instant::now());
            }
            runs
        });
    }

    /// Waits for the outcome of the burst.
    pub async fn outcome(&self) -> BurstOutcome {
        let mut phase = self.phase.subscribe();
        match phase.wait_for(|phase| matches!(phase, BurstPhase::Ended(..))).await.as_deref() {
            Ok(BurstPhase::Ended(outcome, _)) => (**outcome).clone(),
            _ => Err(ErrorReport::new(Code::INTERNAL, "the burst was forgotten")),
        }
    }

    /// Returns for how long the burst has been over, and the bytes of its answer; `None` while it
    /// runs.
    pub(super) fn over_for(&self) -> Option<(Duration, u64)> {
        match &*self.phase.borrow() {
            BurstPhase::Ended(outcome, at) => {
                Some((at.elapsed(), (**outcome).as_ref().map_or(0, AnswerContent::bytes)))
            }
            _ => None,
        }
    }

    /// Returns the parts of the burst; nothing before it was placed.
    pub(super) fn parts(&self) -> &[RankRange] {
        self.parts.get().map_or(&[], Vec::as_slice)
    }

    pub fn status(&self) -> BurstStatus {
        let phase = self.phase.borrow().clone();
        let waits_for = match &phase {
            BurstPhase::Waiting(room) => Some(*room),
            _ => None,
        };
        let (state, error) = match &phase {
            BurstPhase::Waiting(_) => (BurstState::Waiting, None),
            BurstPhase::Starting => (BurstState::Starting, None),
            BurstPhase::Running => (BurstState::Running, None),
            BurstPhase::Ended(outcome, _) => match &**outcome {
                Ok(_) => (BurstState::Ended, None),
                Err(error) => (BurstState::Failed, Some(error.clone())),
            },
        };
        BurstStatus {
            job: self.id.clone(),
            function: self.function.clone(),
            state,
            functions: self.size,
            ended: self.ended.load(Ordering::Relaxed),
            hosts: self.parts().iter().map(|part| part.host.name.clone()).collect(),
            since_ms: self.since_ms,
            waits_for,
            error,
        }
    }

    fn claims(&self) -> MutexGuard<'_, Claims> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for BurstClaim {
    fn drop(&mut self) {
        let mut claims = self.0.claims();
        claims.waiting -= 1;
        claims.last = Instant::now();
    }
}

impl Identity {
    pub fn new(id: JobId, tenant: Tenant, function: FunctionName, size: usize) -> Self {
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        let claim_within = Duration::ZERO;
        let since_ms = now_ms();
        let is_to_be_kept = false;
        Self { id, tenant, function, size, claim_within, since_ms, is_to_be_kept }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(claim_within: Duration) -> Arc<BurstJob> {
        let function = "f".parse().unwrap();
        let identity = Identity::new(JobId::new(), Tenant::default(), function, 2);
        Arc::new(BurstJob::new(Identity { claim_within, ..identity }))
    }

    #[tokio::test]
    async fn clients_are_told_of_a_burst_that_is_to_be_kept_when_it_is() {
        let identity = Identity::new(JobId::new(), Tenant::default(), "f".parse().unwrap(), 2);
        BurstJob::new(identity.clone()).accepted().await.unwrap();
        for kept in [Ok(()), Err(ErrorReport::new(Code::INTERNAL, "the disk is full"))] {
            let job = Arc::new(BurstJob::new(Identity { is_to_be_kept: true, ..identity.clone() }));
            let told = tokio::spawn({
                let job = Arc::clone(&job);
                async move { job.accepted().await }
            });
            tokio::task::yield_now().await;
            assert!(!told.is_finished());
            job.is_kept(kept.clone());
            assert_eq!(told.await.unwrap().is_ok(), kept.is_ok());
        }
    }

    #[tokio::test]
    async fn a_burst_that_nobody_claims_is_ended() {
        let job = job(Duration::from_millis(20));
        assert_eq!(job.is_given_up().await.code, Code::JOB_ABANDONED.code);
    }

    #[tokio::test]
    async fn a_claimed_burst_goes_on_and_is_ended_after_the_last_claim() {
        let job = job(Duration::from_millis(20));
        let claims = [job.claim(), job.claim()];
        let given_up = tokio::spawn({
            let job = Arc::clone(&job);
            async move { job.is_given_up().await }
        });
        let [first, second] = claims;
        drop(first);
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(!given_up.is_finished(), "a client waits for it");
        drop(second);
        assert_eq!(given_up.await.unwrap().code, Code::JOB_ABANDONED.code);
    }

    #[tokio::test]
    async fn a_cancelled_burst_is_ended_although_it_is_claimed() {
        let job = job(Duration::from_secs(60));
        let _claim = job.claim();
        job.cancel();
        assert_eq!(job.is_given_up().await.code, Code::JOB_CANCELLED.code);
    }

    #[tokio::test]
    async fn the_first_outcome_counts_and_every_client_gets_it() {
        let job = job(Duration::from_secs(60));
        assert!(job.over_for().is_none());
        job.begin();
        assert_eq!(job.status().state, BurstState::Running);
        job.finish(Ok(AnswerContent::Memory(Bytes::from_static(b"{}"))));
        job.finish(Err(ErrorReport::new(Code::INTERNAL, "later")));
        for _ in 0..2 {
            assert_eq!(job.outcome().await.unwrap().read().await.unwrap(), "{}");
        }
        assert_eq!(job.status().state, BurstState::Ended);
    }
}
