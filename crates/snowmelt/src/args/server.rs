//! The grammar of the commands that start, stop and inspect a platform.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use snowmelt_types::parse_duration;

use super::{ListFormat, MemberArgs, PlatformArgs, ShowFormat, TlsArgs};

const UP_EXAMPLES: &str = "\
Examples:
  snowmelt up
  snowmelt up --foreground        for systemd and containers
  snowmelt up --listen 10.0.0.1:7070     so that other hosts can join
  snowmelt up --tls-listen 10.0.0.1:7443 --tls-cert server.pem --tls-key server.key
                                  so that engines on other hosts call functions

Commands find the server by its socket: SNOWMELT_SOCKET, or snowmelt.sock in the state folder
(SNOWMELT_STATE). Its log is snowmelt.log in the state folder.";

const DOWN_EXAMPLES: &str = "\
Examples:
  snowmelt down
  snowmelt down --grace 5m        let long calls end
  snowmelt down --grace 0s        cancel running work immediately

New work is refused. Running work can end within the grace time, and is cancelled after it.
Asynchronous calls that have not ended run again after the next `snowmelt up`. Deployed functions
are kept.";

const DU_EXAMPLES: &str = "\
Examples:
  snowmelt du
  snowmelt du -o json | jq '.[0]'

It reads the state folder (SNOWMELT_STATE) and changes nothing.";

const PRUNE_EXAMPLES: &str = "\
Examples:
  snowmelt prune                      what would be removed, and how much that frees
  snowmelt prune --yes
  snowmelt prune --yes --results      also the results of calls that are still kept

What a deployed function, a running call or an engine uses stays. Root removes of all tenants, every
other user of the own one: old versions, results and files.";

const STATUS_EXAMPLES: &str = "\
Examples:
  snowmelt status
  snowmelt status -o json | jq .memory_bytes

Exit code 3 means that no server is running.";

const TOP_EXAMPLES: &str = "\
Examples:
  snowmelt top                    until Ctrl-C
  snowmelt top --once
  snowmelt top -o json | jq .node.imports.zygotes

The same metrics for Prometheus: curl --unix-socket SOCKET http://snowmelt/metrics";

const DOCTOR_EXAMPLES: &str = "\
Examples:
  snowmelt doctor
  snowmelt doctor -o json | jq '.[] | select(.status == \"fail\")'

Exit codes: 0 no problems, 1 warnings, 2 a requirement is missing.";

const SHOW_EXAMPLES: &str = "\
Examples:
  snowmelt config show
  snowmelt config show --origin

Precedence, from the highest: the option, its SNOWMELT_* variable, the user's configuration file
(~/.config/snowmelt/config.toml), the machine's (/etc/snowmelt/config.toml), the default. If
SNOWMELT_CONFIG names a file, it is the only one that is read.";

const BACKUP_EXAMPLES: &str = "\
Examples:
  snowmelt backup                 into the folder `backups` of the state folder
  snowmelt backup /mnt/copies/monday.redb
  snowmelt down && snowmelt backup --restore        put the newest copy in the place of the state
  snowmelt backup --restore /mnt/copies/monday.redb

A copy has the deployed functions, registered UDFs, asynchronous calls and bursts, not the code,
packages, images and logs beside them in the state folder. A server copies its state each hour if
it has changed, and keeps the last 5. The file that --restore replaces is kept.";

pub(super) const STORE_EXAMPLES: &str = "\
Examples:
  snowmelt store copy --from /var/lib/snowmelt --to etcd://10.0.0.5:2379 --folder /srv/snowmelt
  snowmelt store copy --from etcd://10.0.0.5:2379 --folder /srv/snowmelt --to /var/lib/snowmelt";

const COPY_EXAMPLES: &str = "\
Examples:
  snowmelt store copy --from /var/lib/snowmelt --to etcd://10.0.0.5:2379 --folder /srv/snowmelt
  snowmelt store copy --from etcds://10.0.0.5:2379/production --to /var/lib/snowmelt

All servers of both stores are stopped before. The source stays as it is, the target must be empty.
What is copied is read again and compared. A copy that was interrupted goes on when the same command
runs again; until it is complete, no server starts with the target. Logs, the audit, packages and
images stay where they are. How etcd is reached is set as for a server (store.ca, store.user).";

/// `snowmelt up`.
#[derive(Debug, Default, Args)]
#[command(after_help = UP_EXAMPLES)]
pub struct UpArgs {
    /// Stay in the foreground and log to stderr
    #[arg(long)]
    pub foreground: bool,
    /// Let other hosts join at this address (`snowmelt node`)
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<SocketAddr>,
    /// PEM file of certificate authorities to trust for registries, besides the system's
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    #[command(flatten)]
    pub member: MemberArgs,
    #[command(flatten)]
    pub tls: TlsArgs,
}

/// `snowmelt down`.
#[derive(Debug, Args)]
#[command(after_help = DOWN_EXAMPLES)]
pub struct DownArgs {
    /// Grace time for running calls and queries [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub grace: Option<Duration>,
}

/// `snowmelt status`.
#[derive(Debug, Args)]
#[command(after_help = STATUS_EXAMPLES)]
pub struct StatusArgs {
    /// Format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: ShowFormat,
}

/// `snowmelt top`.
#[derive(Debug, Args)]
#[command(after_help = TOP_EXAMPLES)]
pub struct TopArgs {
    /// Print once and exit, which is the default if stdout is not a terminal
    #[arg(long)]
    pub once: bool,
    /// Format; json prints once
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: ShowFormat,
    /// Use the server at this socket
    #[arg(long, value_name = "SOCKET")]
    pub server: Option<PathBuf>,
}

/// `snowmelt doctor`.
#[derive(Debug, Args)]
#[command(after_help = DOCTOR_EXAMPLES)]
pub struct DoctorArgs {
    /// Format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: ShowFormat,
}

/// `snowmelt backup`.
#[derive(Debug, Args)]
#[command(after_help = BACKUP_EXAMPLES)]
pub struct BackupArgs {
    /// The copy: a file to make, or with --restore one to read
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Put a copy in the place of the state, which no server may use
    #[arg(long)]
    pub restore: bool,
}

/// `snowmelt store`.
#[derive(Debug, Subcommand)]
pub enum StoreCommand {
    /// Copy the records of a platform from its state folder to etcd, or back
    #[command(after_help = COPY_EXAMPLES)]
    Copy(CopyStoreArgs),
}

/// `snowmelt store copy`.
#[derive(Debug, Args)]
pub struct CopyStoreArgs {
    /// Store to copy: a state folder, or etcd://HOST:PORT,…/PREFIX
    #[arg(long, value_name = "STORE")]
    pub from: String,
    /// Store that gets the copy, and is empty: etcd, or a state folder
    #[arg(long, value_name = "STORE")]
    pub to: String,
    /// Folder that the controls of etcd share [default: store.folder]
    #[arg(long, value_name = "FOLDER")]
    pub folder: Option<PathBuf>,
    /// Format of the result
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: ListFormat,
}

/// `snowmelt du`.
#[derive(Debug, Args)]
#[command(after_help = DU_EXAMPLES)]
pub struct DuArgs {
    /// Format of the list
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: ListFormat,
}

/// `snowmelt prune`.
#[derive(Debug, Args)]
#[command(after_help = PRUNE_EXAMPLES)]
pub struct PruneArgs {
    /// Remove it
    #[arg(short, long)]
    pub yes: bool,
    /// Only show what would be removed, which is the default
    #[arg(long, conflicts_with = "yes")]
    pub dry_run: bool,
    /// Also the results of asynchronous calls that are to be kept for longer
    #[arg(long)]
    pub results: bool,
    /// Format of the list
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: ListFormat,
    /// The platform to clean.
    #[command(flatten, next_help_heading = "Platform")]
    pub platform: PlatformArgs,
}

/// `snowmelt config`.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print the effective settings as TOML
    #[command(after_help = SHOW_EXAMPLES)]
    Show {
        /// Print where each setting comes from
        #[arg(long)]
        origin: bool,
    },
}

/// `snowmelt serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Serve a private socket, print its path as one JSON line, and exit when stdin closes
    #[arg(long, required = true)]
    pub private: bool,
}
