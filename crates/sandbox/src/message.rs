//! The messages between the handle and the spawner: one JSON object per packet.
//!
//! Both ends are the same build of the same binary, so the messages have no version.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use snowmelt_kernel::rootless::NamespaceIds;
use snowmelt_types::{ByteSize, SandboxId};

use crate::cgroup::{FreezerFile, ThrottledFile};
use crate::spec::{ForkSpec, NetworkId, NetworkProgram, SandboxSpec, Total, ZygoteSpec};

/// The longest packet: well under the default send buffer of a unix socket (208 KiB).
pub const LONGEST_PACKET: usize = 160 << 10;

/// The maximum number of lanes of one spawner: processes that make sandboxes in parallel.
pub const MAX_LANES: u32 = 4;

/// The maximum number of zygotes per lane that were not forked from another zygote: each has a
/// range of user ids.
pub const ZYGOTES: u32 = 60;

/// The first packet, to the spawner, with one descriptor: the lock of the run directory.
#[derive(Debug, Serialize, Deserialize)]
pub struct Setup {
    /// The run directory.
    pub run_dir: PathBuf,
    /// The parent control group of all sandboxes.
    pub parent_cgroup: String,
    /// The limits of that control group.
    pub total: Total,
    /// The user who connects to sandboxes and pauses them; `None` is root.
    pub server_user: Option<u32>,
    /// The ids of the server's own user namespace; `None` if it runs as root.
    pub ids: Option<NamespaceIds>,
}

/// A packet while a spawner is set up, with the pidfd of a process that it has made: first of init,
/// then of the first lane. The server ends them if the spawner does not become ready in time.
pub const MADE: &[u8] = b"made";

/// The first packet from each lane, with its pidfd and that of init: ready, or the error.
#[derive(Debug, Serialize, Deserialize)]
pub struct SetupDone(pub Result<(), String>);

/// A message from the handle to the spawner.
#[derive(Debug, Serialize, Deserialize)]
pub struct SpawnerRequest {
    /// The number of the request, which the answer repeats.
    pub sequence: u64,
    /// The requested operation.
    pub operation: SpawnerOperation,
}

/// The operations of the spawner.
#[derive(Debug, Serialize, Deserialize)]
pub enum SpawnerOperation {
    /// Starts a program. Answered by `Started` or `Failed`.
    Start(SandboxSpec),
    /// Starts a zygote. Answered by `Started` once the imports are done, or by `Failed`.
    StartZygote(ZygoteSpec),
    /// Starts several programs. Each spec is answered like a `Start`, with consecutive sequence
    /// numbers.
    StartMany(Vec<SandboxSpec>),
    /// Starts several programs in the network of a job. Each is answered as in `StartMany`. A
    /// program's entry is written into the table of the network before the program is executed.
    StartManyIn(Vec<NetworkProgram>),
    /// Forks a zygote. Answered by `Started` or `Failed`.
    Fork { zygote: SandboxId, spec: ForkSpec },
    /// Forks a zygote several times. Each spec is answered like a `Fork`, with consecutive sequence
    /// numbers.
    ForkMany { zygote: SandboxId, specs: Vec<ForkSpec> },
    /// Makes a zygote below another. Answered like `StartZygote`.
    Grow { zygote: SandboxId, spec: ZygoteSpec },
    /// Kills the sandbox of this id, started or starting; no answer but `Ended` or `Failed`.
    Kill { id: SandboxId },
    /// Lets a zygote end when its last child has ended; no answer but `Ended`.
    Retire { id: SandboxId },
    /// Makes a network namespace, for the children of a zygote or for programs. With
    /// `has_notifier`, their calls that name an address wait for an answer. May come with one
    /// descriptor: a table of the kernel with entries by control group. Answered by `Network` or
    /// `Failed`.
    MakeNetwork { network: NetworkId, owner: Option<SandboxId>, has_notifier: bool },
    /// Drops a network namespace; no answer.
    DropNetwork { network: NetworkId },
    /// Makes another lane of this unused number, whose control socket comes with this packet; the
    /// lane answers there.
    Open { lane: u32 },
    /// Kills everything, removes everything and exits; answered by the end of the stream.
    Shutdown,
}

/// A message from the spawner to the handle.
#[derive(Debug, Serialize, Deserialize)]
pub enum SpawnerEvent {
    /// A sandbox was started. Comes with three descriptors: pidfd, the channel's inode (`O_PATH`),
    /// the log's read end; and a fourth in a network with a notifier: the seccomp listener.
    Started { sequence: u64, started: StartProperties },
    /// A network namespace was made. Comes with one descriptor: the namespace.
    Network { sequence: u64 },
    /// Nothing was started, or everything of it is removed.
    Failed { sequence: u64, failure: StartFailure },
    /// A `Started` sandbox has ended; its control groups are removed before anything else is done.
    Ended { id: SandboxId, ended: SandboxEnd },
}

/// The properties of a sandbox that are known at its start.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct StartProperties {
    /// The file with the sandbox's peak memory. `None` where the kernel has none.
    pub memory_peak_file: Option<PathBuf>,
    /// The file with the sandbox's current memory. `None` where the kernel has none.
    pub memory_file: Option<PathBuf>,
    /// The file with the time for which the sandbox was throttled by its CPU limit.
    pub throttled_file: Option<ThrottledFile>,
    /// The freezer of the sandbox's control group, where the kernel has one.
    pub freezer: Option<FreezerFile>,
    /// The report of a zygote when its imports were done. `None` for other sandboxes.
    pub zygote: Option<ZygoteReady>,
}

/// The report of a zygote after its imports. It comes from the tenant's process, so it is not
/// trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZygoteReady {
    /// The imports that failed, each as `module: error`.
    pub failed: Vec<String>,
    /// Threads other than the main one that the imports left running.
    pub threads: u32,
    /// The imports of this zygote, in order, without those of the zygotes above.
    #[serde(default)]
    pub imported: Vec<Imported>,
    /// Top-level modules that imports, here and in the zygotes above, looked for and did not find.
    /// The importing code may have chosen a fallback, so a zygote must not serve a function whose
    /// packages contain one of these.
    #[serde(default)]
    pub missed: Vec<String>,
}

/// An import of a zygote, and its cost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Imported {
    /// The module's name.
    pub module: String,
    /// The duration of the import in microseconds.
    pub us: u64,
    /// The growth of the zygote's private memory, in bytes.
    pub bytes: u64,
}

/// The way in which a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EndStatus {
    /// A normal exit, with this code.
    Exit(i32),
    /// A signal of this number.
    Signal(i32),
}

impl EndStatus {
    /// Whether the status is anything but an exit with 0.
    pub fn is_failure(self) -> bool {
        self != Self::Exit(0)
    }
}

/// The end of a sandbox, with the kernel's counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxEnd {
    /// The status of the sandbox's first process.
    pub status: EndStatus,
    /// Processes that the kernel killed because of the memory limit.
    pub oom_kills: u64,
    /// Forks refused because of the pids limit.
    pub forks_refused: u64,
    /// The time for which the sandbox was throttled by its CPU limit, in microseconds.
    pub throttled_us: u64,
    /// The peak memory of the sandbox.
    pub memory_peak: Option<ByteSize>,
    /// CPU time, user and system, in microseconds.
    pub cpu_us: Option<u64>,
    /// The time from the creation of the sandbox to its end, in microseconds.
    pub wall_us: u64,
}

/// The reason why nothing was started.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum StartFailure {
    /// A system call failed while doing `step`.
    Step { step: String, errno: i32 },
    /// The spec was refused.
    Spec { reason: String },
    /// The zygote does not exist or has ended.
    ZygoteLost { zygote: SandboxId },
    /// The lane has no free range of user ids for a zygote.
    ZygoteSlots,
}
