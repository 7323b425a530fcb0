//! What the benches need beside the product: the plain DataFusion that answers are checked against,
//! and drivers of single layers. Never part of the product.

mod handlers;
mod placements;
mod plain;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Peers and drivers for Snowmelt's benches.
#[derive(Parser)]
#[command(name = "snowmelt-bench", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Answer one query with plain DataFusion in this process.
    Datafusion(plain::Options),
    /// Measure a Python handler on one of the caches (as root).
    Handlers(handlers::Options),
    /// Place calls on hosts, as fast as the scheduler can.
    Placements(placements::Options),
    /// Make sandboxes on request; the drivers start this.
    #[command(hide = true)]
    Spawner,
}

fn main() -> anyhow::Result<ExitCode> {
    match Arguments::parse().command {
        Command::Datafusion(options) => plain::run(&options)?,
        Command::Handlers(options) => handlers::run(&options)?,
        Command::Placements(options) => placements::run(&options)?,
        Command::Spawner => return Ok(snowmelt_sandbox::spawner_main(None)),
    }
    Ok(ExitCode::SUCCESS)
}
