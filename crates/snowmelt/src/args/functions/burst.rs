//! The grammar of `snowmelt burst` and `snowmelt fn burst`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use snowmelt_types::{FunctionName, JobId, parse_duration};

use crate::args::values::function_name;
use crate::args::{ListFormat, PlatformArgs};

pub const EXAMPLES: &str = "\
Examples:
  snowmelt fn burst resize -n 64 --async        start one, and print its id
  snowmelt burst ls
  snowmelt burst wait j-0193…                   print its results once it has ended
  snowmelt burst cancel j-0193…

A burst is kept for 10 minutes after its end.";

const BURST_EXAMPLES: &str = "\
Examples:
  snowmelt fn burst hello -n 8
  snowmelt fn burst ring -n 64 --network                each reads its rank from SNOWMELT_RANK
  snowmelt fn burst score --events events.jsonl         one function per line
  snowmelt fn burst score -n 8 --data @event.json | jq -c 'select(.error)'

Either all functions start, across all hosts, or none. Stdout has one JSON object per line, in order
of rank, with `result` or `error`, and `log` if the function wrote output. The exit code is that of
the first failure.";

const LS_EXAMPLES: &str = "\
Examples:
  snowmelt burst ls
  snowmelt burst ls -o json | jq -r '.[] | select(.state == \"running\") | .job'";

/// `snowmelt burst`.
#[derive(Debug, Subcommand)]
pub enum BurstCommand {
    /// List the bursts that run, and those that ended a short time ago
    #[command(after_help = LS_EXAMPLES)]
    Ls(BurstLsArgs),
    /// Wait for a burst and print its results
    Wait(OneBurstArgs),
    /// End a burst, or forget its results
    Cancel(OneBurstArgs),
}

/// `snowmelt burst ls`.
#[derive(Debug, Args)]
pub struct BurstLsArgs {
    /// Format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: ListFormat,
    /// Use the server at this socket
    #[arg(long, value_name = "SOCKET")]
    pub server: Option<PathBuf>,
}

/// `snowmelt burst wait` and `cancel`.
#[derive(Debug, Args)]
pub struct OneBurstArgs {
    /// Id of the burst
    #[arg(value_name = "JOB", value_parser = |text: &str| Ok::<_, String>(JobId::from(text.to_owned())))]
    pub job: JobId,
    /// Use the server at this socket
    #[arg(long, value_name = "SOCKET")]
    pub server: Option<PathBuf>,
}

/// `snowmelt fn burst`.
#[derive(Debug, Args)]
#[command(after_help = BURST_EXAMPLES)]
pub struct BurstArgs {
    /// Name of the function
    #[arg(value_parser = function_name)]
    pub name: FunctionName,
    /// Number of functions to run
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), required_unless_present = "events")]
    pub functions: Option<u32>,
    /// Event of every function as JSON, `@FILE`, or `-` for stdin [default: {}]
    #[arg(short, long, value_name = "JSON", allow_negative_numbers = true)]
    pub data: Option<String>,
    /// File with one event per line, each for one function; `-` for stdin
    #[arg(long, value_name = "FILE", conflicts_with_all = ["functions", "data"])]
    pub events: Option<PathBuf>,
    /// Connect the functions by a private network
    #[arg(long)]
    pub network: bool,
    /// Maximum number of hosts to use [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub hosts: Option<u32>,
    /// Time limit for the start of all functions [default: 60s]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub start_within: Option<Duration>,
    /// Print the id and return; `snowmelt burst wait` prints the results
    #[arg(long = "async", conflicts_with = "embedded")]
    pub asynchronous: bool,
    /// How long it runs when no client waits for it [default: 10s, with --async 24h]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub unattended: Option<Duration>,
    /// The platform that runs them.
    #[command(flatten, next_help_heading = "Platform")]
    pub platform: PlatformArgs,
}
