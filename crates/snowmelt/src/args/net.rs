//! The grammar of `snowmelt net`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand};
use snowmelt_api::TraceTo;
use snowmelt_types::JobId;

use super::{ListFormat, ShowFormat};

pub(super) const EXAMPLES: &str = "\
Examples:
  snowmelt net ls
  snowmelt net show j-0193…
  snowmelt net trace j-0193… 0 7:5000        from rank 0 to port 5000 of rank 7";

const LS_EXAMPLES: &str = "\
Examples:
  snowmelt net ls
  snowmelt net ls -o json | jq -r '.[].job'";

const SHOW_EXAMPLES: &str = "\
Examples:
  snowmelt net show j-0193…
  snowmelt net show j-0193… -o json | jq '.parts[].network.counters'";

const TRACE_EXAMPLES: &str = "\
Examples:
  snowmelt net trace j-0193… 0 7
  snowmelt net trace j-0193… 0 7:5000            also checks for a listener on that port
  snowmelt net trace j-0193… 0 10.192.64.9:5000
  snowmelt net trace j-0193… 0 7 --ipv6

Each step is looked up in the kernel of its host; nothing is sent except an echo between the hosts.
Exit code 1 means that a packet would not arrive.";

/// `snowmelt net`.
#[derive(Debug, Subcommand)]
pub enum NetCommand {
    /// List the jobs that have a network
    #[command(after_help = LS_EXAMPLES)]
    Ls(NetLsArgs),
    /// Show the part of a job's network on each host
    #[command(after_help = SHOW_EXAMPLES)]
    Show(NetShowArgs),
    /// Trace a packet from one function of a job to another
    #[command(after_help = TRACE_EXAMPLES)]
    Trace(NetTraceArgs),
}

/// `snowmelt net ls`.
#[derive(Debug, Args)]
pub struct NetLsArgs {
    /// Format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: ListFormat,
    /// Use the server at this socket
    #[arg(long, value_name = "SOCKET")]
    pub server: Option<PathBuf>,
}

/// `snowmelt net show`.
#[derive(Debug, Args)]
pub struct NetShowArgs {
    /// Id of the job
    #[arg(value_name = "JOB", value_parser = job)]
    pub job: JobId,
    /// Format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: ShowFormat,
    /// Use the server at this socket
    #[arg(long, value_name = "SOCKET")]
    pub server: Option<PathBuf>,
}

/// `snowmelt net trace`.
#[derive(Debug, Args)]
pub struct NetTraceArgs {
    /// Id of the job
    #[arg(value_name = "JOB", value_parser = job)]
    pub job: JobId,
    /// Rank of the sender
    #[arg(value_name = "FROM")]
    pub from: u32,
    /// Rank or address of the receiver, and optionally a port
    #[arg(value_name = "TO[:PORT]")]
    pub to: TraceTarget,
    /// Use the IPv6 addresses of the ranks
    #[arg(short = '6', long)]
    pub ipv6: bool,
    /// Format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: ListFormat,
    /// Use the server at this socket
    #[arg(long, value_name = "SOCKET")]
    pub server: Option<PathBuf>,
}

/// `7`, `7:5000`, `10.192.0.8`, `10.192.0.8:5000`, `fd73::8` or `[fd73::8]:5000`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceTarget {
    /// The receiver.
    pub to: TraceTo,
    /// The port.
    pub port: Option<u16>,
}

impl FromStr for TraceTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self { to: TraceTo::Address(address), port: None });
        }
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(Self { to: TraceTo::Address(address.ip()), port: Some(address.port()) });
        }
        let (rank, port) = match text.split_once(':') {
            Some((rank, port)) => (rank, Some(port)),
            None => (text, None),
        };
        let rank = rank.parse().ok();
        match (rank, port.map(str::parse).transpose()) {
            (Some(rank), Ok(port)) => Ok(Self { to: TraceTo::Rank(rank), port }),
            _ => Err("write a rank or an address, with or without a port: 7:5000".to_owned()),
        }
    }
}

fn job(text: &str) -> Result<JobId, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    match !text.is_empty() && text.chars().all(plain) {
        true => Ok(JobId::from(text.to_owned())),
        false => Err("`snowmelt net ls` lists the ids of jobs".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_rank_or_an_address_with_or_without_a_port() {
        let target = |text: &str| text.parse::<TraceTarget>().map(|found| (found.to, found.port));
        let v4 = "10.192.0.8".parse().unwrap();
        let v6 = "fd73::8".parse().unwrap();
        assert_eq!(target("7"), Ok((TraceTo::Rank(7), None)));
        assert_eq!(target("7:80"), Ok((TraceTo::Rank(7), Some(80))));
        assert_eq!(target("10.192.0.8"), Ok((TraceTo::Address(v4), None)));
        assert_eq!(target("10.192.0.8:80"), Ok((TraceTo::Address(v4), Some(80))));
        assert_eq!(target("fd73::8"), Ok((TraceTo::Address(v6), None)));
        assert_eq!(target("[fd73::8]:80"), Ok((TraceTo::Address(v6), Some(80))));
        for wrong in ["", "x", "7:", "7:x", "-1", "7:70000"] {
            assert!(target(wrong).is_err(), "{wrong}");
        }
    }
}
