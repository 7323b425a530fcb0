//! The state of the import cache, which its parts share.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, Weak};

use snowmelt_sandbox::Spawner;
use snowmelt_types::ByteSize;
use tokio::sync::OnceCell;

use super::admission::Admission;
use super::demand::Demand;
use super::member::Member;
use super::plan::Experience;
use super::slot::Slot;
use super::start::Source;
use super::tree::{NodeId, Tree};
use super::want::{Scope, Set, Want};
use crate::account::Account;
use crate::instances::instance::Instance;
use crate::pool::Pool;

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) spawner: Spawner,
    pub(super) account: Account,
    pub(super) budget: ByteSize,
    // Held for lookups and changes of the tree only, never across a wait.
    pub(super) state: Mutex<State>,
    pub(super) counts: Counts,
    pub(super) admission: Admission,
    /// Idle instances, which keep zygotes alive.
    pub(super) idle: Arc<Pool<Arc<Instance>>>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) tree: Tree,
    pub(super) demand: Demand,
    pub(super) experience: Experience,
    /// One for each node of the tree.
    pub(super) slots: HashMap<NodeId, Arc<Slot>>,
    /// How to start what is demanded.
    pub(super) sources: HashMap<Want, Source>,
    /// Sets that are being grown: callers that want the same one wait for it.
    pub(super) growing: HashMap<(Scope, Set), Arc<OnceCell<()>>>,
    /// Released, and alive as long as their children.
    pub(super) retired: Vec<Weak<Member>>,
}

/// What is counted since the node started; see [`ImportFigures`].
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) hits: AtomicU64,
    pub(super) partial: AtomicU64,
    pub(super) bare: AtomicU64,
    pub(super) grown: AtomicU64,
    pub(super) evicted: AtomicU64,
}
