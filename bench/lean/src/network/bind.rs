//! What `bind` costs a function that is held to its address, beside one that is not.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Args;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
use serde::Serialize;
use snowmelt_network::{JobNetwork, Networks};

use super::bed::{self, Bed};
use super::ours::{Above, spec};

#[derive(Args)]
pub struct Options {
    /// How many sockets in a round.
    #[arg(long, default_value_t = 2000)]
    count: u16,
    /// How many rounds, held and not held taking turns.
    #[arg(long, default_value_t = 20)]
    rounds: usize,
}

/// Nanoseconds for one `bind`, the mean of each round.
#[derive(Default, Serialize)]
struct Report {
    free_ns: Vec<f64>,
    held_ns: Vec<f64>,
}

/// Measures both in turns.
pub fn run(options: &Options) -> Result<()> {
    let _bed = Bed::enter()?;
    let above = Above::make()?.context("there are no control groups of version 2")?;
    let group = above.0.join("function");
    std::fs::create_dir(&group)?;
    let state = (tempfile::tempdir()?, tempfile::tempdir()?);
    let open = |state: &tempfile::TempDir, group| {
        let options = snowmelt_network::Options::new(state.path());
        Networks::open(snowmelt_network::Options { group, ..options })
    };
    let mut report = Report::default();
    for _ in 0..options.rounds {
        let free = open(&state.0, None)?.create(spec(10)?)?;
        report.free_ns.push(round(&free, free.address(0)?.v4, options.count)?);
        free.close(std::time::Duration::from_secs(10))?;
        let held = open(&state.1, Some(above.0.clone()))?.create(spec(10)?)?;
        let address = held.attach(&group, 0)?.v4;
        std::fs::write(group.join("cgroup.procs"), "0")?;
        let measured = round(&held, address, options.count);
        std::fs::write(above.0.join("cgroup.procs"), "0")?;
        report.held_ns.push(measured?);
        held.close(std::time::Duration::from_secs(10))?;
    }
    println!("{}", serde_json::to_string(&report)?);
    let root = above.0.parent().context("a group has one above it")?;
    std::fs::write(root.join("cgroup.procs"), "0")?;
    std::fs::remove_dir(&group)?;
    Ok(())
}

/// Sockets are made before and closed after: only `bind` is timed.
fn round(network: &JobNetwork, address: Ipv4Addr, count: u16) -> Result<f64> {
    bed::within(network.namespace(), || {
        let make = |_| {
            let kind = SocketType::STREAM;
            socket_with(AddressFamily::INET, kind, SocketFlags::CLOEXEC, None)
        };
        let sockets: Vec<OwnedFd> = (0..count).map(make).collect::<Result<_, _>>()?;
        let begun = Instant::now();
        for (port, socket) in (10_000u16..).zip(&sockets) {
            bind(socket, &SocketAddr::from((address, port)))?;
        }
        Ok(begun.elapsed().as_nanos() as f64 / f64::from(count))
    })
}
