//! The grammar of `snowmelt simulate`.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use snowmelt_lab::BitRate;
use snowmelt_types::{ByteSize, CpuMillis, parse_duration};

use super::ListFormat;

/// The name of the group of options that choose calls to replay.
const REPLAYED: &str = "replayed";
const TRACES: &str = "Traces";

const EXAMPLES: &str = "\
Examples:
  snowmelt simulate --hosts 1000 --containers 2500
  snowmelt simulate --hosts 100000 --strategy tree,registry
  snowmelt simulate --hosts 1000 --kill 50 --strategy tree --seed 7
  snowmelt simulate --hosts 64 --link 25mbit --image-size 233MB --start-bytes 73MB -o json
  snowmelt simulate --synthetic iot --warm 30 --strategy stripes,registry --every 60s
  snowmelt simulate --trace calls.csv --hosts 200 --reclaim 10m -o json
  snowmelt simulate --synthetic iot --kill 100@15m --detect 5s --absent 2m --async 0.5

Times are simulated, not measured: `-o json` lists what the model assumes. Sizes are those that are
sent. The defaults are FaaSNet's image and the start of an image with scientific packages here.";

/// `snowmelt simulate`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct SimulateArgs {
    /// Number of hosts
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub hosts: u32,
    /// Containers that start, over all functions [default: one of each function on each host]
    #[arg(long, value_name = "N", conflicts_with = REPLAYED)]
    pub containers: Option<u32>,
    /// Number of functions, each with an image of its own
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "trace")]
    pub functions: u32,
    /// Containers of one function that a host takes
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub per_host: u32,
    /// How images reach the hosts; several are compared [default: all, for traces without layers]
    #[arg(long, value_enum, value_name = "WAY", value_delimiter = ',')]
    pub strategy: Vec<Way>,
    /// Calls over time.
    #[command(flatten)]
    pub calls: TraceArgs,
    /// The links and trees of the simulation.
    #[command(flatten)]
    pub links: LinkArgs,
    /// The images of the functions.
    #[command(flatten)]
    pub images: ImageModelArgs,
    /// The work of hosts on images.
    #[command(flatten)]
    pub local: LocalArgs,
    /// What a start reads on demand before hosts read what follows [default: 0, as with a profile]
    #[arg(long, value_name = "SIZE", default_value = "0B", hide_default_value = true)]
    #[arg(conflicts_with = REPLAYED)]
    pub on_demand: ByteSize,
    /// Hosts that fail at random moments of a burst, or at these times of a trace: 20@10m,5@40m
    #[arg(long, value_name = "N[@TIME]", value_delimiter = ',')]
    pub kill: Vec<KillSpec>,
    /// Time from a failure until control notices it and the trees are repaired
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    pub detect: Duration,
    /// Seed of all that is random; the same seed gives the same outcome
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: ListFormat,
}

/// The calls that are replayed instead of one burst.
#[derive(Debug, Args)]
#[group(id = REPLAYED, multiple = false)]
pub struct ReplayedArgs {
    /// CSV with calls over time, also .gz, or - for stdin: the schema of FaaSNet's trace or of
    /// Azure Functions 2019 or 2021
    #[arg(long, value_name = "FILE", help_heading = TRACES)]
    pub trace: Option<PathBuf>,
    /// Made-up calls after an application of the FaaSNet paper
    #[arg(long, value_enum, value_name = "APP", help_heading = TRACES)]
    pub synthetic: Option<Application>,
}

/// Calls over time, and what hosts keep between them.
#[derive(Debug, Args)]
#[command(next_help_heading = TRACES)]
pub struct TraceArgs {
    /// The calls.
    #[command(flatten)]
    pub replayed: ReplayedArgs,
    /// Time of a call, if the trace does not say it
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_duration)]
    #[arg(requires = REPLAYED)]
    pub duration: Duration,
    /// Memory of an instance, if the trace does not say it
    #[arg(long, value_name = "SIZE", default_value = "2GiB", requires = REPLAYED)]
    pub memory: ByteSize,
    /// Memory that the instances on a host may have together
    #[arg(long, value_name = "SIZE", default_value = "4GiB", requires = REPLAYED)]
    pub host_memory: ByteSize,
    /// Cores that an instance counts for
    #[arg(long, value_name = "CORES", default_value = "1", requires = REPLAYED)]
    pub cpu: CpuMillis,
    /// Instances of each function that are idle when the trace begins, on hosts with its image
    #[arg(long, value_name = "N", default_value_t = 0, requires = REPLAYED)]
    pub warm: u32,
    /// How long an instance is kept without calls
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    #[arg(requires = REPLAYED)]
    pub keep_idle: Duration,
    /// Time without a call after which a host is reclaimed from a function
    #[arg(long, value_name = "TIME", default_value = "15m", value_parser = parse_duration)]
    #[arg(requires = REPLAYED)]
    pub reclaim: Duration,
    /// How long a call waits for a host
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    #[arg(requires = REPLAYED)]
    pub patience: Duration,
    /// Time from the failure of a host until another one joins in place of it [default: none joins]
    #[arg(long, value_name = "TIME", value_parser = parse_duration, requires = "kill")]
    #[arg(requires = REPLAYED)]
    pub absent: Option<Duration>,
    /// Part of the calls that are asynchronous, 0 to 1: they run again when their host is lost
    #[arg(long = "async", value_name = "PART", default_value_t = 0.0, requires = REPLAYED)]
    pub asynchronous: f64,
    /// Print a table over time, with a row for each of these times [JSON has it always: 60s]
    #[arg(long, value_name = "TIME", value_parser = parse_duration, requires = REPLAYED)]
    pub every: Option<Duration>,
}

/// A number of hosts that fail, and the time of their failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KillSpec {
    /// The number of hosts.
    pub hosts: u32,
    /// The time from the first call of a trace. `None` for a random moment of a burst.
    pub at: Option<Duration>,
}

impl FromStr for KillSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (hosts, at) = match text.split_once('@') {
            Some((hosts, at)) => (hosts, Some(at)),
            None => (text, None),
        };
        let hosts = hosts.trim().parse().map_err(|_| {
            format!("`{text}` is not a number of hosts, or one with a time: write 20 or 20@10m")
        })?;
        let at = at.map(parse_duration).transpose().map_err(|error| error.to_string())?;
        Ok(Self { hosts, at })
    }
}

/// Applications of FaaSNet 4.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Application {
    // 55 minutes with 10 calls a second, and two bursts of 300 to 400.
    Iot,
    // 30 minutes with one call a second, and two bursts of 100.
    Gaming,
}

/// Links and trees.
#[derive(Debug, Args)]
pub struct LinkArgs {
    /// Rate of each host's link, in each direction
    #[arg(long, value_name = "RATE", default_value = "1gbit")]
    pub link: BitRate,
    /// Rate at which the registry sends
    #[arg(long, value_name = "RATE", default_value = "10gbit")]
    pub registry_link: BitRate,
    /// Time of a message from a host to the next
    #[arg(long, value_name = "TIME", default_value = "0.2ms", value_parser = parse_duration)]
    pub delay: Duration,
    /// Hosts that read from one
    #[arg(long, value_name = "N", default_value = "2")]
    pub fanout: NonZeroUsize,
    /// How trees are repaired
    #[arg(long, value_enum, value_name = "WAY", default_value = "refill")]
    pub repair: RepairWay,
}

/// Images.
#[derive(Debug, Args)]
pub struct ImageModelArgs {
    /// Size of an image
    #[arg(long, value_name = "SIZE", default_value = "758MB")]
    pub image_size: ByteSize,
    /// What a start reads of it, which is sent first
    #[arg(long, value_name = "SIZE", default_value = "122MB")]
    pub start_bytes: ByteSize,
    /// Size of a block
    #[arg(long, value_name = "SIZE", default_value = "512KiB")]
    pub block_size: ByteSize,
    /// Layers of an image
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub layers: u32,
}

/// The work of a host on an image.
#[derive(Debug, Args)]
pub struct LocalArgs {
    /// What a start reads in a second, while it arrives: decompression, page faults, imports
    #[arg(long, value_name = "SIZE", default_value = "21MB")]
    pub read_rate: ByteSize,
    /// Time of a start after its last byte
    #[arg(long, value_name = "TIME", default_value = "1.3s", value_parser = parse_duration)]
    pub tail: Duration,
    /// Time of each further start of a function on a host
    #[arg(long, value_name = "TIME", default_value = "5ms", value_parser = parse_duration)]
    pub fork: Duration,
    /// Functions that a host starts at once without slowing each other
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub cores: u32,
    /// What a host unpacks of a pulled image in a second
    #[arg(long, value_name = "SIZE", default_value = "12MB")]
    pub unpack_rate: ByteSize,
}

/// The way in which images reach the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Way {
    // A tree of hosts for each function.
    Tree,
    // Each host reads blocks from the registry.
    Registry,
    // A tree of hosts for each layer.
    Layers,
    // As many trees as the fan-out, each with its part of the blocks.
    Stripes,
    // Each host pulls and unpacks.
    Pull,
}

/// The way in which trees are repaired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RepairWay {
    // A leaf fills the hole.
    Refill,
    // FaaSNet's rotations.
    Rotate,
}
