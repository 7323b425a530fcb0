//! Time and work to connect many endpoints on one host: the conventional overlay, the designs of
//! the Particle paper (3.1), ours, and the floor, which is one namespace with one pair of devices
//! and one overlay.
//!
//! All of it happens in a network namespace that stands for the host and is gone afterwards. Each
//! row is checked: the first endpoint opens a connection to the last one.

mod bed;
pub mod bind;
mod conventional;
mod iproute2;
mod ours;
mod shared;
pub mod shuffle;
pub mod throughput;

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use serde::Serialize;

use bed::Bed;
use ours::Start;

/// How endpoints are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Design {
    /// One namespace, one pair and one overlay, whatever the number of endpoints.
    Floor,
    /// Job networks as the product makes them, with nothing made ahead.
    Snowmelt,
    /// The same in a namespace that was made and configured before.
    SnowmeltPooled,
    /// Conventional, by nine `ip` commands for each endpoint (Figure 2 of the paper).
    PerContainerIproute2,
    /// Conventional, by netlink, each pair made on the host and moved.
    PerContainerNetlinkMoved,
    /// Conventional, by netlink, each pair made where it stays.
    PerContainerNetlink,
    /// The paper's first design: one namespace, a pair for each endpoint.
    Shared,
    /// The paper's second design: the same in batches.
    Batched,
    /// The paper's final design: one pair, an address for each endpoint.
    Consolidated,
}

#[derive(Args)]
pub struct Options {
    /// Which designs, one after the other.
    #[arg(long, value_enum, value_delimiter = ',', required = true)]
    design: Vec<Design>,
    /// How many endpoints; one row each.
    #[arg(long, value_delimiter = ',', default_value = "10,100,1000,10000")]
    endpoints: Vec<u32>,
    /// How often each; one row each.
    #[arg(long, default_value_t = 1)]
    repeat: usize,
}

/// A row, printed as a line of JSON.
#[derive(Serialize)]
struct Row {
    design: String,
    endpoints: u32,
    /// From the first system call until all endpoints have their addresses.
    seconds: f64,
    /// Netlink messages; commands of `ip` where those were used.
    messages: u64,
    /// Devices moved from one namespace to another.
    moves: u64,
    /// Until the kernel had taken all of it away again.
    teardown_seconds: f64,
    /// To hold each endpoint to its address, where that is a step of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    hold_us_each: Option<f64>,
}

/// What a design did.
struct Made {
    took: Duration,
    messages: u64,
    moves: u64,
    hold_us_each: Option<f64>,
    teardown: Duration,
}

/// Measures each design at each number of endpoints.
pub fn run(options: &Options) -> Result<()> {
    let mut bed = Bed::enter().context("cannot make a namespace for the host")?;
    for _ in 0..options.repeat {
        for &endpoints in &options.endpoints {
            for &design in &options.design {
                let made = measure(&mut bed, design, endpoints);
                print(design, endpoints, &made.with_context(|| format!("{design:?}"))?)?;
            }
        }
    }
    Ok(())
}

fn measure(bed: &mut Bed, design: Design, endpoints: u32) -> Result<Made> {
    match design {
        Design::Floor => shared::floor(bed),
        Design::Snowmelt => ours::connect(endpoints, Start::Nothing),
        Design::SnowmeltPooled => ours::connect(endpoints, Start::Configured),
        Design::PerContainerIproute2 => iproute2::connect(bed, endpoints),
        Design::PerContainerNetlinkMoved => conventional::connect(bed, endpoints, true),
        Design::PerContainerNetlink => conventional::connect(bed, endpoints, false),
        Design::Shared => shared::shared(bed, endpoints),
        Design::Batched => shared::batched(bed, endpoints),
        Design::Consolidated => shared::consolidated(bed, endpoints),
    }
}

fn print(design: Design, endpoints: u32, made: &Made) -> Result<()> {
    let design = design.to_possible_value().context("every design has a name")?;
    let row = Row {
        design: design.get_name().to_owned(),
        endpoints,
        seconds: made.took.as_secs_f64(),
        messages: made.messages,
        moves: made.moves,
        teardown_seconds: made.teardown.as_secs_f64(),
        hold_us_each: made.hold_us_each,
    };
    println!("{}", serde_json::to_string(&row)?);
    Ok(())
}

/// Times what takes a network away.
fn time_of(end: impl FnOnce() -> Result<()>) -> Result<Duration> {
    let begun = Instant::now();
    end()?;
    Ok(begun.elapsed())
}
