//! Query workers: the program `snowmelt-query` in a sandbox, executed afresh or taken again idle.
//!
//! A worker holds no state between tasks and has no path to any data: each task grants it open
//! files and connected sockets, so an idle worker serves any query.

use std::path::{Path, PathBuf};

use futures::FutureExt;
use snowmelt_ledger::{Amount, Reservation, Use};
use snowmelt_sandbox::{
    Bind, Limits, Network, ProcessSettings, Root, Sandbox, SandboxSpec, SyscallPolicy,
};
use snowmelt_types::{ByteSize, CpuMillis, Digest, SandboxId};

use crate::process::limits::QUERY_PROGRAM;
use crate::process::log::{LogCollector, PLATFORM_LOG};
use crate::{Error, Result};

/// The files that name resolution and TLS need; only a worker that reads from S3 or over HTTP gets
/// them.
const NETWORK_FILES: [&str; 6] = [
    "/etc/ssl",
    "/etc/ca-certificates",
    "/etc/pki",
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/nsswitch.conf",
];

/// The variable that names the certificate authorities which are trusted in the place of the
/// system's. `AUTHORITIES` is the path at which a worker has them.
const AUTHORITIES_VARIABLE: &str = "SSL_CERT_FILE";
const AUTHORITIES: &str = "/etc/authorities.pem";

/// The variable with the number of milliseconds after which the allocator gives free pages back to
/// the kernel. By itself it would do so once a second, and the kernel clears the pages again for
/// the next task: a fifth of the processor time of short tasks. The memory of a worker is reserved
/// until it ends, so nobody else could use it.
const PURGE_DELAY: (&str, &str) = ("MIMALLOC_PURGE_DELAY", "30000");

/// The variable with which the allocator of a worker with little memory gives free pages back at
/// once: free pages that are kept count for the worker's limit, which leaves its operators too
/// little.
const SMALL_PURGE_DELAY: (&str, &str) = ("MIMALLOC_PURGE_DELAY", "0");

/// The variable with the memory that the allocator reserves at once. With the 1 GiB that it
/// reserves by itself the tables alone are 40 pages, which each cold worker would touch; a worker
/// with much memory reserves more and more.
const RESERVE: (&str, &str) = ("MIMALLOC_ARENA_RESERVE", "128MiB");

/// The memory limit below which a worker has little memory.
const SMALL_MEMORY: ByteSize = ByteSize::mib(256);

/// The limits of a query worker. Workers of the same spec are interchangeable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerSpec {
    /// The memory limit of the sandbox.
    pub memory: ByteSize,
    /// The processor share, in thousandths of a processor.
    pub cpu: CpuMillis,
    /// True if the worker reads from S3 or over HTTP.
    pub network: bool,
}

impl WorkerSpec {
    /// Returns the amount that the worker reserves: all of its limit, because the data that a
    /// worker sorts and joins fills it.
    pub fn amount(&self) -> Amount {
        Amount::one(self.memory, self.cpu)
    }

    pub(crate) fn key(&self) -> Digest {
        Digest::of(format!("{self:?}"))
    }

    pub(crate) fn sandbox(&self, binary: &Path) -> SandboxSpec {
        let mut binds = vec![Bind { source: binary.to_owned(), target: QUERY_PROGRAM.into() }];
        let delay = if self.memory < SMALL_MEMORY { SMALL_PURGE_DELAY } else { PURGE_DELAY };
        let fixed = [delay, RESERVE].map(|(name, value)| (name.to_owned(), value.to_owned()));
        let mut env = fixed.to_vec();
        if self.network {
            let present = NETWORK_FILES.iter().filter(|file| Path::new(file).exists());
            binds.extend(present.map(|file| Bind { source: file.into(), target: file.into() }));
            if let Some(source) = own_authorities() {
                binds.push(Bind { source, target: AUTHORITIES.into() });
                env.push((AUTHORITIES_VARIABLE.to_owned(), AUTHORITIES.to_owned()));
            }
        }
        SandboxSpec {
            id: SandboxId::new(),
            root: Root { binds, ..Root::default() },
            command: vec![QUERY_PROGRAM.to_owned()],
            env,
            limits: Limits {
                memory: self.memory,
                cpu: self.cpu,
                pids: 64,
                scratch: ByteSize::mib(16),
                // A descriptor for each file that its task reads.
                open_files: 65_536,
            },
            network: if self.network { Network::Host } else { Network::None },
            policy: SyscallPolicy::Worker,
            // The worker allows huge pages when it uses much memory (decision 073).
            process: ProcessSettings { huge_pages: false, ..ProcessSettings::default() },
        }
    }
}

/// Returns the file with the platform's own certificate authorities, if the variable names one.
fn own_authorities() -> Option<PathBuf> {
    let file = PathBuf::from(std::env::var_os(AUTHORITIES_VARIABLE)?).canonicalize().ok()?;
    file.is_file().then_some(file)
}

/// A query worker: its sandbox, its output and its room.
#[derive(Debug)]
pub(crate) struct Worker {
    pub sandbox: Sandbox,
    pub log: LogCollector,
    // `None` in room that its query keeps. The room is given back last, after the sandbox.
    pub room: Option<Reservation>,
}

impl Worker {
    pub fn new(mut sandbox: Sandbox, room: Option<Reservation>) -> Result<Self> {
        let read_end = sandbox.take_log().ok_or(Error::OUTPUT_TAKEN)?;
        let log = LogCollector::new(read_end, PLATFORM_LOG).map_err(snowmelt_wire::Error::from)?;
        Ok(Self { sandbox, log, room })
    }

    /// Books the worker's room for this use from now on.
    pub fn used_for(&mut self, use_: Use) {
        if let Some(room) = &mut self.room {
            let all = room.amount();
            *room = room.take(all, use_);
        }
    }

    pub fn is_alive(&self) -> bool {
        self.sandbox.wait().now_or_never().is_none()
    }
}
