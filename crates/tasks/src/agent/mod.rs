//! The agent: the parts of jobs that run on this host, from the request to the last answer.
//!
//! Invariant: a part exists as a whole or not at all. Its instances and its network are removed
//! when its calls have ended, on request, when it is not called in time, or when nobody asks for
//! its ends within its lease. The caller may disconnect, and ask again.

pub mod api;
mod called_part;
mod code;
mod functions;
mod inspect;
mod leases;
mod part;
mod room;
mod serve;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use snowmelt_api::HostFacts;
use snowmelt_ledger::Use;
use snowmelt_node::{Node, RankNetwork, TreePlace};
use snowmelt_rpc::{checksum_errors, trace};
use snowmelt_types::{ByteSize, Code, ErrorReport, JobId, Report};

use api::{CodePresence, HeldImage, JobPart, PartCalls, PartEnds, PartOpen, PartReady, UploadCode};
use called_part::Called;
use functions::Functions;
use part::PartInstances;

use crate::host::stored_code;

pub use serve::router;

/// The time between two looks at the place of a part that is to be opened again.
const TAKE_AGAIN_PAUSE: Duration = Duration::from_millis(50);

/// The agent of a host, with all jobs that run there. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Agent {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    node: Node,
    // Held for a lookup only.
    parts: Mutex<HashMap<JobId, Stage>>,
    // Parts so far.
    opened: AtomicU64,
    // Networks of the parts, to be inspected. Held for a lookup only.
    networks: Mutex<HashMap<JobId, Weak<RankNetwork>>>,
    ranks: AtomicU32,
    functions: Functions,
    // The most memory for ranks.
    memory: Option<ByteSize>,
}

/// The state of a part.
#[derive(Debug)]
enum Stage {
    /// The part is being opened or made ready.
    Opening,
    /// The part waits for its calls.
    Waiting(PartInstances),
    /// The ranks of the part are called, or have ended, and control may still ask for their ends.
    Called(Arc<Called>),
}

impl Agent {
    /// Returns an agent without jobs. Its ranks get at most `memory`, or the memory of the machine
    /// if that is `None`.
    pub fn new(node: Node, memory: Option<ByteSize>) -> Self {
        let parts = Mutex::default();
        let networks = Mutex::default();
        let ranks = AtomicU32::new(0);
        let opened = AtomicU64::new(0);
        let functions = Functions::default();
        Self { inner: Arc::new(Inner { node, parts, opened, networks, ranks, functions, memory }) }
    }

    /// Returns the resources and the load of the host.
    pub fn facts(&self) -> HostFacts {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let room = self.inner.room();
        HostFacts {
            version: snowmelt_rpc::version().to_owned(),
            protocol: snowmelt_rpc::protocol(),
            cores: u32::try_from(cores).unwrap_or(u32::MAX),
            memory: self.inner.memory_left(),
            ranks: self.inner.ranks.load(Ordering::Relaxed),
            tasks: self.inner.node.usage().workers[0],
            functions: room.functions,
            of_tasks: room.of_tasks,
            sandboxes: room.sandboxes,
            others: room.others,
            reserved: room.ranks,
            overcommit: u32::try_from(self.inner.node.account().limits_in(1)).unwrap_or(u32::MAX),
            expelled: self.inner.node.expelled_hosts(),
            damaged: checksum_errors::connections()
                .into_iter()
                .map(|(from, count)| (from.to_string(), count))
                .collect(),
        }
    }

    /// Answers whether the host has the files of a program; stores them if they are in the request.
    pub async fn upload(&self, uploaded: UploadCode) -> Result<CodePresence, ErrorReport> {
        let UploadCode { digest, code } = uploaded;
        let Some(code) = code else {
            return Ok(CodePresence { there: self.inner.node.preparation().has_code(&digest) });
        };
        let stored = stored_code(&self.inner.node, code).await?;
        if stored != digest {
            let message = format!("files of {digest} were announced, and those of {stored} came");
            return Err(ErrorReport::new(Code::PROTOCOL, message));
        }
        Ok(CodePresence { there: true })
    }

    /// Reads an image or a file from another place from now on, if this host has it.
    pub async fn place(&self, place: TreePlace) -> Result<(), ErrorReport> {
        let moved = self.inner.node.move_tree(place).await;
        moved.map_err(|error| error.report())
    }

    /// Returns the bytes that this host has read and sent of each image and file that it has a
    /// place for.
    pub async fn image_bytes(&self) -> Result<Vec<HeldImage>, ErrorReport> {
        self.inner.node.held_trees().await.map_err(|error| error.report())
    }

    /// Makes the network of a part and starts its instances; on an error nothing of it is left.
    ///
    /// A part of the same job that is not called ends first: when control is restarted, it starts
    /// the jobs again that were not called before.
    pub async fn open(&self, order: JobPart) -> Result<PartOpen, ErrorReport> {
        let patience = Duration::from_millis(order.start_within_ms);
        let place = PartReservation::take_again(&self.inner, &order.job, patience).await?;
        let job = order.job.clone();
        let number = self.inner.opened.fetch_add(1, Ordering::Relaxed);
        let (mut part, open) = PartInstances::open(&self.inner.node, order).await?;
        part.number = number;
        self.inner.note(&job, &part);
        place.fill(part);
        let agent = Arc::downgrade(&self.inner);
        tokio::spawn(async move {
            tokio::time::sleep(patience).await;
            if let Some(inner) = agent.upgrade() {
                // Unless it was called in time. Another one of the job has its own time.
                drop(inner.take_if(&job, |part| part.number == number));
            }
        });
        Ok(open)
    }

    /// Waits until all hosts of the job answer over its network, and has a part load its code; on
    /// an error, and if some do not answer, nothing of it is left.
    pub async fn ready(&self, job: &JobId, within: Duration) -> Result<PartReady, ErrorReport> {
        let mut part = self.inner.take(job).ok_or_else(|| missing(job))?;
        let place = PartReservation::take(&self.inner, job)?;
        let ready = part.ready(within).await?;
        if ready.unreached.is_empty() {
            place.fill(part);
        }
        Ok(ready)
    }

    /// Calls every rank of a part, unless they are called already: control repeats a request whose
    /// answer was lost.
    pub fn call(&self, job: &JobId, calls: PartCalls) -> Result<(), ErrorReport> {
        if self.inner.called(job).is_some() {
            return Ok(());
        }
        let part = self.inner.take(job).ok_or_else(|| missing(job))?;
        if calls.events.len() != part.ranks() as usize {
            let events = calls.events.len();
            let ranks = part.ranks();
            let message = format!("{events} events came for {ranks} ranks of {job}");
            return Err(ErrorReport::new(Code::PROTOCOL, message));
        }
        let inner = Arc::clone(&self.inner);
        let job = job.clone();
        let ranks = part.ranks();
        let called = Arc::new(Called::new(Duration::from_millis(calls.lease_ms)));
        inner.parts().insert(job.clone(), Stage::Called(Arc::clone(&called)));
        inner.ranks.fetch_add(ranks, Ordering::Relaxed);
        trace::spawn(async move {
            // The branch that ends the wait drops the rest of the part.
            let given_up = tokio::select! {
                () = called.is_given_up() => true,
                () = part.run(calls, &called) => false,
            };
            inner.ranks.fetch_sub(ranks, Ordering::Relaxed);
            called.finish();
            if !given_up {
                called.is_given_up().await;
            }
            inner.parts().remove(&job);
        });
        Ok(())
    }

    /// Waits until there are ends of a part from the number `from` on, and returns them; renews the
    /// lease of the part.
    ///
    /// # Errors
    /// `SM-0706` where no such part is called.
    pub async fn ends(
        &self,
        job: &JobId,
        from: usize,
        within: Duration,
    ) -> Result<PartEnds, ErrorReport> {
        let called = self.inner.called(job).ok_or_else(|| {
            let message = format!("no part of {job} is called here");
            ErrorReport::new(Code::PART_MISSING, message)
                .hint("its lease has expired, or its host was started again")
        })?;
        Ok(called.ends(from, within).await)
    }

    /// Ends the calls of a part that still run, each with this error, and the wait until other
    /// hosts have received what its ranks sent. A part that is not called is ignored.
    pub fn end(&self, job: &JobId, error: ErrorReport) {
        if let Some(called) = self.inner.called(job) {
            called.end(error);
        }
    }

    /// Ends a part with all that runs, and forgets its ends; an unknown part is ignored.
    pub fn close(&self, job: &JobId) {
        match self.inner.called(job) {
            Some(called) => called.close(),
            None => drop(self.inner.take(job)),
        }
    }
}

impl Inner {
    /// Returns the memory for further ranks, in bytes. Idle sandboxes make room, so their memory is
    /// not subtracted.
    fn memory_left(&self) -> u64 {
        let capacity = self.node.ledger().capacity().memory;
        let most = self.memory.unwrap_or(ByteSize(u64::MAX)).min(capacity);
        memory_available().min(most.bytes().saturating_sub(self.memory_of_ranks()))
    }

    /// Returns the memory that ranks have reserved, in bytes.
    fn memory_of_ranks(&self) -> u64 {
        let uses = self.node.ledger().figures().uses.into_iter();
        let ranks = uses.filter(|(use_, _)| *use_ == Use::Burst);
        ranks.map(|(_, reserved)| reserved.memory.bytes()).sum()
    }

    fn called(&self, job: &JobId) -> Option<Arc<Called>> {
        match self.parts().get(job) {
            Some(Stage::Called(called)) => Some(Arc::clone(called)),
            _ => None,
        }
    }

    fn is_opening(&self, job: &JobId) -> bool {
        matches!(self.parts().get(job), Some(Stage::Opening))
    }

    fn take(&self, job: &JobId) -> Option<PartInstances> {
        self.take_if(job, |_| true)
    }

    fn take_if(
        &self,
        job: &JobId,
        is_meant: impl Fn(&PartInstances) -> bool,
    ) -> Option<PartInstances> {
        let mut parts = self.parts();
        match parts.remove(job)? {
            Stage::Waiting(part) if is_meant(&part) => Some(part),
            // The request that opens or calls it must find its entry again.
            other => {
                parts.insert(job.clone(), other);
                None
            }
        }
    }

    /// Lists the network of a part for as long as the part exists.
    fn note(&self, job: &JobId, part: &PartInstances) {
        let mut networks = self.networks.lock().unwrap_or_else(PoisonError::into_inner);
        networks.retain(|_, network| network.strong_count() > 0);
        if let Some(network) = part.network() {
            networks.insert(job.clone(), Arc::downgrade(network));
        }
    }

    fn parts(&self) -> MutexGuard<'_, HashMap<JobId, Stage>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reserved name of a part that is being opened; released unless the place is filled.
struct PartReservation<'a> {
    inner: &'a Inner,
    job: JobId,
}

impl<'a> PartReservation<'a> {
    fn take(inner: &'a Inner, job: &JobId) -> Result<Self, ErrorReport> {
        let mut parts = inner.parts();
        if parts.contains_key(job) {
            let message = format!("{job} has a part here already");
            return Err(ErrorReport::new(Code::PROTOCOL, message));
        }
        parts.insert(job.clone(), Stage::Opening);
        Ok(Self { inner, job: job.clone() })
    }

    /// Ends a part of the job that is not called, and takes its place. A request of an earlier
    /// control may still hold the part: a lost connection is noticed late, and code loads for
    /// seconds. The place is waited for, for as long as the start may take.
    async fn take_again(
        inner: &'a Inner,
        job: &JobId,
        patience: Duration,
    ) -> Result<Self, ErrorReport> {
        let deadline = Instant::now() + patience;
        loop {
            drop(inner.take(job));
            match Self::take(inner, job) {
                Err(_) if inner.is_opening(job) && Instant::now() < deadline => {
                    tokio::time::sleep(TAKE_AGAIN_PAUSE).await;
                }
                taken => return taken,
            }
        }
    }

    fn fill(self, part: PartInstances) {
        self.inner.parts().insert(self.job.clone(), Stage::Waiting(part));
    }
}

impl Drop for PartReservation<'_> {
    fn drop(&mut self) {
        let mut parts = self.inner.parts();
        if matches!(parts.get(&self.job), Some(Stage::Opening)) {
            parts.remove(&self.job);
        }
    }
}

fn missing(job: &JobId) -> ErrorReport {
    ErrorReport::new(Code::BURST_START, format!("no part of {job} waits here"))
        .hint("it was not called in time, or its host was started again")
}

/// Reads `MemAvailable` of the kernel, in bytes; 0 where the kernel does not report it.
fn memory_available() -> u64 {
    let Ok(text) = std::fs::read_to_string("/proc/meminfo") else { return 0 };
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}
