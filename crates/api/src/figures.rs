//! What a host tells of itself: who is alive, how the caches do, and how long starts take.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Upper bounds of the histograms of starts, in microseconds; what is above them all counts too.
pub const START_BOUNDS_US: [u64; 12] =
    [100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 100_000, 500_000, 2_000_000, 10_000_000];

/// Where an instance came from, the fastest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Start {
    /// A slot of an instance that has calls already, or is started for them.
    Shared,
    /// The handler cache: an idle instance, resumed.
    Idle,
    /// A prewarmed instance.
    Prewarmed,
    /// The import cache: forked from a zygote with all that the function declares.
    Zygote,
    /// Forked from a zygote with a part of it.
    PartialZygote,
    /// Forked from a bare interpreter.
    BareZygote,
    /// Executed.
    Program,
}

impl Start {
    /// All there are.
    pub const ALL: [Self; 7] = [
        Self::Shared,
        Self::Idle,
        Self::Prewarmed,
        Self::Zygote,
        Self::PartialZygote,
        Self::BareZygote,
        Self::Program,
    ];

    /// Whether a sandbox was made for it.
    pub fn is_cold(self) -> bool {
        !matches!(self, Self::Shared | Self::Idle | Self::Prewarmed)
    }

    /// Its name in figures.
    pub fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Idle => "idle",
            Self::Prewarmed => "prewarmed",
            Self::Zygote => "zygote",
            Self::PartialZygote => "partial-zygote",
            Self::BareZygote => "bare-zygote",
            Self::Program => "program",
        }
    }
}

/// Starts of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StartFigures {
    /// Which.
    pub kind: Start,
    /// Starts of at most each of [`START_BOUNDS_US`] and above the one before; then the rest.
    pub buckets: Vec<u64>,
    /// All of them together, in microseconds.
    pub sum_us: u64,
}

impl StartFigures {
    /// How many there were.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

/// The install cache: packages that are unpacked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InstallFigures {
    /// Environments that were there.
    pub environment_hits: u64,
    /// Environments that were put together.
    pub environment_misses: u64,
    /// Wheels that were there.
    pub wheel_hits: u64,
    /// Wheels that were unpacked.
    pub wheel_misses: u64,
    /// Bytes on disk.
    pub bytes: u64,
}

/// All figures of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodeFigures {
    /// Instances that are leased.
    pub busy: u32,
    /// Prewarmed instances that wait for a call.
    pub prewarmed: u32,
    /// Memory of those, in bytes.
    pub prewarmed_bytes: u64,
    /// The handler cache: paused instances.
    pub handlers: PoolFigures,
    /// Query workers: busy.
    pub busy_workers: u32,
    /// Query workers: idle.
    pub workers: PoolFigures,
    /// The install cache.
    pub installs: InstallFigures,
    /// The import cache.
    pub imports: ImportFigures,
    /// Starts by kind.
    pub starts: Vec<StartFigures>,
    /// The account of the host.
    #[serde(default)]
    pub ledger: LedgerFigures,
}

/// What a host has for sandboxes, what is reserved of it now, and how requests for room ended since
/// the node started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LedgerFigures {
    /// Memory for all sandboxes, in bytes.
    pub memory_bytes: u64,
    /// The most sandboxes.
    pub instances: u64,
    /// Reserved memory, in bytes.
    pub reserved_memory_bytes: u64,
    /// Reserved processor, in thousandths of a core; counted, not bounded.
    pub reserved_cpu_millis: u64,
    /// Sandboxes with a reservation.
    pub reserved_instances: u64,
    /// The same by use; uses without a reservation are left out.
    pub uses: Vec<UseFigures>,
    /// Requests that wait for room.
    pub waiting: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// Requests that were granted after they had waited.
    pub waited: u64,
}

/// What is reserved for one use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UseFigures {
    /// `function`, `udf`, `worker`, `driver`, `task`, `burst` or `zygote`.
    pub name: String,
    /// Memory, in bytes.
    pub memory_bytes: u64,
    /// Processor, in thousandths of a core.
    pub cpu_millis: u64,
    /// Sandboxes.
    pub instances: u64,
}

/// The import cache: how it did since the node started, and what it holds now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ImportFigures {
    /// Forks of a zygote that had imported all that the function declares.
    pub hits: u64,
    /// Forks of a zygote that had imported a part of it.
    pub partial: u64,
    /// Forks of a bare interpreter.
    pub bare: u64,
    /// Zygotes that were grown from others.
    pub grown: u64,
    /// Zygotes that were let go of.
    pub evicted: u64,
    /// Memory of the kept zygotes, in bytes.
    pub bytes: u64,
    /// The most that they may hold, in bytes.
    pub budget: u64,
    /// Each of them, parents before children; then those that only wait for their last child.
    pub zygotes: Vec<ZygoteFigures>,
}

/// One zygote.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ZygoteFigures {
    /// A number of its own; 0 for one that is no longer kept.
    pub id: u64,
    /// The zygote that it was grown from.
    pub parent: Option<u64>,
    /// Whose code it may run.
    pub tenant: String,
    /// What it has imported beside the runtime.
    pub modules: Vec<String>,
    /// Wheels that it can see.
    pub wheels: usize,
    /// Whether it has run the shared set-ups of one function's code; it serves that code alone.
    pub set_up: bool,
    /// Its own memory, in bytes.
    pub bytes: u64,
    /// Import time in it and its ancestors, in microseconds.
    pub import_us: u64,
    /// Children so far.
    pub forks: u64,
    /// Children alive.
    pub children: u32,
    /// Import time that it is likely to save in the next five minutes, in microseconds.
    pub saved_us: f64,
    /// False for one that ends with its last child.
    pub kept: bool,
}

/// How a pool did since it was made, and what it holds now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolFigures {
    /// Times that something idle was there.
    pub hits: u64,
    /// Times that there was not.
    pub misses: u64,
    /// Let go of to keep within the budget.
    pub evicted: u64,
    /// Let go of because nobody took it in time.
    pub expired: u64,
    /// How many are idle.
    pub idle: u64,
    /// Memory that they hold, in bytes.
    pub bytes: u64,
    /// The most that they may hold, in bytes.
    pub budget: u64,
}
