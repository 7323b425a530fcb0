//! What an instance may use.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use snowmelt_api::FunctionOptions;
use snowmelt_sandbox::{Limits, ProcessSettings};
use snowmelt_types::{ByteSize, CpuMillis, Digest};
use snowmelt_wire::FailureKind;

/// The most calls that one instance takes at once.
const MAX_CONCURRENT: u32 = 1000;

/// The longest answer of a function.
pub const MAX_ANSWER: ByteSize = ByteSize::mib(64);

/// The program of a query worker, in its sandbox.
pub(crate) const QUERY_PROGRAM: &str = "/opt/snowmelt/bin/snowmelt-query";

/// What an instance may use, and what it finds in its environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceLimits {
    /// Memory limit.
    pub memory: ByteSize,
    /// Processor share.
    pub cpu: CpuMillis,
    /// Processes and threads.
    pub pids: u32,
    /// Bytes of its writable scratch.
    pub scratch: ByteSize,
    /// Open descriptors of one process.
    pub open_files: u64,
    /// Bytes of its output that are kept between two reads.
    pub log: ByteSize,
    /// Environment variables.
    pub environment: BTreeMap<String, String>,
    /// Folders of its root in which a program may write; what they hold counts to the scratch.
    #[serde(default)]
    pub writable: Vec<PathBuf>,
    /// How long it is kept without work.
    pub idle: Duration,
    /// Calls that it takes at once.
    pub concurrency: u32,
}

impl Default for InstanceLimits {
    fn default() -> Self {
        let Limits { memory, cpu, pids, scratch, open_files } = Limits::default();
        Self {
            memory,
            cpu,
            pids,
            scratch,
            open_files,
            log: ByteSize::mib(1),
            environment: BTreeMap::new(),
            writable: Vec::new(),
            idle: Duration::from_secs(60),
            concurrency: 1,
        }
    }
}

impl From<&FunctionOptions> for InstanceLimits {
    fn from(options: &FunctionOptions) -> Self {
        Self {
            memory: options.memory,
            cpu: options.cpu,
            pids: options.pids,
            scratch: options.scratch,
            open_files: options.open_files,
            log: options.log,
            environment: options.environment.clone(),
            writable: options.writable.clone(),
            idle: Duration::from_millis(options.idle_ms),
            concurrency: options.concurrency.clamp(1, MAX_CONCURRENT),
        }
    }
}

impl InstanceLimits {
    /// Instances with other limits are not interchangeable.
    pub(crate) fn key(&self, unit: &Digest) -> Digest {
        // Named one by one, so that none is forgotten. Each call needs this: text would take longer
        // than all the rest of finding an instance.
        let Self { memory, cpu, pids, scratch, open_files, log, environment, .. } = self;
        let Self { writable, idle, concurrency, .. } = self;
        let numbers = [
            memory.bytes(),
            cpu.0.into(),
            (*pids).into(),
            scratch.bytes(),
            *open_files,
            log.bytes(),
            idle.as_secs(),
            idle.subsec_nanos().into(),
            (*concurrency).into(),
        ];
        let numbers = numbers.map(u64::to_le_bytes);
        let variables =
            environment.iter().flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]);
        let folders = writable.iter().map(|folder| folder.as_os_str().as_bytes());
        let count = (writable.len() as u64).to_le_bytes();
        let parts = [unit.as_str().as_bytes(), numbers.as_flattened(), &count];
        Digest::of_parts(parts.into_iter().chain(folders).chain(variables))
    }

    /// The limit behind a failure, if one is.
    pub(crate) fn reached(&self, kind: FailureKind) -> Option<u64> {
        match kind {
            FailureKind::Processes => Some(self.pids.into()),
            FailureKind::Scratch => Some(self.scratch.bytes()),
            FailureKind::Files => Some(self.open_files),
            FailureKind::Memory => Some(self.memory.bytes()),
            _ => None,
        }
    }

    /// How a program of these limits starts.
    pub(crate) fn of_process(&self, process: &ProcessSettings) -> ProcessSettings {
        ProcessSettings { writable: self.writable.clone(), ..process.clone() }
    }

    /// What the kernel holds it to.
    pub(crate) fn of_sandbox(&self) -> Limits {
        Limits {
            memory: self.memory,
            cpu: self.cpu,
            pids: self.pids,
            scratch: self.scratch,
            open_files: self.open_files,
        }
    }
}
