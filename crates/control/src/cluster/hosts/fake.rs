//! A host for tests: it answers as the test says, and records what it is asked.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use snowmelt_api::{HostFacts, HostJoin, PartNetwork};
use snowmelt_node::TreePlace;
use snowmelt_tasks::agent::api::{
    CodePresence, FunctionCall, FunctionEnd, HeldImage, JobPart, PartCalls, PartEnds, PartOpen,
    PartReady, PrepareFunction, RankEnd, RouteFound, RouteTo, UploadCode,
};
use snowmelt_types::{Code, Digest, ErrorReport, JobId};
use tokio::sync::Notify;

use super::clock::ProcessClock;
use super::drains::Drained;
use super::{AnswerRoom, ClusterHost, HostApi, NotCalled};

/// A host whose answers and failures the test sets.
#[derive(Debug, Default)]
pub(crate) struct FakeHost {
    /// The error of `open`.
    pub open_fails: Option<ErrorReport>,
    /// True if `ready` never answers.
    pub never_ready: bool,
    /// True if the host answers no request for its facts.
    pub silent: bool,
    /// The ends of the host's ranks, in this order.
    pub ends: Vec<RankEnd>,
    /// The number of requests for ends that find the host unreachable.
    pub unreachable: AtomicUsize,
    /// True if the host has no part of a job any more.
    pub forgot: bool,
    /// The rank that runs until `end` is called.
    pub runs_on: Option<u32>,
    /// The names of the requests, in order.
    pub asked: Mutex<Vec<&'static str>>,
    /// The error with which the rank that runs on was ended.
    pub ended: Mutex<Option<ErrorReport>>,
    pub changed: Notify,
    /// True if `forget` answers only after the next change.
    pub slow_to_forget: bool,
}

impl FakeHost {
    /// Returns the fake host, and the host of this name as which control knows it.
    pub fn named(self, name: &str) -> (Arc<Self>, Arc<ClusterHost>) {
        let facts = facts();
        let address = Some("127.0.0.1:1".parse().unwrap());
        let join = HostJoin { name: name.to_owned().try_into().unwrap(), address, facts };
        let fake = Arc::new(self);
        let host = ClusterHost::new(
            Arc::clone(&fake) as _,
            join,
            &Arc::new(ProcessClock::default()),
            &Drained::default(),
        );
        (fake, Arc::new(host))
    }

    /// Returns the names of the requests so far.
    pub fn asked(&self) -> Vec<&'static str> {
        self.asked.lock().unwrap().clone()
    }

    fn note(&self, request: &'static str) {
        self.asked.lock().unwrap().push(request);
    }
}

/// Makes a host silent for a time.
pub(crate) fn silence(host: &ClusterHost, time: Duration) {
    let tick = Duration::from_millis(250);
    (0..time.as_millis() / tick.as_millis()).for_each(|_| host.clock.tick(tick));
}

#[async_trait]
impl HostApi for FakeHost {
    async fn facts(&self, _: Duration) -> Result<HostFacts, ErrorReport> {
        if self.silent {
            return Err(ErrorReport::new(Code::SERVER_UNREACHABLE, "it does not answer"));
        }
        Ok(facts())
    }

    async fn upload(&self, _: &UploadCode) -> Result<CodePresence, ErrorReport> {
        Ok(CodePresence { there: true })
    }

    async fn place(&self, _: &TreePlace) -> Result<(), ErrorReport> {
        Ok(())
    }

    async fn image_bytes(&self) -> Result<Vec<HeldImage>, ErrorReport> {
        Ok(Vec::new())
    }

    async fn prepared_functions(&self) -> Result<Vec<Digest>, ErrorReport> {
        Ok(Vec::new())
    }

    async fn prepare_function(&self, _: &Digest, _: &PrepareFunction) -> Result<(), ErrorReport> {
        self.note("prepare");
        Ok(())
    }

    async fn call_function(
        &self,
        _: &Digest,
        _: &FunctionCall,
        _: AnswerRoom<'_>,
    ) -> Result<FunctionEnd, NotCalled> {
        self.note("call function");
        Err(NotCalled::Absent)
    }

    async fn forget_function(&self, _: &Digest) -> Result<(), ErrorReport> {
        self.note("forget");
        if self.slow_to_forget {
            self.changed.notified().await;
        }
        Ok(())
    }

    async fn open(&self, _: JobPart) -> Result<PartOpen, ErrorReport> {
        self.note("open");
        self.open_fails.clone().map_or_else(|| Ok(PartOpen::default()), Err)
    }

    async fn ready(&self, _: &JobId, _: Duration) -> Result<PartReady, ErrorReport> {
        self.note("ready");
        if self.never_ready {
            std::future::pending::<()>().await;
        }
        Ok(PartReady::default())
    }

    async fn call(&self, _: &JobId, _: &PartCalls) -> Result<(), ErrorReport> {
        self.note("call");
        Ok(())
    }

    async fn ends(
        &self,
        job: &JobId,
        from: usize,
        within: Duration,
    ) -> Result<PartEnds, ErrorReport> {
        if self.forgot {
            return Err(ErrorReport::new(Code::PART_MISSING, format!("no part of {job}")));
        }
        let may_fail = |left: usize| left.checked_sub(1);
        let failed = self.unreachable.fetch_update(Relaxed, Relaxed, may_fail).is_ok();
        if self.silent || failed {
            return Err(ErrorReport::new(Code::SERVER_UNREACHABLE, "it does not answer"));
        }
        let waits = self.runs_on.is_some() && self.ended.lock().unwrap().is_none();
        if waits && from == self.ends.len() {
            let _ = tokio::time::timeout(within, self.changed.notified()).await;
        }
        let ended = self.runs_on.zip(self.ended.lock().unwrap().clone());
        let ended = ended.map(|(rank, error)| RankEnd { error: Some(error), ..end(rank) });
        let finished = self.runs_on.is_none() || ended.is_some();
        let all = self.ends.iter().cloned().chain(ended);
        Ok(PartEnds { ends: all.skip(from).map(Arc::new).collect(), finished })
    }

    async fn end(&self, _: &JobId, error: &ErrorReport) -> Result<(), ErrorReport> {
        self.note("end");
        self.ended.lock().unwrap().get_or_insert_with(|| error.clone());
        self.changed.notify_one();
        Ok(())
    }

    async fn network(&self, _: &JobId) -> Result<PartNetwork, ErrorReport> {
        Err(ErrorReport::new(Code::NETWORK_MISSING, "there is none"))
    }

    async fn route(&self, _: &JobId, _: RouteTo) -> Result<RouteFound, ErrorReport> {
        Err(ErrorReport::new(Code::NETWORK_MISSING, "there is none"))
    }

    async fn close(&self, _: &JobId) -> Result<(), ErrorReport> {
        self.note("close");
        Ok(())
    }
}

/// Returns the facts of every fake host.
fn facts() -> HostFacts {
    HostFacts { cores: 1, memory: 1 << 30, overcommit: 1, ..HostFacts::default() }
}

/// Returns the end of a rank that succeeded.
pub(crate) fn end(rank: u32) -> RankEnd {
    RankEnd { rank, result: None, error: None, log: String::new(), log_dropped: 0, wall_us: 0 }
}
