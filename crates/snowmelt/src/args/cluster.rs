//! The grammar of the commands and options of a cluster.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use snowmelt_types::{ByteSize, HostName};

use super::ListFormat;

const NODE_EXAMPLES: &str = "\
Examples:
  snowmelt up --listen 10.0.0.1:7070 --token-file token              on the first host
  snowmelt node --control 10.0.0.1:7070 --address 10.0.0.2:7070 --token-file token

The command runs in the foreground, for systemd and containers. It sends a heartbeat every second,
and waits for control if control is unreachable. All hosts need the same token file, of 16 printable
characters or more. Traffic between hosts is not encrypted: use a private network.";

const HOSTS_EXAMPLES: &str = "\
Examples:
  snowmelt hosts
  snowmelt hosts drain host-3         before its machine is stopped
  snowmelt hosts -o json | jq -r '.[] | select(.state == \"active\").name'";

const TREE_EXAMPLES: &str = "\
Examples:
  snowmelt tree
  snowmelt tree resize
  snowmelt tree registry.example/team/app:v1
  snowmelt tree -o json | jq '.[].hosts[].bytes'";

/// Options of a host's membership in a cluster.
#[derive(Clone, Debug, Default, Args)]
pub struct MemberArgs {
    /// File with the secret token of the cluster
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Name of this host in the cluster [default: its host name]
    #[arg(long, value_name = "NAME")]
    pub name: Option<HostName>,
    /// Memory limit of bursts on this host [default: the machine's memory]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<ByteSize>,
    /// Most bytes of images a second that this host sends to others [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = rate)]
    pub share_link: Option<ByteSize>,
}

/// A rate in bytes a second at which blocks are sent within the patience of those that wait.
pub fn rate(text: &str) -> Result<ByteSize, String> {
    let bytes: ByteSize =
        text.parse().map_err(|error: snowmelt_types::ParseResourceError| error.to_string())?;
    let is_enough = bytes.bytes() >= 64 << 10;
    is_enough.then_some(bytes).ok_or_else(|| format!("`{text}` is less than 64KiB a second"))
}

/// `snowmelt node`.
#[derive(Debug, Args)]
#[command(after_help = NODE_EXAMPLES)]
pub struct NodeArgs {
    /// Address on which control listens for hosts
    #[arg(long, value_name = "ADDRESS")]
    pub control: SocketAddr,
    /// Address on which this host listens and other hosts reach it
    #[arg(long, value_name = "ADDRESS")]
    pub address: SocketAddr,
    /// PEM file of certificate authorities to trust for registries, besides the system's
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    #[command(flatten)]
    pub member: MemberArgs,
}

/// `snowmelt tree`.
#[derive(Debug, Args)]
#[command(after_help = TREE_EXAMPLES)]
pub struct TreeArgs {
    /// Only the trees of this function or UDF, or of images that begin with this name
    #[arg(value_name = "FUNCTION|IMAGE")]
    pub name: Option<String>,
    /// Format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: ListFormat,
    /// Use the server at this socket
    #[arg(long, value_name = "SOCKET")]
    pub server: Option<PathBuf>,
}

/// `snowmelt hosts`.
#[derive(Debug, Args)]
#[command(after_help = HOSTS_EXAMPLES, args_conflicts_with_subcommands = true)]
pub struct HostsArgs {
    /// The command about one host. `None` to list all hosts.
    #[command(subcommand)]
    pub command: Option<HostsCommand>,
    /// Format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: ListFormat,
    /// Use the server at this socket
    #[arg(long, value_name = "SOCKET")]
    pub server: Option<PathBuf>,
}

/// The commands about one host.
#[derive(Debug, Subcommand)]
pub enum HostsCommand {
    /// Give a host no new work; what runs there goes on, and restarts change nothing
    Drain(HostArgs),
    /// Give a host new work again
    Undrain(HostArgs),
}

/// The arguments of a command about one host.
#[derive(Debug, Args)]
pub struct HostArgs {
    /// Its name
    #[arg(value_name = "NAME")]
    pub name: HostName,
    /// Use the server at this socket
    #[arg(long, value_name = "SOCKET")]
    pub server: Option<PathBuf>,
}
