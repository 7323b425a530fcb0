//! Query workers: idle workers are taken again, and the rest is started.
//!
//! Boundary: the layers above decide what a worker runs; this folder knows its sandbox and its
//! lease.

pub(crate) mod lease;
pub(crate) mod worker;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use snowmelt_sandbox::Spawner;

use crate::resources::account::Account;
use crate::resources::count::Count;
use crate::resources::pool::ItemPool;
use worker::Worker;

/// The query workers of a node: idle and in use.
#[derive(Debug)]
pub(crate) struct Workers {
    pub spawner: Spawner,
    pub account: Account,
    /// The path of the program that runs as a worker.
    pub program: PathBuf,
    pub idle: Arc<ItemPool<Worker>>,
    pub busy: Count,
}

impl Workers {
    /// Ends workers that were idle for too long, or have ended by themselves or with a lane of the
    /// spawner.
    pub fn maintain(&self, now: Instant) {
        drop(self.idle.expired(now));
        drop(self.idle.discard(|worker| !worker.is_alive()));
    }
}
