//! The grammar of `snowmelt lab`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use snowmelt_lab::{BitRate, Fault, ServiceKind};
use snowmelt_types::{ByteSize, HostName, parse_duration};

use super::ListFormat;

pub(super) const EXAMPLES: &str = "\
Examples:
  snowmelt lab up --hosts 8 --link 1gbit
  snowmelt lab run -- python demo/bursts/allreduce.py 64
  snowmelt lab fail host-3 --how unplug && snowmelt lab heal host-3
  snowmelt lab down

Each host is a network namespace with the real `snowmelt node`; the first is the control host.";

const UP_EXAMPLES: &str = "\
Examples:
  snowmelt lab up --hosts 8
  snowmelt lab up --hosts 64 --link 1gbit --memory 256MiB
  snowmelt lab up --hosts 8 --link 100mbit --registry --store --store-link 1gbit

The hosts have the addresses from 192.0.2.1 upward on a private bridge: they reach each other, the
registry and the store of the lab, and nothing else. The lab runs until `snowmelt lab down`, and
every terminal can use it.";

const RUN_EXAMPLES: &str = "\
Examples:
  snowmelt lab run -- snowmelt hosts
  snowmelt lab run -- python demo/bursts/allreduce.py 64
  snowmelt lab run -- sh -c 'snowmelt image push app:v1 $SNOWMELT_LAB_REGISTRY/app:v1'

The command runs in the network of the first host. SNOWMELT_SOCKET is the socket of its server. With
a registry, SNOWMELT_LAB_REGISTRY is its address, and its certificate is trusted. With a store, the
AWS variables are those of the store, and SNOWMELT_LAB_STORE is the URL of its bucket.";

const EXEC_EXAMPLES: &str = "\
Examples:
  snowmelt lab exec host-2 -- ip route
  snowmelt lab exec host-2 -- ping -c 1 192.0.2.1
  snowmelt lab exec registry -- sh -c 'snowmelt image push app:v1 $SNOWMELT_LAB_REGISTRY/app:v1'

The registry and the store are known to the command as to one of `snowmelt lab run`; the platform of
the lab is not, nor is a server of the machine, which would work outside of the lab: the last
example pushes an image of the machine's own platform, over no link.";

const FAIL_EXAMPLES: &str = "\
Examples:
  snowmelt lab fail host-3                      its process is killed
  snowmelt lab fail host-3 --how partition      only the control host reaches it
  snowmelt lab fail registry --how unplug       no image can be read from it
  snowmelt lab heal host-3

The registry and the store can be killed, frozen, unplugged and slow, and their clocks wrong.";

/// `snowmelt lab`.
#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// Create hosts, links and a bridge, and start a platform on the hosts
    Up(LabUpArgs),
    /// Add hosts to a running lab
    Add(LabAddArgs),
    /// List the hosts of all labs
    Ls(LabLsArgs),
    /// Run a command as a client of the lab
    #[command(after_help = RUN_EXAMPLES)]
    Run(LabRunArgs),
    /// Run a command in the network of a host or service
    #[command(after_help = EXEC_EXAMPLES)]
    Exec(LabExecArgs),
    /// Inject a fault into a host, the registry or the store
    #[command(after_help = FAIL_EXAMPLES)]
    Fail(LabFailArgs),
    /// Undo all faults of a host or service, and start it if it does not run
    Heal(LabHostArgs),
    /// Kill the process of a host or service, and start it again
    Restart(LabHostArgs),
    /// List, start and stop hosts of a lab with a pool: what control runs
    #[command(subcommand)]
    Pool(LabPoolCommand),
    /// Stop a lab and everything that runs in it
    Down(LabNameArgs),
}

/// The lab that a command is about.
#[derive(Debug, Args)]
pub struct LabNameArgs {
    /// Name of the lab
    #[arg(long, value_name = "NAME", default_value = "lab")]
    pub name: HostName,
}

/// `snowmelt lab up`.
#[derive(Debug, Args)]
#[command(after_help = UP_EXAMPLES)]
pub struct LabUpArgs {
    /// Number of hosts, including the control host
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=250))]
    pub hosts: u32,
    /// Number of hosts to start now; control starts and ends the others as calls need them
    /// [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=250))]
    pub started: Option<u32>,
    /// Rate of each host's link, in each direction [default: unlimited]
    #[arg(long, value_name = "RATE")]
    pub link: Option<BitRate>,
    /// Delay of each packet to another host [default: none]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub delay: Option<Duration>,
    /// Memory of each host [default: an equal share of the machine's]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<ByteSize>,
    /// Run no functions on the control host, so that bursts survive its restart
    #[arg(long)]
    pub control_only: bool,
    /// Give each host a disk of its own of this size, in memory [default: all share the machine's]
    #[arg(long, value_name = "SIZE")]
    pub disk: Option<ByteSize>,
    /// Run a registry of images, at 192.0.2.251:5000
    #[arg(long)]
    pub registry: bool,
    /// Rate of the registry's link [default: that of the hosts' links]
    #[arg(long, value_name = "RATE", requires = "registry")]
    pub registry_link: Option<BitRate>,
    /// Program of the registry
    #[arg(long, value_name = "PATH", requires = "registry")]
    #[arg(default_value = ServiceKind::Registry.program())]
    pub registry_program: PathBuf,
    /// Run an S3 server with the bucket `lab`, at 192.0.2.252:8333
    #[arg(long)]
    pub store: bool,
    /// Rate of the store's link [default: that of the hosts' links]
    #[arg(long, value_name = "RATE", requires = "store")]
    pub store_link: Option<BitRate>,
    /// Program of the store, SeaweedFS
    #[arg(long, value_name = "PATH", requires = "store")]
    #[arg(default_value = ServiceKind::Store.program())]
    pub store_program: PathBuf,
    #[command(flatten)]
    pub lab: LabNameArgs,
}

/// `snowmelt lab add`.
#[derive(Debug, Args)]
pub struct LabAddArgs {
    /// Number of hosts to add
    #[arg(value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=249))]
    pub hosts: u32,
    #[command(flatten)]
    pub lab: LabNameArgs,
}

/// `snowmelt lab pool`.
#[derive(Debug, Subcommand)]
pub enum LabPoolCommand {
    /// List the hosts that run, without that of control
    List(LabNameArgs),
    /// Start hosts until so many run
    Start {
        /// Number of hosts, without that of control
        count: u32,
        #[command(flatten)]
        lab: LabNameArgs,
    },
    /// End a host
    Stop {
        /// Name of the host
        host: String,
        #[command(flatten)]
        lab: LabNameArgs,
    },
}

/// `snowmelt lab ls`.
#[derive(Debug, Args)]
pub struct LabLsArgs {
    /// Format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: ListFormat,
}

/// `snowmelt lab run`.
#[derive(Debug, Args)]
pub struct LabRunArgs {
    #[command(flatten)]
    pub lab: LabNameArgs,
    /// The command with its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// `snowmelt lab exec`.
#[derive(Debug, Args)]
pub struct LabExecArgs {
    #[command(flatten)]
    pub host: LabHostArgs,
    /// The command with its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// `snowmelt lab fail`.
#[derive(Debug, Args)]
pub struct LabFailArgs {
    #[command(flatten)]
    pub host: LabHostArgs,
    /// Fault to inject
    #[arg(long, value_enum, value_name = "FAULT", default_value = "kill")]
    pub how: FaultName,
}

/// The host and the lab that a command is about.
#[derive(Debug, Args)]
pub struct LabHostArgs {
    /// Name of the host, for example host-2; `registry` or `store`
    pub host: String,
    #[command(flatten)]
    pub lab: LabNameArgs,
}

/// Faults of a host or service.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum FaultName {
    /// Its process is killed
    Kill,
    /// All of its processes are stopped
    Freeze,
    /// Its link drops all packets
    Unplug,
    /// Its link runs at a hundredth of its rate
    Slow,
    /// It reaches only the control host
    Partition,
    /// What it sends to other hosts is damaged
    Corrupt,
    /// Its disk is full (needs `lab up --disk`)
    DiskFull,
    /// Its wall clock is an hour ahead
    ClockAhead,
    /// Its wall clock is an hour behind
    ClockBehind,
}

impl From<FaultName> for Fault {
    fn from(name: FaultName) -> Self {
        match name {
            FaultName::Kill => Self::Kill,
            FaultName::Freeze => Self::Freeze,
            FaultName::Unplug => Self::Unplug,
            FaultName::Slow => Self::Slow,
            FaultName::Partition => Self::Partition,
            FaultName::Corrupt => Self::Corrupt,
            FaultName::DiskFull => Self::DiskFull,
            FaultName::ClockAhead => Self::ClockAhead,
            FaultName::ClockBehind => Self::ClockBehind,
        }
    }
}
