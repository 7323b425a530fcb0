//! A slot on an instance for one call or one task of a query, and the dialogue over it.

use std::os::unix::net::UnixStream as BlockingStream;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use snowmelt_api::{Answer, Start};
use snowmelt_rpc::trace::SPANS;
use snowmelt_types::{ByteSize, Code, Digest, End, ErrorReport, Outcome, Report, Tenant};
use snowmelt_wire::{Call, Frame, FunctionFailure, Kind, Load, LoadReport};
use tracing::Instrument;

use super::instance::{Instance, next};
use super::slots::SharedInstance;
use super::{Instances, answer};
use crate::process::log::LogText;
use crate::process::readable_stream::ReadableStream;
use crate::times::CALL_LEFT_ALONE;
use crate::user_code::unit::PROGRAM_CODE;
use crate::{Error, InstanceLimits, Result};

/// How long it may take until the end of a sandbox whose connection closed is known.
const END_NOTICE_TIMEOUT: Duration = Duration::from_secs(3);

/// A slot on an instance until it is returned. Dropping the lease gives up on the call: the
/// instance takes no further calls and ends with the last of the calls that it has.
#[derive(Debug)]
pub struct InstanceLease {
    instances: Arc<Instances>,
    key: Digest,
    tenant: Tenant,
    limits: Arc<InstanceLimits>,
    slot: Arc<SharedInstance>,
    sound: bool,
    /// True while the instance is a prewarmed one whose replacement is not requested yet.
    owes: AtomicBool,
    /// The time, in microseconds, that set-up functions ran for this lease.
    setup_us: AtomicU64,
    /// True if a sandbox was started for this lease.
    pub cold: bool,
    /// The way in which the instance was found or started.
    pub start: Start,
    /// When the lease was requested.
    pub asked: Instant,
    /// When the instance was ready.
    pub ready: Instant,
}

impl InstanceLease {
    /// Reserves the slot; the instance may still be starting. Until `begin`, dropping the lease has
    /// no effect on the instance.
    pub(crate) fn reserve(
        instances: Arc<Instances>,
        key: Digest,
        tenant: Tenant,
        limits: Arc<InstanceLimits>,
        slot: Arc<SharedInstance>,
        asked: Instant,
    ) -> Self {
        instances.busy.enter();
        let start = Start::Shared;
        let ready = asked;
        let sound = true;
        let owes = AtomicBool::new(false);
        let cold = false;
        let setup_us = AtomicU64::new(0);
        Self {
            instances,
            key,
            tenant,
            limits,
            slot,
            sound,
            owes,
            setup_us,
            cold,
            start,
            asked,
            ready,
        }
    }

    /// Notes that the instance is ready; from now on dropping the lease gives up on the call.
    pub(crate) fn begin(mut self, start: Start) -> Self {
        (self.start, self.cold, self.sound) = (start, start.is_cold(), false);
        self.owes = AtomicBool::new(start == Start::Prewarmed);
        self.ready = Instant::now();
        self.instances.starts.observe(start, self.ready - self.asked);
        self
    }

    pub(crate) fn slot(&self) -> &Arc<SharedInstance> {
        &self.slot
    }

    /// Loads code on a new connection, which the caller may hand to a query worker.
    pub async fn open(&self, load: &Load, limit: Duration) -> Result<BlockingStream> {
        let stream = self.load(load, limit).await?;
        Ok(stream.into_blocking().map_err(snowmelt_wire::Error::from)?)
    }

    /// Asks the code for the signatures of its UDFs.
    pub async fn describe(&self, load: &Load, limit: Duration) -> Result<Frame> {
        let dialogue = async {
            let (mut stream, first) = self.instance()?.load(load).await?;
            // The runtime may say that the code is loaded before it answers.
            if first.kind == Kind::Ready { next(&mut stream).await } else { Ok(first) }
        };
        let frame = self.within(limit, &load.function, dialogue).await?;
        Ok(self.refuse_failure(frame)?.expect(Kind::Return, "the signatures")?)
    }

    /// Loads a function and keeps its connection for the first call.
    pub async fn preload(&mut self, load: &Load, limit: Duration) -> Result<()> {
        if !self.instance()?.is_loaded(load) {
            let stream = self.load(load, limit).await?;
            self.instance()?.keep_loaded(load, stream);
        }
        Ok(())
    }

    /// Calls a function. After an error other than [`Error::Function`] the lease must not be given
    /// back.
    pub async fn call(&mut self, load: &Load, call: &Call, limit: Duration) -> Result<Answer> {
        let begun = Instant::now();
        let mut stream = match self.instance()?.take_loaded(load) {
            Some(stream) => stream,
            None => self.load(load, limit).await?,
        };
        let request = Frame::json(Kind::Call, call)?;
        let left = limit.saturating_sub(begun.elapsed());
        let instance = self.instance()?;
        let dialogue = async {
            instance.send(&mut stream, &request).await?;
            self.instances.answers.read(&mut stream, &self.tenant, &load.function).await
        };
        let span = tracing::debug_span!(target: SPANS, "function.run");
        let answered = self.within_of(left, limit, &load.function, dialogue).instrument(span);
        let (frame, room) = answered.await?;
        // A function that raised is as good as new for the next call.
        self.instance()?.keep_loaded(load, stream);
        let frame = self.refuse_failure(frame)?.expect(Kind::Return, "the answer")?;
        answer::parsed(&frame, room)
    }

    /// Returns the output of the instance since the last read. For an instance with several
    /// concurrent calls this is the output of all of them.
    pub fn take_log(&self) -> LogText {
        self.instance().map(|instance| instance.log.take()).unwrap_or_default()
    }

    /// Returns the most memory that the instance held; `None` where the kernel does not count it.
    pub fn memory_peak(&self) -> Option<ByteSize> {
        self.instance().ok()?.sandbox.memory_peak()
    }

    /// Returns the processor time of the instance so far, which may be older than this lease.
    pub fn cpu_time(&self) -> Option<Duration> {
        crate::resources::machine::used_by(self.instance().ok()?.sandbox.pid())
    }

    /// Returns how long the set-up functions of the code ran for this lease, in microseconds, as
    /// the instance says; 0 if they ran before it.
    pub fn setup_us(&self) -> u64 {
        self.setup_us.load(Ordering::Relaxed)
    }

    /// Returns why the instance ended, if it ends within `patience`; otherwise `None`.
    pub async fn ended(&self, name: &str, patience: Duration) -> Option<Error> {
        let instance = self.instance().ok()?;
        let outcome = tokio::time::timeout(patience, instance.sandbox.wait()).await.ok()?;
        Some(self.ended_with(name, outcome, None))
    }

    /// Returns why the connection to the instance has ended, and the last lines that the instance
    /// wrote.
    pub async fn why_ended(&self, name: &str) -> (ErrorReport, String) {
        match self.ended(name, END_NOTICE_TIMEOUT).await {
            Some(ended) => (ended.report(), ended.last_output()),
            None => {
                let message = format!("the instance of `{name}` closed its connection");
                (ErrorReport::new(Code::PROTOCOL, message), String::new())
            }
        }
    }

    /// Returns the slot for the next call.
    pub fn give_back(mut self) {
        self.sound = true;
    }

    async fn load(&self, load: &Load, limit: Duration) -> Result<ReadableStream> {
        let loading = self.instance()?.load(load);
        let span = tracing::debug_span!(target: SPANS, "function.load");
        let loaded = self.within(limit, &load.function, loading).instrument(span);
        let (stream, frame) = loaded.await.map_err(|error| named_silent(error, load))?;
        let ready = self.refuse_failure(frame)?.expect(Kind::Ready, "the word that it is ready")?;
        let LoadReport { setup_us, .. } = ready.parse()?;
        // A later load for the same lease says 0, because the set-up has run.
        self.setup_us.fetch_max(setup_us, Ordering::Relaxed);
        if let Some(image) = self.instance()?.started_in() {
            self.instances.images.ready(&image);
        }
        Ok(stream)
    }

    async fn within<T>(
        &self,
        limit: Duration,
        name: &str,
        dialogue: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        self.within_of(limit, limit, name, dialogue).await
    }

    /// Waits for a dialogue; a closed connection or a time-out becomes the error that says how the
    /// sandbox ended.
    async fn within_of<T>(
        &self,
        left: Duration,
        limit: Duration,
        name: &str,
        dialogue: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let mut dialogue = pin!(dialogue);
        let mut throttled_before = None;
        let mut answer = tokio::time::timeout(left.min(CALL_LEFT_ALONE), &mut dialogue).await;
        if answer.is_err() {
            // A long call: the instance that it took is not back soon, so its replacement is
            // started now.
            self.replace();
            // From now on, to tell a call that hangs from one that gets no processor time.
            throttled_before = self.throttled();
            answer = tokio::time::timeout(left.saturating_sub(CALL_LEFT_ALONE), dialogue).await;
        }
        match answer {
            Ok(Err(Error::Wire(wire))) => {
                Err(self.ended(name, END_NOTICE_TIMEOUT).await.unwrap_or(Error::Wire(wire)))
            }
            Ok(answer) => answer,
            Err(_) => {
                let now = self.throttled().zip(throttled_before);
                let throttled = now.map(|(now, before)| now.saturating_sub(before));
                Err(self.timed_out(name, limit, throttled).await)
            }
        }
    }

    /// Ends the instance whose time is up. An instance that other calls use as well is left to
    /// them: it gets no further calls, and the call that hangs in it ends when they have ended.
    async fn timed_out(&self, name: &str, limit: Duration, throttled: Option<Duration>) -> Error {
        let instance = match self.instance() {
            Ok(instance) => instance,
            Err(error) => return error,
        };
        let limit_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        let end = End::Timeout { limit_ms };
        let without_details =
            Outcome { end: end.clone(), peak_memory: None, cpu: None, wall: limit };
        if self.instances.slots.taken(&self.slot) > 1 {
            instance.spoil();
            return self.ended_with(name, without_details, throttled);
        }
        // The reason goes with the signal, so that the outcome says that it was the time.
        instance.sandbox.kill(end);
        let ended = tokio::time::timeout(END_NOTICE_TIMEOUT, instance.sandbox.wait()).await;
        self.ended_with(name, ended.unwrap_or(without_details), throttled)
    }

    /// Requests the replacement of a prewarmed instance, once.
    fn replace(&self) {
        if self.owes.swap(false, Ordering::Relaxed) {
            self.instances.replenish_soon();
        }
    }

    fn throttled(&self) -> Option<Duration> {
        self.instance().ok()?.sandbox.throttled()
    }

    fn ended_with(&self, name: &str, outcome: Outcome, throttled: Option<Duration>) -> Error {
        let output = self.take_log().last_lines(8);
        Error::Ended { name: name.to_owned(), outcome, throttled, output }
    }

    /// Turns a failure of the function into an error. The limit that was reached is added here,
    /// because a runtime inside the sandbox need not know its limits.
    fn refuse_failure(&self, frame: Frame) -> Result<Frame> {
        if frame.kind != Kind::Failure {
            return Ok(frame);
        }
        let mut failure = frame.parse::<FunctionFailure>()?;
        if let Some(limit) = self.limits.reached(failure.kind) {
            failure.limit.get_or_insert(limit);
            // A heap is full before the sandbox is; of other limits, one more than the limit was
            // refused.
            let is_heap = failure.kind == snowmelt_wire::FailureKind::Memory;
            let peak = if is_heap { self.memory_peak().map(ByteSize::bytes) } else { Some(limit) };
            failure.peak = failure.peak.or(peak);
        }
        Err(Error::Function(failure))
    }

    fn instance(&self) -> Result<&Arc<Instance>> {
        self.slot.instance.get().ok_or(Error::Defect { what: "a lease has no instance" })
    }
}

/// Returns a clearer error for a program of the user's own that was not ready in time: it probably
/// does not know that it has to say so.
fn named_silent(error: Error, load: &Load) -> Error {
    let timed_out = matches!(&error, Error::Ended { outcome, .. }
        if matches!(outcome.end, End::Timeout { .. }));
    if timed_out && load.code == PROGRAM_CODE {
        return Error::Silent { name: load.function.clone(), ended: Box::new(error) };
    }
    error
}

impl Drop for InstanceLease {
    fn drop(&mut self) {
        self.instances.busy.leave();
        self.replace();
        // Before the slot is left: the instance must not be taken by the next call in between.
        if !self.sound
            && let Ok(instance) = self.instance()
        {
            instance.spoil();
        }
        if self.instances.slots.leave(&self.key, &self.slot)
            && let Ok(instance) = self.instance()
        {
            self.instances.take_back(&self.key, &self.limits, Arc::clone(instance));
        }
    }
}
