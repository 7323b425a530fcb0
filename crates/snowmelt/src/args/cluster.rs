//! The grammar of the commands and options of a cluster.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use snowmelt_types::{ByteSize, HostName, parse_duration};

use super::{ListFormat, ShowFormat};

const NODE_EXAMPLES: &str = "\
Examples:
  snowmelt up --listen 10.0.0.1:7070                                 on the first host
  snowmelt cluster join-token                                        there, for each other host
  snowmelt node --control 10.0.0.1:7070 --address 10.0.0.2:7070 --join TOKEN

The command runs in the foreground, for systemd and containers. It sends a heartbeat every second,
and waits for control if control is unreachable. A join token is for one host and one time; the
certificate that the host gets for it is in its state folder, and the host renews it. Traffic between
hosts is encrypted, unless all of them have --plaintext and the same token file.";

const JOIN_TOKEN_EXAMPLES: &str = "\
Examples:
  snowmelt cluster join-token
  snowmelt cluster join-token --name host-3 --expires 1h     also in the place of a lost host-3
  ssh host-2 snowmelt node --control 10.0.0.1:7070 --address 10.0.0.2:7070 \\
      --join \"$(snowmelt cluster join-token)\"

The token is shown this once. Whoever has it can join one host within its time, so send it as you
send a password. It also has the fingerprint of the cluster, by which the host knows control.";

const HOSTS_EXAMPLES: &str = "\
Examples:
  snowmelt hosts
  snowmelt hosts drain host-3         before its machine is stopped
  snowmelt hosts rm host-3            its certificate is refused from now on
  snowmelt hosts -o json | jq -r '.[] | select(.state == \"active\").name'";

const DRAIN_EXAMPLES: &str = "\
Examples:
  snowmelt hosts drain host-3 --wait && ssh host-3 systemctl restart snowmelt-node
  snowmelt hosts undrain host-3

Calls and bursts go to other hosts, and those on this one go on. With --wait the command ends when
nothing runs there: then the host is stopped, upgraded and started without a failed call.";

const TREE_EXAMPLES: &str = "\
Examples:
  snowmelt tree
  snowmelt tree resize
  snowmelt tree registry.example/team/app:v1
  snowmelt tree -o json | jq '.[].hosts[].bytes'";

/// Options of a host's membership in a cluster.
#[derive(Clone, Debug, Default, Args)]
pub struct MemberArgs {
    /// Encrypt nothing between hosts, which share the token of --token-file: for closed networks
    #[arg(long)]
    pub plaintext: bool,
    /// File with the secret token of a cluster without encryption
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
    /// Address on which control listens for hosts; of several controls, all of them
    #[arg(long, value_name = "ADDRESS,...", required = true, value_delimiter = ',')]
    pub control: Vec<SocketAddr>,
    /// Address on which this host listens and other hosts reach it
    #[arg(long, value_name = "ADDRESS")]
    pub address: SocketAddr,
    /// Join token, needed once; or @ and the file that has it [env: SNOWMELT_JOIN]
    #[arg(long, value_name = "TOKEN")]
    pub join: Option<String>,
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
    #[command(after_help = DRAIN_EXAMPLES)]
    Drain(DrainArgs),
    /// Give a host new work again
    Undrain(HostArgs),
    /// Remove a host from the cluster at once, whatever runs there
    Rm(HostArgs),
}

/// `snowmelt cluster`.
#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Make a token with which one host joins the cluster, once
    JoinToken(JoinTokenArgs),
}

/// `snowmelt cluster join-token`.
#[derive(Debug, Args)]
#[command(after_help = JOIN_TOKEN_EXAMPLES)]
pub struct JoinTokenArgs {
    /// Only for the host of this name, also in the place of one that is there
    #[arg(long, value_name = "NAME")]
    pub name: Option<HostName>,
    /// How long the token lasts, at most 1d
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "10m")]
    pub expires: Duration,
    /// Format: table prints the token alone
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: ShowFormat,
    /// Use the server at this socket
    #[arg(long, value_name = "SOCKET")]
    pub server: Option<PathBuf>,
}

/// `snowmelt hosts drain`.
#[derive(Debug, Args)]
pub struct DrainArgs {
    #[command(flatten)]
    pub host: HostArgs,
    /// Wait until nothing runs on the host
    #[arg(long)]
    pub wait: bool,
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
