//! An instance: one sandbox that runs one unit of user code, and the dialogue with it.

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream as BlockingStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use serde::Serialize;
use snowmelt_sandbox::Sandbox;
use snowmelt_types::{ByteSize, CpuMillis, Digest, End, Outcome};
use snowmelt_wire::{Call, Frame, FunctionFailure, Kind, Load, Ready, read_frame, write_frame};
use tokio::net::UnixStream;

use crate::log::{LogCollector, LogText};
use crate::node::Inner;
use crate::zygotes::Slot;
use crate::{Error, Result};

/// How long the kernel may take to tell why a sandbox whose connection closed came to its end.
const END_IS_KNOWN_WITHIN: Duration = Duration::from_secs(3);

/// What an instance may use, and what it finds in its environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InstanceLimits {
    /// Memory limit.
    pub memory: ByteSize,
    /// Processor share.
    pub cpu: CpuMillis,
    /// Processes and threads.
    pub pids: u32,
    /// Bytes of its writable scratch.
    pub scratch: ByteSize,
    /// Environment variables.
    pub environment: BTreeMap<String, String>,
    /// How long it is kept without work.
    pub idle: Duration,
}

impl InstanceLimits {
    /// Instances with other limits are not interchangeable.
    pub(crate) fn key(&self, unit: &Digest) -> Digest {
        let text = format!("{self:?}");
        Digest::of_parts([unit.as_str(), &text])
    }
}

/// A sandbox that runs user code.
#[derive(Debug)]
pub(crate) struct Instance {
    sandbox: Sandbox,
    // Dropped after the sandbox: a child dies with its zygote.
    _zygote: Arc<Slot>,
    log: LogCollector,
    // The connection on which a function was loaded; kept so that a warm call needs no load.
    loaded: Option<UnixStream>,
}

impl Instance {
    pub fn new(mut sandbox: Sandbox, zygote: Arc<Slot>) -> Result<Self> {
        let read_end = sandbox.take_log().ok_or(snowmelt_wire::Error::Closed)?;
        let log = LogCollector::new(read_end)?;
        Ok(Self { sandbox, _zygote: zygote, log, loaded: None })
    }

    /// True until its end is known.
    pub fn is_alive(&self) -> bool {
        self.sandbox.wait().now_or_never().is_none()
    }
}

/// An instance that nobody else uses until it is given back. Dropping it destroys the sandbox.
#[derive(Debug)]
pub struct InstanceLease {
    node: Arc<Inner>,
    key: Digest,
    keep: Duration,
    // `None` only after it was given back.
    instance: Option<Instance>,
    /// True if the sandbox was started for this lease.
    pub cold: bool,
    /// When it was asked for.
    pub asked: Instant,
    /// When it was there.
    pub ready: Instant,
}

impl InstanceLease {
    pub(crate) fn new(
        node: Arc<Inner>,
        key: Digest,
        keep: Duration,
        instance: Instance,
        cold: bool,
        asked: Instant,
    ) -> Self {
        node.busy_instances.enter();
        Self { node, key, keep, instance: Some(instance), cold, asked, ready: Instant::now() }
    }

    /// Loads code on a new connection, which the caller may hand to a query worker.
    pub async fn open(&self, load: &Load, limit: Duration) -> Result<BlockingStream> {
        let stream = self.load(load, limit).await?;
        let stream = stream.into_std().map_err(snowmelt_wire::Error::from)?;
        stream.set_nonblocking(false).map_err(snowmelt_wire::Error::from)?;
        Ok(stream)
    }

    /// Asks the code for the signatures of its UDFs.
    pub async fn describe(&self, load: &Load, limit: Duration) -> Result<Frame> {
        let mut stream = self.connect()?;
        let dialogue = async {
            write_frame(&mut stream, &Frame::json(Kind::Load, load)?).await?;
            let first = next(&mut stream).await?;
            // The runtime may say that the code is loaded before it answers.
            if first.kind == Kind::Ready { next(&mut stream).await } else { Ok(first) }
        };
        let frame = self.within(limit, &load.function, dialogue).await?;
        Ok(refuse_failure(frame)?.expect(Kind::Return, "the signatures")?)
    }

    /// Loads a function and keeps its connection for the first call.
    pub async fn preload(&mut self, load: &Load, limit: Duration) -> Result<()> {
        if self.instance_mut()?.loaded.is_none() {
            let stream = self.load(load, limit).await?;
            self.instance_mut()?.loaded = Some(stream);
        }
        Ok(())
    }

    /// Calls a function. After an error the instance must not be given back.
    pub async fn call(
        &mut self,
        load: &Load,
        call: &Call,
        limit: Duration,
    ) -> Result<serde_json::Value> {
        let begun = Instant::now();
        let mut stream = match self.instance_mut()?.loaded.take() {
            Some(stream) => stream,
            None => self.load(load, limit).await?,
        };
        let request = Frame::json(Kind::Call, call)?;
        let left = limit.saturating_sub(begun.elapsed());
        let dialogue = async {
            write_frame(&mut stream, &request).await?;
            next(&mut stream).await
        };
        let frame = self.within_of(left, limit, &load.function, dialogue).await?;
        // A function that raised is as good as new for the next call.
        self.instance_mut()?.loaded = Some(stream);
        Ok(refuse_failure(frame)?.expect(Kind::Return, "the answer")?.parse()?)
    }

    /// What it wrote since the last look.
    pub fn take_log(&self) -> LogText {
        self.instance.as_ref().map(|instance| instance.log.take()).unwrap_or_default()
    }

    /// The most memory that it held.
    pub fn memory_peak(&self) -> Option<ByteSize> {
        self.instance.as_ref()?.sandbox.memory_peak()
    }

    /// Ends it because its time is up.
    pub fn kill_for_timeout(&self, limit: Duration) {
        if let Some(instance) = &self.instance {
            let limit_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
            instance.sandbox.kill(End::Timeout { limit_ms });
        }
    }

    /// Why it came to its end; `None` if it did not.
    pub async fn ended(&self, name: &str, patience: Duration) -> Option<Error> {
        let instance = self.instance.as_ref()?;
        let outcome = tokio::time::timeout(patience, instance.sandbox.wait()).await.ok()?;
        Some(self.ended_with(name, outcome))
    }

    /// Gives the instance back for the next call.
    pub fn give_back(mut self) {
        if let Some(instance) = self.instance.take().filter(Instance::is_alive) {
            self.node.instances.put(self.key.clone(), instance, self.keep);
        }
    }

    async fn load(&self, load: &Load, limit: Duration) -> Result<UnixStream> {
        let mut stream = self.connect()?;
        let dialogue = async {
            write_frame(&mut stream, &Frame::json(Kind::Load, load)?).await?;
            next(&mut stream).await
        };
        let frame = self.within(limit, &load.function, dialogue).await?;
        let _: Ready =
            refuse_failure(frame)?.expect(Kind::Ready, "the word that it is ready")?.parse()?;
        Ok(stream)
    }

    fn connect(&self) -> Result<UnixStream> {
        let instance = self.instance.as_ref().ok_or(snowmelt_wire::Error::Closed)?;
        let connect = || -> std::io::Result<UnixStream> {
            let stream = instance.sandbox.connect()?;
            stream.set_nonblocking(true)?;
            UnixStream::from_std(stream)
        };
        Ok(connect().map_err(snowmelt_wire::Error::from)?)
    }

    async fn within<T>(
        &self,
        limit: Duration,
        name: &str,
        dialogue: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        self.within_of(limit, limit, name, dialogue).await
    }

    /// Waits for a dialogue; a closed connection or a time-out becomes the sandbox's own end.
    async fn within_of<T>(
        &self,
        left: Duration,
        limit: Duration,
        name: &str,
        dialogue: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        match tokio::time::timeout(left, dialogue).await {
            Ok(Err(Error::Wire(wire))) => {
                Err(self.ended(name, END_IS_KNOWN_WITHIN).await.unwrap_or(Error::Wire(wire)))
            }
            Ok(answer) => answer,
            Err(_) => {
                self.kill_for_timeout(limit);
                let ended = self.ended(name, END_IS_KNOWN_WITHIN).await;
                Err(ended.unwrap_or(Error::Wire(snowmelt_wire::Error::Closed)))
            }
        }
    }

    fn ended_with(&self, name: &str, outcome: Outcome) -> Error {
        let output = self.take_log().last_lines(8);
        Error::Ended { name: name.to_owned(), outcome, output }
    }

    fn instance_mut(&mut self) -> Result<&mut Instance> {
        self.instance.as_mut().ok_or(Error::Wire(snowmelt_wire::Error::Closed))
    }
}

impl Drop for InstanceLease {
    fn drop(&mut self) {
        self.node.busy_instances.leave();
    }
}

async fn next(stream: &mut UnixStream) -> Result<Frame> {
    Ok(read_frame(stream).await?.ok_or(snowmelt_wire::Error::Closed)?)
}

fn refuse_failure(frame: Frame) -> Result<Frame> {
    if frame.kind == Kind::Failure {
        return Err(Error::Function(frame.parse::<FunctionFailure>()?));
    }
    Ok(frame)
}
