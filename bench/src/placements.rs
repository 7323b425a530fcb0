//! How many calls the scheduler places in a second on one core.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use snowmelt_schedule::{CallDemand, Decision, HostRoom, Scheduler, SchedulerPolicy, Ticket};
use snowmelt_types::{Digest, HostName};

/// Hosts, functions and load.
#[derive(Args)]
pub struct Options {
    /// Hosts of 16 cores and 64 GiB.
    #[arg(long, default_value_t = 1000)]
    hosts: usize,
    /// Functions, of 10 tenants.
    #[arg(long, default_value_t = 100)]
    functions: usize,
    /// Calls that run at the same time.
    #[arg(long, default_value_t = 2000)]
    running: usize,
    /// Calls to place.
    #[arg(long, default_value_t = 200_000)]
    calls: usize,
    /// How long idle instances are kept, in calls: 0 has each call start one.
    #[arg(long, default_value_t = 60)]
    idle_s: u64,
}

#[derive(Serialize)]
struct Found {
    placed: usize,
    seconds: f64,
    per_second: f64,
}

/// Places calls as fast as it can; each ends when as many as may run were placed after it.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let policy = SchedulerPolicy {
        instances_per_host: 20,
        near: None,
        starved_after: Duration::from_secs(10),
        reclaim_after: Duration::from_secs(900),
    };
    let mut scheduler = Scheduler::new(policy);
    for number in 0..options.hosts {
        let room = HostRoom { memory: 64 << 30, cpu_millis: 16_000, ..HostRoom::default() };
        scheduler.report(&host(number)?, room);
    }
    let calls: Vec<Arc<CallDemand>> =
        (0..options.functions).map(|number| call(number, options)).collect::<Result<_, _>>()?;
    let mut running: VecDeque<Ticket> = VecDeque::new();
    let begun = Instant::now();
    let mut placed = 0;
    for number in 0..options.calls {
        let now = begun.elapsed();
        // Neighbours in time are of different functions, as on a platform of many tenants.
        let call = &calls[number * 7919 % calls.len()];
        scheduler.ask(Arc::clone(call), now, now + Duration::from_secs(30));
        while let Some(decision) = scheduler.next(now) {
            if let Decision::Run(ticket, _) = decision {
                running.push_back(ticket);
                placed += 1;
            }
        }
        if running.len() > options.running
            && let Some(ticket) = running.pop_front()
        {
            scheduler.ended(ticket, None, now);
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    let found = Found { placed, seconds, per_second: placed as f64 / seconds };
    println!("{}", serde_json::to_string(&found)?);
    Ok(())
}

fn host(number: usize) -> anyhow::Result<HostName> {
    HostName::try_from(format!("host-{number}")).map_err(anyhow::Error::msg)
}

fn call(number: usize, options: &Options) -> anyhow::Result<Arc<CallDemand>> {
    let tenant = format!("t{}", number % 10).parse().map_err(anyhow::Error::msg)?;
    Ok(Arc::new(CallDemand {
        tenant,
        function: Digest::of(number.to_string()),
        image: Some(Digest::of((number % 20).to_string())),
        memory: 256 << 20,
        cpu_millis: 1000,
        concurrency: 1,
        idle: Duration::from_secs(options.idle_s),
        only: None,
        near_first: false,
    }))
}
