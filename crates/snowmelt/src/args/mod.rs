//! The grammar of the command line: commands, options and their help.
//!
//! | member | job |
//! |---|---|
//! | `usage` | parses the command line; errors of the parser as reports |
//! | `functions` | grammar of the commands about functions of users |
//! | `sql` | grammar of `snowmelt sql` |
//! | `image` | grammar of `snowmelt image` |
//! | `server` | grammar of the commands about a server and its state |
//! | `cluster`, `net`, `token`, `quota` | grammar of the commands about hosts, networks of jobs, tokens, quotas |
//! | `audit` | grammar of the check of the audit |
//! | `login` | grammar of contexts and logins |
//! | `lab`, `simulate` | grammar of emulated and of simulated clusters |
//! | `values` | values that several commands parse |
//!
//! Boundary: this folder only parses. An option that also has a variable or a key in the
//! configuration file is optional here, and [`crate::config`] decides which value applies.

mod audit;
mod cluster;
mod functions;
mod image;
mod lab;
mod login;
mod net;
mod quota;
mod server;
mod simulate;
mod sql;
mod token;
pub mod usage;
mod values;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};
use snowmelt_types::Tenant;

pub use audit::{AuditCommand, VerifyAuditArgs};
pub use cluster::{
    ClusterCommand, DrainArgs, HostArgs, HostsArgs, HostsCommand, JoinTokenArgs, MemberArgs,
    NodeArgs, TreeArgs, rate,
};
pub use functions::{
    AddUdfArgs, BurstArgs, BurstCommand, BurstLsArgs, CallArgs, DeployArgs, EnvironmentArgs,
    FunctionCommand, ListArgs, LogArgs, LogFormat, NewArgs, PackArgs, RemoveArgs, RemoveUdfArgs,
    ResultArgs, RunArgs, RuntimeName, ShowFunctionArgs, ShowUdfArgs, TestUdfArgs, UdfCommand,
    UdfLogArgs,
};
pub use image::{
    Content, ImageArgs, ImageBuildArgs, ImageCommand, ImageConvertArgs, ImageDiffArgs,
    ImageInspectArgs, ImageLsArgs, ImagePruneArgs, ImagePullArgs, ImagePushArgs, ImageRmArgs,
    ImageVerifyArgs, ImageWarmArgs,
};
pub use lab::{
    LabAddArgs, LabCommand, LabExecArgs, LabLsArgs, LabPoolCommand, LabRunArgs, LabUpArgs,
};
pub use login::{
    ContextCommand, ContextTokenArgs, LoginArgs, LogoutArgs, LsContextArgs, SetContextArgs,
    ShowContextArgs,
};
pub use net::{NetCommand, NetLsArgs, NetShowArgs, NetTraceArgs};
pub use quota::{QuotaCommand, ResetQuotaArgs, SetQuotaArgs};
pub use server::{
    BackupArgs, ConfigCommand, CopyStoreArgs, DoctorArgs, DownArgs, DuArgs, PruneArgs, ServeArgs,
    StatusArgs, StoreCommand, TopArgs, UpArgs,
};
pub use simulate::{Application, KillSpec, RepairWay, SimulateArgs, TraceArgs, Way};
pub use sql::SqlArgs;
pub use token::{NewTokenArgs, RevokeTokenArgs, RotateTokenArgs, TlsArgs, TokenCommand};

const ABOUT: &str = "Serverless analytics on your own machines: SQL and Python over Parquet, run as \
                     a burst of functions in lean containers.";

const EXAMPLES: &str = "\
Examples:
  snowmelt sql \"select count(*) from 'data/*.parquet'\"
  snowmelt fn deploy resize resize.py && snowmelt fn call resize --data '{\"width\": 80}'
  snowmelt up            keep a platform running, so that the next query starts warm
  snowmelt doctor        check whether this machine meets the requirements

Exit codes: 0 success, 1 the input is wrong, 2 the command line is wrong, 3 the platform failed,
124 the time limit is exceeded, 130 interrupted, 143 terminated.";

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  snowmelt completions bash > /etc/bash_completion.d/snowmelt
  snowmelt completions zsh > ~/.zfunc/_snowmelt";

/// The parsed command line.
#[derive(Debug, Parser)]
#[command(name = "snowmelt", version, about = ABOUT, after_help = EXAMPLES)]
#[command(max_term_width = 100, disable_help_subcommand = true)]
pub struct Cli {
    /// Options of every command.
    #[command(flatten)]
    pub global: GlobalArgs,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// The command line of a server's own process: without options.
    pub fn server() -> Self {
        let global =
            GlobalArgs { progress: None, errors: None, tenant: None, context: None, url: None };
        Self { global, command: Command::Up(UpArgs::default()) }
    }
}

/// Options of every command.
#[derive(Clone, Debug, Args)]
pub struct GlobalArgs {
    /// Progress on stderr: auto is tty on a terminal and plain elsewhere
    #[arg(long, global = true, value_enum, value_name = "MODE", help_heading = "Global options")]
    pub progress: Option<ProgressMode>,
    /// Form of errors: json prints one object as the last line of stderr
    #[arg(long, global = true, value_enum, value_name = "FORM", help_heading = "Global options")]
    pub errors: Option<ErrorForm>,
    /// Act for this tenant, which has functions of its own [default: that of your user]
    #[arg(long, global = true, value_name = "NAME", value_parser = str::parse::<Tenant>, help_heading = "Global options")]
    pub tenant: Option<Tenant>,
    /// Use this context: a platform on another host, or `local` [default: the current one]
    #[arg(long, global = true, value_name = "NAME", help_heading = "Global options")]
    pub context: Option<String>,
    /// Use the platform at this address of another host [token: SNOWMELT_TOKEN]
    #[arg(long, global = true, value_name = "URL", help_heading = "Global options")]
    pub url: Option<String>,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run one SELECT over Parquet, CSV, JSON or Arrow files
    Sql(Box<SqlArgs>),
    /// Call a function in a file once, without deploying it
    Run(Box<RunArgs>),
    /// Deploy, call and manage functions
    #[command(name = "fn", subcommand, after_help = functions::FUNCTION_EXAMPLES)]
    Function(FunctionCommand),
    /// Register functions that SQL and other engines call by name
    #[command(subcommand, after_help = functions::UDF_EXAMPLES)]
    Udf(UdfCommand),
    /// List, wait for and cancel bursts
    #[command(subcommand, after_help = functions::BURST_EXAMPLES)]
    Burst(BurstCommand),
    /// Build and manage block images
    #[command(after_help = image::EXAMPLES)]
    Image(ImageArgs),
    /// Start a platform in the background
    Up(UpArgs),
    /// Stop the platform after a grace time for running work
    Down(DownArgs),
    /// Copy the state of the platform, or restore a copy
    Backup(BackupArgs),
    /// Move the records of the platform to or from etcd
    #[command(subcommand, after_help = server::STORE_EXAMPLES)]
    Store(StoreCommand),
    /// Show what the platform uses of the disk
    Du(DuArgs),
    /// Remove packages, code, versions, results and images that nothing uses
    Prune(PruneArgs),
    /// Show the running platform
    Status(StatusArgs),
    /// Watch instances, caches and zygotes
    Top(TopArgs),
    /// Run this machine as a host of a cluster
    Node(NodeArgs),
    /// Make, list, rotate and revoke keys of clients of other hosts
    #[command(subcommand, after_help = token::EXAMPLES)]
    Token(TokenCommand),
    /// Check the files in which the platform writes who did what
    #[command(subcommand, after_help = audit::EXAMPLES)]
    Audit(AuditCommand),
    /// Show what tenants use, and limit it
    #[command(subcommand, after_help = quota::EXAMPLES)]
    Quota(QuotaCommand),
    /// Log in to a platform on another host, in a browser of any device
    #[command(after_help = login::LOGIN_EXAMPLES)]
    Login(LoginArgs),
    /// Forget a login, and have its issuer end it
    Logout(LogoutArgs),
    /// Name platforms on other hosts, and choose among them
    #[command(subcommand, after_help = login::CONTEXT_EXAMPLES)]
    Context(ContextCommand),
    /// Show the hosts of the cluster, drain and remove them
    Hosts(HostsArgs),
    /// Let further hosts join the cluster
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Show from which host each host reads the images of functions
    Tree(TreeArgs),
    /// Run a cluster of emulated hosts on this machine
    #[command(subcommand, after_help = lab::EXAMPLES)]
    Lab(LabCommand),
    /// Simulate a burst, or hours of calls, on thousands of hosts
    Simulate(Box<SimulateArgs>),
    /// Inspect the networks of jobs
    #[command(subcommand, after_help = net::EXAMPLES)]
    Net(NetCommand),
    /// Check whether this machine meets the requirements
    Doctor(DoctorArgs),
    /// Inspect the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print a completion script for a shell
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a folder, for packages
    #[command(hide = true)]
    Man {
        /// Folder to create
        folder: PathBuf,
    },
    /// Serve until stopped; started by other programs
    #[command(hide = true)]
    Serve(ServeArgs),
}

/// The platform that a command uses.
#[derive(Clone, Debug, Default, Args)]
pub struct PlatformArgs {
    /// Start a platform inside this command even if a server is running
    #[arg(long, conflicts_with = "server")]
    pub embedded: bool,
    /// Use only the server at this socket
    #[arg(long, value_name = "SOCKET")]
    pub server: Option<PathBuf>,
}

/// The Python packages that a function needs, and its version of Python.
#[derive(Clone, Debug, Default, Args)]
pub struct PackageArgs {
    /// A Python package that it needs, for example `pillow==11.*` (repeatable)
    #[arg(long = "package", value_name = "REQ")]
    pub packages: Vec<String>,
    /// requirements.txt with the Python packages that it needs
    #[arg(long, value_name = "FILE")]
    pub requirements: Option<PathBuf>,
    /// Python version that runs it, for example 3.13 [default: that of the platform]
    #[arg(long, value_name = "VERSION")]
    pub python: Option<String>,
}

// The values have plain comments: with doc comments the help would show a paragraph for each.

/// The form in which progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProgressMode {
    // `tty` where stderr is a terminal, otherwise `plain`.
    Auto,
    // One line that is redrawn.
    Tty,
    // Lines, first one second apart and then at growing intervals.
    Plain,
    // Nothing, and no summary.
    Quiet,
}

/// The form in which errors are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorForm {
    // For people.
    Text,
    // One JSON object on the last line of stderr.
    Json,
}

/// Formats of a query's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OutputFormat {
    // For people.
    Table,
    // One JSON object per line.
    Json,
    // RFC 4180 with a header.
    Csv,
    // Arrow IPC.
    Arrow,
    // Parquet.
    Parquet,
}

/// The medium that holds the rows of a query between its stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExchangeMedium {
    // Chosen by the hosts of the query.
    Auto,
    // Files of one host.
    Files,
    // Files of several hosts.
    Hosts,
    // Connections between tasks that run at the same time.
    Streams,
    // Objects on S3.
    Objects,
}

/// The switch of an option: on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    // On.
    On,
    // Off.
    Off,
}

/// Formats of short lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ListFormat {
    // For people.
    #[default]
    Table,
    // One JSON value.
    Json,
    // RFC 4180 with a header.
    Csv,
}

/// Formats of a single item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ShowFormat {
    // For people.
    #[default]
    Table,
    // One JSON value.
    Json,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_grammar_is_consistent() {
        Cli::command().debug_assert();
    }
}
