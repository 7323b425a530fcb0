//! The limits of an instance.

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

/// The length of the longest answer of a function.
pub const MAX_ANSWER: ByteSize = ByteSize::mib(64);

/// The path of the program of a query worker, inside its sandbox.
pub(crate) const QUERY_PROGRAM: &str = "/opt/snowmelt/bin/snowmelt-query";

/// The resources that an instance may use, and the variables in its environment. The options of the
/// function set them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceLimits {
    /// The memory limit of the sandbox.
    pub memory: ByteSize,
    /// The processor share, in thousandths of a processor.
    pub cpu: CpuMillis,
    /// The most processes and threads.
    pub pids: u32,
    /// The most bytes of the instance's writable scratch.
    pub scratch: ByteSize,
    /// The most open descriptors of one process.
    pub open_files: u64,
    /// The most bytes of output that are kept between two reads.
    pub log: ByteSize,
    /// The environment variables that the function's options set.
    pub environment: BTreeMap<String, String>,
    /// The folders of the instance's root in which a program may write; their contents count to the
    /// scratch.
    #[serde(default)]
    pub writable: Vec<PathBuf>,
    /// How long the instance is kept without work; with zero it is not kept.
    pub idle: Duration,
    /// The most calls that the instance takes at once, from 1.
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
    /// Returns the digest that names a unit with these limits: instances with other limits are not
    /// interchangeable.
    pub(crate) fn key(&self, unit: &Digest) -> Digest {
        // The fields are named one by one, so that none is forgotten. Each call computes this
        // digest: a textual form would take longer than all the rest of finding an instance.
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

    /// Returns the limit behind a failure, in its own unit; `None` if no limit is.
    pub(crate) fn reached(&self, kind: FailureKind) -> Option<u64> {
        match kind {
            FailureKind::Processes => Some(self.pids.into()),
            FailureKind::Scratch => Some(self.scratch.bytes()),
            FailureKind::Files => Some(self.open_files),
            FailureKind::Memory => Some(self.memory.bytes()),
            _ => None,
        }
    }

    /// Returns the settings with which a program of these limits starts.
    pub(crate) fn of_process(&self, process: &ProcessSettings) -> ProcessSettings {
        ProcessSettings { writable: self.writable.clone(), ..process.clone() }
    }

    /// Returns the limits that the kernel enforces.
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
