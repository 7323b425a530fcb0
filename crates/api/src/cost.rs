//! What a query cost: what was counted, and what it costs at known prices, in US dollars.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a query cost, by two models: functions that are billed by use, and machines by the hour.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Cost {
    /// The prices.
    pub prices: PriceList,
    /// Requests to object storage. Local files cost none.
    pub requests: StoreRequests,
    /// Sandboxes that were used: workers, instances of UDFs, the driver; each attempt counts.
    pub invocations: u64,
    /// The sum, over the sandboxes, of the memory limit in GiB times the seconds that it was held.
    pub gib_seconds: f64,
    /// Processor seconds of all sandboxes.
    pub cpu_seconds: f64,
    /// As functions that are billed for memory and time.
    pub functions: Bill,
    /// As the used share of a machine that is rented by the hour.
    pub machines: Bill,
}

/// Which prices were used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PriceList {
    /// Its name.
    pub name: String,
    /// The day of which the prices are, as `2025-06-30`; empty if unknown.
    pub date: String,
    /// The machine whose price by the hour is used.
    pub machine: String,
}

/// Requests to object storage, by kind. All kinds of reads have one price.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StoreRequests {
    /// Reads by the scans of the tasks.
    pub scan_reads: u64,
    /// Reads of the planner: footers and beginnings of files, and their existence.
    pub plan_reads: u64,
    /// Lists of objects, by pages of 1,000.
    pub lists: u64,
    /// Of the reads by scans, those that were sent a second time because the first one was slow.
    #[serde(default)]
    pub hedged: u64,
    /// Reads by exchanges.
    pub exchange_reads: u64,
    /// Writes by exchanges.
    pub exchange_writes: u64,
}

impl AddAssign for StoreRequests {
    fn add_assign(&mut self, other: Self) {
        // Each field by its name, so that none is forgotten.
        let Self { scan_reads, plan_reads, lists, hedged, exchange_reads, exchange_writes } = other;
        self.scan_reads += scan_reads;
        self.plan_reads += plan_reads;
        self.lists += lists;
        self.hedged += hedged;
        self.exchange_reads += exchange_reads;
        self.exchange_writes += exchange_writes;
    }
}

impl StoreRequests {
    /// Requests at the price of a read.
    pub fn reads(&self) -> u64 {
        self.scan_reads + self.plan_reads + self.exchange_reads
    }

    /// All requests.
    pub fn all(&self) -> u64 {
        self.reads() + self.exchange_writes + self.lists
    }
}

/// The parts of a cost, in US dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Bill {
    /// Requests to object storage.
    pub requests: f64,
    /// Invocations of functions.
    pub invocations: f64,
    /// Memory and time, or the share of machines.
    pub compute: f64,
    /// The sum.
    pub total: f64,
}
