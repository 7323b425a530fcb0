//! The grammar of `snowmelt burst`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use snowmelt_types::JobId;

use super::ListFormat;

pub(super) const EXAMPLES: &str = "\
Examples:
  snowmelt fn burst resize -n 64 --async        start one, and print its id
  snowmelt burst ls
  snowmelt burst wait j-0193…                   print its results once it has ended
  snowmelt burst cancel j-0193…

A burst is kept for 10 minutes after its end.";

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
