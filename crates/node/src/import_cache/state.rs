//! The state of the import cache, which its parts share.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, Weak};

use snowmelt_sandbox::Spawner;
use snowmelt_types::ByteSize;
use tokio::sync::OnceCell;

use super::admission::Admission;
use super::model::demand::Demand;
use super::model::plan::Experience;
use super::model::tree::{NodeId, ZygoteTree};
use super::model::want::{Set, Want, ZygoteScope};
use super::running_zygote::ZygoteMember;
use super::zygote_process::ZygoteSlot;
use super::zygote_start::ZygoteSource;
use crate::resources::account::Account;

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) spawner: Spawner,
    pub(super) account: Account,
    pub(super) budget: ByteSize,
    // Held for lookups and changes of the tree only, never across a wait.
    pub(super) state: Mutex<State>,
    pub(super) counts: ImportCounts,
    pub(super) admission: Admission,
    pub(super) idle: Arc<dyn IdleChildren>,
}

/// The idle instances that were forked from zygotes, which they keep alive.
pub(crate) trait IdleChildren: Debug + Send + Sync {
    /// Returns the number of idle instances below each first zygote, by the number of its slot.
    fn by_slot(&self) -> BTreeMap<u64, usize>;

    /// Ends the idle instances below the first zygote in this slot.
    fn end_below(&self, slot: u64);
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) tree: ZygoteTree,
    pub(super) demand: Demand,
    pub(super) experience: Experience,
    /// The slot of each node of the tree, for the process of its zygote.
    pub(super) slots: HashMap<NodeId, Arc<ZygoteSlot>>,
    /// The way to start the zygotes of each want that is in demand.
    pub(super) sources: HashMap<Want, ZygoteSource>,
    /// The sets that are being grown: callers that want the same set wait on its cell.
    pub(super) growing: HashMap<(ZygoteScope, Set), Arc<OnceCell<()>>>,
    /// The zygotes that were released, and live as long as their children.
    pub(super) retired: Vec<Weak<ZygoteMember>>,
}

/// The counts since the node started; see [`ImportFigures`].
#[derive(Debug, Default)]
pub(super) struct ImportCounts {
    pub(super) hits: AtomicU64,
    pub(super) partial: AtomicU64,
    pub(super) bare: AtomicU64,
    pub(super) grown: AtomicU64,
    pub(super) evicted: AtomicU64,
}
