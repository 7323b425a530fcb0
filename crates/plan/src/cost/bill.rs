//! Money from what was used.

use snowmelt_api::{Bill, Cost, StoreRequests};

use crate::prices::Prices;

/// The resources that a query used, or is estimated to use.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Used {
    /// Requests to object storage, by kind.
    pub requests: StoreRequests,
    /// Number of times that a sandbox was given a task.
    pub invocations: u64,
    /// Memory limit in GiB times seconds held, summed over the sandboxes.
    pub gib_seconds: f64,
    /// Processor time of all sandboxes, in seconds.
    pub cpu_seconds: f64,
}

/// The cost of what was used.
pub fn cost(used: Used, prices: &Prices) -> Cost {
    let million = |count: u64, price: f64| count as f64 / 1e6 * price;
    let Used { requests, invocations, gib_seconds, cpu_seconds } = used;
    let of_requests = million(requests.reads(), prices.reads_per_million)
        + million(requests.exchange_writes, prices.writes_per_million)
        + million(requests.lists, prices.lists_per_million);
    let of_invocations = million(invocations, prices.invocations_per_million);
    let of_functions = gib_seconds * prices.gib_second;
    Cost {
        prices: prices.list(),
        requests,
        invocations,
        gib_seconds,
        cpu_seconds,
        functions: Bill {
            requests: of_requests,
            invocations: of_invocations,
            compute: of_functions,
            total: of_requests + of_invocations + of_functions,
        },
        machines: machines(used, of_requests, prices),
    }
}

/// The share of a machine: of its processors or of its memory, whichever is larger.
fn machines(used: Used, of_requests: f64, prices: &Prices) -> Bill {
    let of_processors = used.cpu_seconds / prices.machine_cpus.max(f64::MIN_POSITIVE);
    let of_memory = used.gib_seconds / prices.machine_memory_gib.max(f64::MIN_POSITIVE);
    let compute = of_processors.max(of_memory) / 3600.0 * prices.machine_hour;
    Bill { requests: of_requests, invocations: 0.0, compute, total: of_requests + compute }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_near(value: f64, expected: f64) {
        assert!((value - expected).abs() < 1e-9 * expected.abs().max(1.0), "{value} {expected}");
    }

    #[test]
    fn a_scan_with_small_requests_pays_more_for_them_than_for_its_workers() {
        // Lambada 4.3.1: 1 GB in requests of 1 MiB by a worker with 3008 MiB at 85 MiB/s.
        let prices = Prices::of(None).unwrap();
        let requests = StoreRequests { scan_reads: 954, ..StoreRequests::default() };
        let seconds = 954.0 / 85.0;
        let used = Used { requests, gib_seconds: seconds * 3008.0 / 1024.0, ..Used::default() };
        let bill = cost(used, &prices).functions;
        // The paper's price of 4.9e-5 dollars for each second gives a factor near 1.7 with its four
        // connections, which together read faster than 85 MiB/s; with one it is 0.7.
        let factor = bill.requests / bill.compute;
        assert!((0.6..0.8).contains(&factor), "{factor}");
    }

    #[test]
    fn each_kind_of_request_has_its_price() {
        let prices = Prices::of(None).unwrap();
        let requests = StoreRequests {
            scan_reads: 1_000_000,
            // They are reads, too.
            hedged: 1_000,
            plan_reads: 500_000,
            exchange_reads: 500_000,
            lists: 1_000_000,
            exchange_writes: 2_000_000,
        };
        let cost = cost(Used { requests, ..Used::default() }, &prices);
        assert_near(cost.functions.requests, 2.0 * 0.4 + 5.0 + 10.0);
        assert_near(cost.functions.total, cost.machines.total);
    }

    #[test]
    fn the_exchange_of_4096_workers_costs_what_the_paper_says() {
        // Lambada 4.4.1: one level needs 4096 squared writes and reads, about 100 dollars.
        let prices = Prices::of(None).unwrap();
        let squared = 4096 * 4096;
        let requests = StoreRequests {
            exchange_reads: squared,
            exchange_writes: squared,
            ..StoreRequests::default()
        };
        let money = cost(Used { requests, ..Used::default() }, &prices).functions.requests;
        assert!((85.0..105.0).contains(&money), "{money}");
    }

    #[test]
    fn a_machine_is_paid_for_the_larger_share() {
        let prices = Prices::of(None).unwrap();
        let machine = |cpu_seconds, gib_seconds| {
            cost(Used { cpu_seconds, gib_seconds, ..Used::default() }, &prices).machines.compute
        };
        // An hour of both processors, or of all of its memory, is an hour of the machine.
        assert_near(machine(7200.0, 0.0), 0.096);
        assert_near(machine(10.0, 8.0 * 3600.0), 0.096);
    }
}
