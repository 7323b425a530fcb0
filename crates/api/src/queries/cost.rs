//! Costs of queries: the amounts that were counted, and the sums in US dollars at known prices.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The cost of a query, by two models: functions that are billed by use, and machines that are
/// billed by the hour.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Cost {
    /// The price list that the sums are made with.
    pub prices: PriceList,
    /// Requests to object storage. Local files cost none.
    pub requests: StoreRequests,
    /// Sandboxes that were used: workers, instances of UDFs, the driver; each attempt counts.
    pub invocations: u64,
    /// The sum, over the sandboxes, of the memory limit in GiB times the seconds that it was held.
    pub gib_seconds: f64,
    /// Processor seconds of all sandboxes.
    pub cpu_seconds: f64,
    /// The cost if sandboxes were functions that are billed for memory and time.
    pub functions: Bill,
    /// The cost of the used share of a machine that is rented by the hour.
    pub machines: Bill,
}

/// The list of prices that a cost is computed with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PriceList {
    /// The name of the price list.
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
    /// Reads by scans that were sent a second time because the first one was slow. `scan_reads` has
    /// them too.
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
    /// Returns the number of requests that are billed at the price of a read.
    pub fn reads(&self) -> u64 {
        self.scan_reads + self.plan_reads + self.exchange_reads
    }

    /// Returns the number of all requests: reads, writes and lists.
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
    /// Memory and time of functions, or the used share of machines.
    pub compute: f64,
    /// The sum of the other parts.
    pub total: f64,
}
