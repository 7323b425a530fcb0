//! What the import cache tells of itself.

use serde::{Deserialize, Serialize};
use snowmelt_types::ByteSize;

/// The import cache: how it did since the node started, and what it holds now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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

impl ZygoteFigures {
    pub(super) fn retired(memory: Option<ByteSize>, forks: u64, children: u32) -> Self {
        let bytes = memory.map_or(0, ByteSize::bytes);
        Self { bytes, forks, children, ..Self::default() }
    }
}
