//! Requests the tasks, files and functions of a query from the platform.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use snowmelt_api::Lane;
use snowmelt_plan::spec::LocalFiles;
use snowmelt_plan::tasks::PlannedTask;
use snowmelt_types::{Code, ErrorReport, Report};
use snowmelt_wire::{
    Answered, DriverOperation, Error as WireError, GangAsk, KeptFooter, LocalFile, MAX_FOOTERS,
    MAX_PLANS, RequestFailure, RunProgress, SandboxUse, TaskDone, TaskProgress, UdfConnection,
};

use super::dispatch::follow;
use super::platform::{PlatformClient, failed};
use crate::driver::{Attempt, Reporter, TaskError, TaskResult, TaskRunner};
use crate::{Error, Result};

/// Minimum interval between progress reports, unless the number of finished tasks changes.
const PROGRESS_EVERY: Duration = Duration::from_millis(50);

/// Requests everything that a query needs from the platform.
#[derive(Debug)]
pub(super) struct PlatformRunner {
    platform: PlatformClient,
    spool: File,
    plans: Mutex<SentPlans>,
    last_report: Mutex<Option<(Instant, u32)>>,
}

impl PlatformRunner {
    pub(super) fn new(platform: PlatformClient, spool: File) -> Self {
        Self { platform, spool, plans: Mutex::default(), last_report: Mutex::default() }
    }

    /// Reports that the query is planned.
    pub(super) fn planned(&self) {
        self.platform.notify(DriverOperation::Planned);
    }

    /// The number of a plan, which is sent with the first request that needs it.
    fn plan_number(&self, plan: &Bytes) -> Result<u32, RequestFailure> {
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(number) = plans.number(plan) {
            return Ok(number);
        }
        if plans.is_full() {
            return Err(too_many_plans());
        }
        self.platform.send_plan(plan.clone()).map_err(failed)?;
        Ok(plans.add(plan.clone()))
    }

    async fn start(
        &self,
        task: &PlannedTask,
        attempt: u32,
    ) -> Result<(u64, UnixStream), TaskError> {
        let plan = self.plan_number(&task.plan)?;
        let (answered, descriptors) =
            self.platform.request(DriverOperation::Run(task.request(plan, attempt))).await?;
        match (answered, one(descriptors)) {
            (Answered::Started { started }, Some(socket)) => Ok((started, socket.into())),
            _ => Err(unexpected().into()),
        }
    }

    /// Reports the end of an attempt; the platform returns the resource usage of its sandboxes.
    async fn ended(
        &self,
        started: u64,
        failure: Option<RequestFailure>,
    ) -> Result<(SandboxUse, Vec<SandboxUse>), TaskError> {
        let asked = self.platform.request(DriverOperation::Ended { started, failure }).await;
        match asked?.0 {
            Answered::Ended { worker, udfs } => Ok((worker, udfs)),
            _ => Err(unexpected().into()),
        }
    }
}

/// An attempt whose worker is followed. Dropping it ends the attempt.
struct Followed<'p> {
    platform: &'p PlatformClient,
    started: u64,
}

impl Drop for Followed<'_> {
    fn drop(&mut self) {
        self.platform.end(self.started);
    }
}

#[async_trait]
impl TaskRunner for PlatformRunner {
    fn expect(&self, tasks: &mut dyn Iterator<Item = &PlannedTask>) {
        let udfs: Vec<String> = tasks.flat_map(|task| task.udfs.iter().cloned()).collect();
        if !udfs.is_empty() {
            self.platform.notify(DriverOperation::Expect { udfs });
        }
    }

    async fn reserve(&self, gang: &GangAsk) -> Option<u64> {
        match self.platform.request(DriverOperation::Reserve(gang.clone())).await {
            Ok((Answered::Reserved(gang), _)) => gang,
            Ok(_) => None,
            Err(failed) => {
                tracing::warn!(error = %failed.report.message, "no room could be reserved");
                None
            }
        }
    }

    fn disband(&self, gang: u64) {
        self.platform.notify(DriverOperation::Disband(gang));
    }

    async fn run(
        &self,
        task: &PlannedTask,
        attempt: &mut Attempt,
    ) -> Result<TaskResult, TaskError> {
        let (started, socket) = self.start(task, attempt.number()).await?;
        // Ended if this future is dropped: another attempt may count.
        let followed = Followed { platform: &self.platform, started };
        let done = follow(socket, task.task, attempt).await;
        // From here on the end is reported here.
        std::mem::forget(followed);
        match done {
            Ok(done) => {
                let (worker, udfs) = self.ended(started, None).await?;
                let udfs =
                    task.udfs.iter().zip(udfs).map(|(name, used)| udf_lane(&done, name, used));
                let udfs = udfs.collect();
                Ok(TaskResult { worker: lane(worker), udfs, done })
            }
            Err(error) => {
                // The platform may know a more precise reason: that a sandbox was out of memory.
                let explained = self.ended(started, Some(error.into())).await;
                Err(explained.err().unwrap_or_else(|| unexpected().into()))
            }
        }
    }

    fn release(&self, tasks: &[u32]) {
        self.platform.notify(DriverOperation::Release { tasks: tasks.to_vec() });
    }

    async fn connect(&self, udf: &str) -> Result<UdfConnection, ErrorReport> {
        let asked = self.platform.request(DriverOperation::Connect { udf: udf.to_owned() }).await;
        let (answered, descriptors) = asked.map_err(|failed| *failed.report)?;
        match (answered, one(descriptors)) {
            (Answered::Connected { timeout_ms }, Some(socket)) => Ok(UdfConnection {
                socket: socket.into(),
                timeout: Duration::from_millis(timeout_ms),
            }),
            _ => Err(*unexpected().report),
        }
    }

    fn spool(&self) -> std::io::Result<File> {
        self.spool.set_len(0)?;
        self.spool.try_clone()
    }
}

#[async_trait]
impl LocalFiles for PlatformRunner {
    async fn list(&self, location: &str) -> Result<Vec<LocalFile>> {
        let ask = DriverOperation::List { location: location.to_owned() };
        match self.platform.request(ask).await.map_err(refused)?.0 {
            Answered::Listed { files } => Ok(files),
            _ => Err(refused(unexpected())),
        }
    }

    async fn open(&self, path: &str) -> Result<File> {
        let ask = DriverOperation::Open { paths: vec![path.to_owned()] };
        let (_, descriptors) = self.platform.request(ask).await.map_err(refused)?;
        one(descriptors).map(File::from).ok_or_else(|| refused(unexpected()))
    }

    async fn recall_footers(&self, files: Vec<String>) -> Vec<Option<Bytes>> {
        let asked = files.chunks(MAX_FOOTERS).map(|files| async move {
            let ask = DriverOperation::RecallFooters { files: files.to_vec() };
            match self.platform.request(ask).await {
                Ok((Answered::Footers { footers }, _)) if footers.len() == files.len() => {
                    footers.into_iter().map(|footer| footer.footer).collect()
                }
                // They are read from their files instead.
                _ => vec![None; files.len()],
            }
        });
        futures::future::join_all(asked).await.concat()
    }

    fn keep_footers(&self, footers: Vec<(String, Bytes)>) {
        let kept = |(file, footer)| KeptFooter { file, footer: Some(footer) };
        let footers: Vec<KeptFooter> = footers.into_iter().map(kept).collect();
        for footers in footers.chunks(MAX_FOOTERS) {
            self.platform.notify(DriverOperation::KeepFooters { footers: footers.to_vec() });
        }
    }
}

impl Reporter for PlatformRunner {
    fn progress(&self, progress: RunProgress) {
        let mut last_report = self.last_report.lock().unwrap_or_else(PoisonError::into_inner);
        let due = last_report
            .is_none_or(|(last, done)| done != progress.done || last.elapsed() >= PROGRESS_EVERY);
        if due {
            *last_report = Some((Instant::now(), progress.done));
            self.platform.notify(DriverOperation::Progress(progress));
        }
    }

    fn merging(&self) {
        self.platform.notify(DriverOperation::Merging);
    }

    fn note(&self, text: &str) {
        self.platform.notify(DriverOperation::Note { text: text.to_owned() });
    }
}

fn one(descriptors: Vec<OwnedFd>) -> Option<OwnedFd> {
    descriptors.into_iter().next()
}

fn lane(used: SandboxUse) -> Lane {
    Lane {
        name: used.name,
        host: used.host,
        cold: used.cold,
        asked_us: used.asked_us,
        ready_us: used.ready_us,
        began_us: used.began_us,
        done_us: used.done_us,
        peak_memory: used.peak_memory,
        memory_limit: used.memory_limit,
        cpu_us: used.cpu_us,
        setup_us: used.setup_us,
        ..Lane::default()
    }
}

/// The lane of a UDF instance; its worker counts the rows of its calls.
fn udf_lane(done: &TaskDone, name: &str, used: SandboxUse) -> Lane {
    let calls = done.udfs.iter().find(|calls| calls.name == name).cloned().unwrap_or_default();
    let progress = TaskProgress {
        udf_rows: calls.rows,
        udf_rows_saved: calls.saved,
        udf_nanos: calls.nanos,
        ..TaskProgress::default()
    };
    Lane { rows: calls.rows, progress, ..lane(used) }
}

fn refused(failed: RequestFailure) -> Error {
    Error::Task(failed.report)
}

fn broken(error: &WireError) -> RequestFailure {
    RequestFailure::of(error.report())
}

/// Sent plans, by the address and length of their bytes, which a stage's tasks share. The bytes are
/// kept: an address names them only as long as they live, and a query that finds values for another
/// one ends before.
#[derive(Debug, Default)]
struct SentPlans {
    numbers: HashMap<(usize, usize), u32>,
    kept: Vec<Bytes>,
}

impl SentPlans {
    fn place(plan: &Bytes) -> (usize, usize) {
        (plan.as_ptr() as usize, plan.len())
    }

    fn number(&self, plan: &Bytes) -> Option<u32> {
        self.numbers.get(&Self::place(plan)).copied()
    }

    fn is_full(&self) -> bool {
        self.kept.len() == MAX_PLANS
    }

    /// Adds a plan, and returns its number.
    fn add(&mut self, plan: Bytes) -> u32 {
        let number = self.kept.len() as u32;
        self.numbers.insert(Self::place(&plan), number);
        self.kept.push(plan);
        number
    }
}

/// The failure of a query with too many plans: for more than [`MAX_PLANS`] the platform would close
/// the connection.
fn too_many_plans() -> RequestFailure {
    let message = format!("the query has more than {MAX_PLANS} parts that workers run");
    let hint = "put fewer aggregates together with UNION ALL";
    RequestFailure::of(ErrorReport::new(Code::PLAN_UNSUPPORTED, message).hint(hint))
}

fn unexpected() -> RequestFailure {
    broken(&WireError::Unexpected {
        found: snowmelt_wire::Kind::Reply,
        expected: "the reply to another request",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_not_taken_for_one_that_was_dropped() {
        let mut sent = SentPlans::default();
        for number in 0..8 {
            // Where the bytes of the plan before were, if these are gone.
            let plan = Bytes::from(vec![number; 4096]);
            assert_eq!(sent.number(&plan), None);
            assert_eq!(sent.add(plan.clone()), u32::from(number));
            assert_eq!(sent.number(&plan), Some(u32::from(number)));
        }
    }
}
