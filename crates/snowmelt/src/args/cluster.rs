//! The grammar of what makes several hosts one cluster.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use snowmelt_types::{ByteSize, HostName};

use super::ListFormat;

const NODE_EXAMPLES: &str = "\
Examples:
  snowmelt up --listen 10.0.0.1:7070 --token-file token              on the first host
  snowmelt node --control 10.0.0.1:7070 --address 10.0.0.2:7070 --token-file token

It stays in the foreground, for systemd and containers, says once a second that it is there, and
waits for a control that is gone. The same token file, 16 printable characters or more, must be on
all hosts; what they say to each other is not encrypted, so use a network of your own.";

const HOSTS_EXAMPLES: &str = "\
Examples:
  snowmelt hosts
  snowmelt hosts -o json | jq -r '.[].name'";

/// How a host belongs to a cluster.
#[derive(Clone, Debug, Default, Args)]
pub struct MemberArgs {
    /// File with the secret of the cluster
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Name of this host in the cluster [default: its host name]
    #[arg(long, value_name = "NAME")]
    pub name: Option<HostName>,
    /// The most memory that bursts have on this host [default: what the machine has]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<ByteSize>,
}

/// `snowmelt node`.
#[derive(Debug, Args)]
#[command(after_help = NODE_EXAMPLES)]
pub struct NodeArgs {
    /// Where control listens for hosts
    #[arg(long, value_name = "ADDRESS")]
    pub control: SocketAddr,
    /// Where this host listens, and the others reach it
    #[arg(long, value_name = "ADDRESS")]
    pub address: SocketAddr,
    /// Trust the authorities of registries in this file of PEM, beside those of the system
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    #[command(flatten)]
    pub member: MemberArgs,
}

/// `snowmelt hosts`.
#[derive(Debug, Args)]
#[command(after_help = HOSTS_EXAMPLES)]
pub struct HostsArgs {
    /// Format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: ListFormat,
    /// Use the server at this socket
    #[arg(long, value_name = "SOCKET")]
    pub server: Option<PathBuf>,
}
