//! Figures of a host: its instances, how its caches do, and how long starts take.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Upper bounds of the histograms of starts, in microseconds. Starts above the last bound count
/// too.
pub const START_BOUNDS_US: [u64; 12] =
    [100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 100_000, 500_000, 2_000_000, 10_000_000];

/// The source of an instance, the fastest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Start {
    /// A slot of an instance that has calls already, or that is being started for them.
    Shared,
    /// The handler cache: an idle instance, resumed.
    Idle,
    /// A prewarmed instance.
    Prewarmed,
    /// The import cache: forked from a zygote that has imported all that the function declares.
    Zygote,
    /// Forked from a zygote that has imported a part of what the function declares.
    PartialZygote,
    /// Forked from a zygote that has imported nothing, a bare interpreter.
    BareZygote,
    /// Started as a program, without a zygote.
    Program,
}

impl Start {
    /// All kinds of starts, the fastest first.
    pub const ALL: [Self; 7] = [
        Self::Shared,
        Self::Idle,
        Self::Prewarmed,
        Self::Zygote,
        Self::PartialZygote,
        Self::BareZygote,
        Self::Program,
    ];

    /// Returns whether a sandbox was made for the instance.
    pub fn is_cold(self) -> bool {
        !matches!(self, Self::Shared | Self::Idle | Self::Prewarmed)
    }

    /// Returns the name of the kind of start in figures and metrics.
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

/// The starts of one kind since the node started, as a histogram of their times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StartFigures {
    /// The kind of the starts.
    pub kind: Start,
    /// Numbers of starts by time: for each of [`START_BOUNDS_US`] those that took at most that long
    /// and longer than the bound before; then those above the last bound.
    pub buckets: Vec<u64>,
    /// The sum of the times of all starts of the kind, in microseconds.
    pub sum_us: u64,
}

impl StartFigures {
    /// Returns the number of starts of the kind.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

/// The install cache: packages that are unpacked. Hits and misses count since the node started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InstallFigures {
    /// Environments that were in the cache when they were needed.
    pub environment_hits: u64,
    /// Environments that had to be put together.
    pub environment_misses: u64,
    /// Wheels that were in the cache when they were needed.
    pub wheel_hits: u64,
    /// Wheels that had to be unpacked.
    pub wheel_misses: u64,
    /// Bytes of the cache on disk.
    pub bytes: u64,
}

/// All figures of a node, the part of a host that manages its sandboxes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodeFigures {
    /// The number of instances that are leased.
    pub busy: u32,
    /// The number of prewarmed instances that wait for a call.
    pub prewarmed: u32,
    /// Memory of the prewarmed instances that wait, in bytes.
    pub prewarmed_bytes: u64,
    /// The handler cache: paused instances.
    pub handlers: PoolFigures,
    /// The number of query workers that run tasks.
    pub busy_workers: u32,
    /// Idle query workers.
    pub workers: PoolFigures,
    /// The install cache.
    pub installs: InstallFigures,
    /// The import cache.
    pub imports: ImportFigures,
    /// Starts of instances since the node started, by kind.
    pub starts: Vec<StartFigures>,
    /// The account of the host: reserved memory, processor and sandboxes.
    #[serde(default)]
    pub ledger: LedgerFigures,
}

/// The account of a host: the room that it has for sandboxes, the part of it that is reserved now,
/// and how requests for room ended since the node started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LedgerFigures {
    /// Memory for all sandboxes, in bytes.
    pub memory_bytes: u64,
    /// The most sandboxes that may have a reservation.
    pub instances: u64,
    /// Reserved memory of all uses, in bytes.
    pub reserved_memory_bytes: u64,
    /// Reserved processor, in thousandths of a core. This sum is counted, but has no limit.
    pub reserved_cpu_millis: u64,
    /// The number of sandboxes with a reservation.
    pub reserved_instances: u64,
    /// Reservations by use. Uses without a reservation are left out.
    pub uses: Vec<UseFigures>,
    /// The number of requests that wait for room now.
    pub waiting: u64,
    /// The number of requests that were refused.
    pub refused: u64,
    /// The number of requests that were granted after they had waited.
    pub waited: u64,
}

/// The reservations of one use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UseFigures {
    /// The use: `function`, `udf`, `worker`, `driver`, `task`, `burst` or `zygote`.
    pub name: String,
    /// Reserved memory, in bytes.
    pub memory_bytes: u64,
    /// Reserved processor, in thousandths of a core.
    pub cpu_millis: u64,
    /// The number of sandboxes with a reservation.
    pub instances: u64,
}

/// The import cache: how it did since the node started, and what it holds now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ImportFigures {
    /// Forks of a zygote that had imported all that the function declares.
    pub hits: u64,
    /// Forks of a zygote that had imported a part of what the function declares.
    pub partial: u64,
    /// Forks of a bare interpreter.
    pub bare: u64,
    /// Zygotes that were grown from others.
    pub grown: u64,
    /// Zygotes that were evicted.
    pub evicted: u64,
    /// Memory of the kept zygotes, in bytes.
    pub bytes: u64,
    /// The most memory that the kept zygotes may hold, in bytes.
    pub budget: u64,
    /// The kept zygotes, parents before children; then the zygotes that only wait for their last
    /// child to end.
    pub zygotes: Vec<ZygoteFigures>,
}

/// A zygote of the import cache: a process that has run imports and is forked to start functions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ZygoteFigures {
    /// The number of the zygote; 0 for one that is no longer kept.
    pub id: u64,
    /// The number of the zygote from which this one was grown; none for the first ones.
    pub parent: Option<u64>,
    /// The tenant whose code the zygote may run.
    pub tenant: String,
    /// Modules that the zygote has imported beside the runtime.
    pub modules: Vec<String>,
    /// The number of wheels that the zygote can see.
    pub wheels: usize,
    /// Whether the zygote has run the shared set-ups of one function's code; then it serves that
    /// code alone.
    pub set_up: bool,
    /// Memory of the zygote itself, in bytes.
    pub bytes: u64,
    /// Time of the imports in the zygote and its ancestors, in microseconds.
    pub import_us: u64,
    /// The number of children that the zygote has forked so far.
    pub forks: u64,
    /// The number of children that are alive.
    pub children: u32,
    /// Import time that the zygote is likely to save in the next five minutes, in microseconds.
    pub saved_us: f64,
    /// False for a zygote that ends with its last child.
    pub kept: bool,
}

/// Figures of a pool of idle sandboxes: how it did since it was made, and what it holds now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolFigures {
    /// Requests for which an idle sandbox was there.
    pub hits: u64,
    /// Requests for which no idle sandbox was there.
    pub misses: u64,
    /// Idle sandboxes that were ended to keep within the budget, or to make room on the host.
    pub evicted: u64,
    /// Idle sandboxes that were ended because nobody took them in time.
    pub expired: u64,
    /// The number of idle sandboxes now.
    pub idle: u64,
    /// Memory that the idle sandboxes hold, in bytes.
    pub bytes: u64,
    /// The most memory that idle sandboxes may hold, in bytes.
    pub budget: u64,
}
