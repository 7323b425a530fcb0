//! What the handle and the spawner say to each other: one JSON object a packet.
//!
//! Both ends are the same build of the same binary, so there is no version in it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use snowmelt_types::{ByteSize, SandboxId};

use crate::cgroup::{Switch, ThrottledFile};
use crate::spec::{ForkSpec, NativeZygoteSpec, NetworkId, SandboxSpec, Total, ZygoteSpec};

/// The longest packet: well under the default send buffer of a unix socket (208 KiB).
pub const LONGEST_PACKET: usize = 160 << 10;

/// The most lanes of one spawner: processes that make sandboxes side by side.
pub const MOST_LANES: u32 = 4;

/// The most zygotes of each lane that are below no other: each has a range of user ids.
pub const ZYGOTES: u32 = 60;

/// The first packet, to the spawner, with one descriptor: the lock of the run directory.
#[derive(Debug, Serialize, Deserialize)]
pub struct Setup {
    /// Where it works.
    pub run_dir: PathBuf,
    /// The control group above those of the sandboxes.
    pub parent_cgroup: String,
    /// The most for all of those.
    pub total: Total,
}

/// A packet while a spawner is set up, with the pidfd of a process that it has made: first of init,
/// then of the first lane. The server ends them if the spawner does not become ready in time.
pub const MADE: &[u8] = b"made";

/// The first packet from each lane, with its pidfd and that of init: ready, or why it cannot be.
#[derive(Debug, Serialize, Deserialize)]
pub struct SetupDone(pub Result<(), String>);

/// From the handle.
#[derive(Debug, Serialize, Deserialize)]
pub struct Request {
    /// Repeated in the answer.
    pub sequence: u64,
    /// What to do.
    pub operation: Operation,
}

/// What the spawner can do.
#[derive(Debug, Serialize, Deserialize)]
pub enum Operation {
    /// Answered by `Started` or `Failed`.
    Start(SandboxSpec),
    /// Answered by `Started` once the imports are done, or by `Failed`.
    StartZygote(ZygoteSpec),
    /// The same, of any language.
    StartNativeZygote(NativeZygoteSpec),
    /// Each is answered as a `Start` of the sequence that follows the one before.
    StartMany(Vec<SandboxSpec>),
    /// Answered by `Started` or `Failed`.
    Fork { zygote: SandboxId, spec: ForkSpec },
    /// Each is answered as a `Fork` of the sequence that follows the one before.
    ForkMany { zygote: SandboxId, specs: Vec<ForkSpec> },
    /// A zygote below another. Answered as `StartZygote`.
    Grow { zygote: SandboxId, spec: ZygoteSpec },
    /// Kill what has this id, started or about to be; no answer but `Ended` or `Failed`.
    Kill { id: SandboxId },
    /// Let a zygote end when its last child has; no answer but `Ended`.
    Retire { id: SandboxId },
    /// Make a network namespace, for the children of a zygote or for programs, whose calls that
    /// name an address wait for an answer if it is guarded. Answered by `Network` or `Failed`.
    MakeNetwork { network: NetworkId, owner: Option<SandboxId>, is_guarded: bool },
    /// Forget one; no answer.
    DropNetwork { network: NetworkId },
    /// Make another lane of this number, which nobody else has, whose control socket comes with
    /// this; the lane answers there.
    Open { lane: u32 },
    /// Kill everything, remove everything and exit; answered by the end of the stream.
    Shutdown,
}

/// From the spawner.
#[derive(Debug, Serialize, Deserialize)]
pub enum Event {
    /// With three descriptors: pidfd, the channel's inode (`O_PATH`), the log's read end; and a
    /// fourth in a guarded network: what its calls are answered by.
    Started { sequence: u64, started: Started },
    /// With one descriptor: the network namespace.
    Network { sequence: u64 },
    /// Nothing was started, or nothing is left of it.
    Failed { sequence: u64, failure: Failure },
    /// A sandbox that was `Started` is no more; its control groups go before anything else is done.
    Ended { id: SandboxId, ended: Ended },
}

/// What is known of a sandbox from its start.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Started {
    /// File of the most memory held so far.
    pub memory_peak_file: Option<PathBuf>,
    /// File of the memory held now.
    pub memory_file: Option<PathBuf>,
    /// Where it is said how long it was held back by its share of the processor.
    pub throttled_file: Option<ThrottledFile>,
    /// What pauses it, where the kernel can.
    pub switch: Option<Switch>,
    /// For a zygote: what it said when its imports were done.
    pub zygote: Option<ZygoteReady>,
}

/// What a zygote says of itself after its imports. It is the tenant's word.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZygoteReady {
    /// `module: error` of each import that failed.
    pub failed: Vec<String>,
    /// Threads beside the main one that the imports left running.
    pub threads: u32,
    /// What was imported here, in its order; not what a zygote above had imported.
    #[serde(default)]
    pub imported: Vec<Imported>,
    /// Top-level modules that imports, here and in the zygotes above, looked for and did not
    /// find. What imported them may have settled for less, so a zygote must not serve a function
    /// whose packages bring one of these.
    #[serde(default)]
    pub missed: Vec<String>,
}

/// An import of a zygote, and what it cost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Imported {
    /// Its name.
    pub module: String,
    /// How long it took, in microseconds.
    pub us: u64,
    /// By how much the memory that is the zygote's alone grew.
    pub bytes: u64,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Status {
    /// By itself.
    Exit(i32),
    /// By a signal.
    Signal(i32),
}

impl Status {
    /// Whether it is not a plain exit with 0.
    pub fn is_failure(self) -> bool {
        self != Self::Exit(0)
    }
}

/// The end of a sandbox, as the kernel counted it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// How its first process ended.
    pub status: Status,
    /// Processes that the kernel killed for want of memory.
    pub oom_kills: u64,
    /// Forks that were refused because of the pids limit.
    pub forks_refused: u64,
    /// How long it had to wait because its share of the processor was used up, in microseconds.
    pub throttled_us: u64,
    /// The most memory it held.
    pub memory_peak: Option<ByteSize>,
    /// Processor time, user and system, in microseconds.
    pub cpu_us: Option<u64>,
    /// From its creation to its end, in microseconds.
    pub wall_us: u64,
}

/// Why nothing was started.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Failure {
    /// A system call failed while doing `step`.
    Step { step: String, errno: i32 },
    /// The spec was refused.
    Spec { reason: String },
    /// The zygote is not there or no more.
    ZygoteLost { zygote: SandboxId },
    /// This lane has no range of user ids left for a zygote.
    ZygoteSlots,
}
