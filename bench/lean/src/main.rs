//! Drivers of no-op sandboxes: ours, those of other runtimes, and the bare system calls below.
//!
//! A crate of its own, so that work on sandboxes measures itself without building a query engine.

mod clutter;
mod floor;
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
        Command::FloorLane(options) => floor::lane(&options)?,
        Command::Spawner => return Ok(snowmelt_sandbox::spawner_main()),
    }
    Ok(ExitCode::SUCCESS)
}
