//! What demo, tests and benches need beside the product: test data, the plain DataFusion that
//! answers are checked against, and drivers of single layers. Never part of the product.

mod plain;
mod tpch;

use clap::{Parser, Subcommand};

/// Data, peers and drivers for Snowmelt's demo, tests and benches.
#[derive(Parser)]
#[command(name = "snowmelt-bench", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write TPC-H tables as Parquet, each table once.
    Tpch(tpch::Options),
    /// Answer one query with plain DataFusion in this process.
    Datafusion(plain::Options),
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().command {
        Command::Tpch(options) => tpch::run(&options),
        Command::Datafusion(options) => plain::run(&options),
    }
}
