//! Drivers of no-op sandboxes: ours, those of other runtimes, and the bare system calls below.
//!
//! A crate of its own, so that work on sandboxes measures itself without building a query engine.

mod clutter;
mod floor;
mod network;
mod noop;
mod peer;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Cold starts of no-op sandboxes, as root.
#[derive(Parser)]
#[command(name = "snowmelt-bench-lean", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Snowmelt's own sandboxes.
    Sandbox(noop::Options),
    /// A process in the same namespaces and nothing else: what the kernel alone takes.
    Floor(floor::Options),
    /// Another runtime, by its command line.
    Peer(peer::Options),
    /// Run a command on a host that holds many mounts and network namespaces.
    Clutter(clutter::Options),
    /// Networks of many endpoints: ours, the designs of the Particle paper, and the conventional.
    Network(network::Options),
    /// What it costs a function that it is held to its address.
    Bind(network::bind::Options),
    /// Messages from every function of a host to every function of another one, with the network.
    Shuffle(network::shuffle::Options),
    /// What the overlay takes of the link between two hosts.
    Throughput(network::throughput::Options),
    /// One process of `floor`.
    #[command(hide = true)]
    FloorLane(floor::LaneOptions),
    /// Make sandboxes on request; `sandbox` starts this.
    #[command(hide = true)]
    Spawner,
}

fn main() -> anyhow::Result<ExitCode> {
    match Arguments::parse().command {
        Command::Sandbox(options) => noop::run(&options)?,
        Command::Floor(options) => floor::run(&options)?,
        Command::Peer(options) => peer::run(&options)?,
        Command::Clutter(options) => return clutter::run(&options),
        Command::Network(options) => network::run(&options)?,
        Command::Bind(options) => network::bind::run(&options)?,
        Command::Shuffle(options) => network::shuffle::run(&options)?,
        Command::Throughput(options) => network::throughput::run(&options)?,
        Command::FloorLane(options) => floor::lane(&options)?,
        Command::Spawner => return Ok(snowmelt_sandbox::spawner_main(None)),
    }
    Ok(ExitCode::SUCCESS)
}
