//! The grammar of `snowmelt fn`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use snowmelt_api::Runtime;
use snowmelt_image::source::Reference;
use snowmelt_types::{ByteSize, CpuMillis, FunctionName, parse_duration};

use super::{ListFormat, PlatformArgs, ShowFormat};

pub(super) const EXAMPLES: &str = "\
Examples:
  snowmelt fn deploy hello hello.py              the file has def handler(event)
  snowmelt fn call hello --data '{\"name\": \"Ada\"}'
  snowmelt fn logs hello --tail 5
  snowmelt fn rm hello";

const DEPLOY_EXAMPLES: &str = "\
Examples:
  snowmelt fn deploy hello hello.py
  snowmelt fn deploy resize images.py:resize --package pillow==11.* --memory 1GiB --timeout 30s
  snowmelt fn deploy score model.py --requirements requirements.txt --env MODEL=v3 --instances 4
  snowmelt fn deploy hello handler.mjs            Node.js: export function handler(event)
  snowmelt fn deploy hello Hello.java --parked 1  Java: public static Object handle(Map event)
  snowmelt fn deploy hello ./hello --runtime go   a program made with the package of fn new
  snowmelt fn deploy thumb ./app --command './serve --fast' --root images/tools
  snowmelt fn deploy small ./app --command './serve' --image registry.example/tools:v1
  snowmelt fn deploy whole --image registry.example/app:v1     by the image's own command
  snowmelt fn deploy score model.py --image registry.example/science:v1   by the image's Python
  snowmelt fn deploy score --packed registry.example/team/score:v1

Deploying a name again replaces the function; calls that run then still end with the old one.";

const PACK_EXAMPLES: &str = "\
Examples:
  snowmelt fn pack model.py score:v1
  snowmelt fn pack model.py:score registry.example/team/score:v1 --requirements requirements.txt
  snowmelt fn deploy score --packed registry.example/team/score:v1

Each wheel is a layer that all packages with it share. A name with a registry is sent there, from
where every host reads what its functions touch.";

const NEW_EXAMPLES: &str = "\
Examples:
  snowmelt fn new hello --runtime node
  snowmelt fn new hello --runtime go && cd hello && CGO_ENABLED=0 go build -o handler .

The folder has a handler to begin with; the commands that follow are printed.";

const SHOW_EXAMPLES: &str = "\
Examples:
  snowmelt fn show hello
  snowmelt fn show hello -o json | jq .options.memory";

const LS_EXAMPLES: &str = "\
Examples:
  snowmelt fn ls
  snowmelt fn ls -o json | jq '.[].name'";

const CALL_EXAMPLES: &str = "\
Examples:
  snowmelt fn call hello
  snowmelt fn call hello --data '{\"name\": \"Ada\"}'
  snowmelt fn call hello --data @event.json
  jq -c .event log.json | snowmelt fn call hello --data -
  id=$(snowmelt fn call hello --async) && snowmelt fn result \"$id\" --wait

The result is JSON on stdout; what the function itself prints is in `snowmelt fn logs`.";

const BURST_EXAMPLES: &str = "\
Examples:
  snowmelt fn burst hello -n 8
  snowmelt fn burst ring -n 64 --network                each finds its rank in SNOWMELT_RANK
  snowmelt fn burst score --events events.jsonl         a function for each line
  snowmelt fn burst score -n 8 --data @event.json | jq -c 'select(.error)'

All start at once, over all hosts, or none does. On stdout is one JSON object a line, by rank: with
result or error, and log where something was written. The exit code is that of the first failure.";

const RESULT_EXAMPLES: &str = "\
Examples:
  snowmelt fn result i-0193… --wait

Exit code 3 says that the call is still running.";

const LOGS_EXAMPLES: &str = "\
Examples:
  snowmelt fn logs hello
  snowmelt fn logs hello --tail 1
  snowmelt fn logs hello --invocation i-0193…";

const RM_EXAMPLES: &str = "\
Examples:
  snowmelt fn rm hello";

/// `snowmelt fn`.
#[derive(Debug, Subcommand)]
pub enum FunctionCommand {
    /// Deploy a function of Python, Node.js, Java, Go, or any program
    Deploy(Box<DeployArgs>),
    /// Make a code package: Python code with all that it needs
    Pack(PackArgs),
    /// Make a folder with a handler to begin with
    New(NewArgs),
    /// List the deployed functions
    #[command(after_help = LS_EXAMPLES)]
    Ls(ListArgs),
    /// Show a function with its limits
    Show(ShowFunctionArgs),
    /// Call a function and print its result
    Call(CallArgs),
    /// Run a function many times at once, over all hosts
    Burst(BurstArgs),
    /// Ask for the result of an asynchronous call
    Result(ResultArgs),
    /// Print what a function wrote
    Logs(LogArgs),
    /// Remove a function
    #[command(after_help = RM_EXAMPLES)]
    Rm(RemoveArgs),
}

/// `snowmelt fn deploy`.
#[derive(Debug, Args)]
#[command(after_help = DEPLOY_EXAMPLES)]
pub struct DeployArgs {
    /// Name of the function: letters, digits, `_` and `-`
    #[arg(value_parser = function_name)]
    pub name: FunctionName,
    /// File or folder with the code, and what is called in it [default: handler, in Java the class]
    #[arg(value_name = "PATH[:HANDLER]", required_unless_present_any = ["packed", "image"])]
    pub code: Option<String>,

    /// Memory limit of an instance [default: 512MiB]
    #[arg(long, value_name = "SIZE", help_heading = "Resources")]
    pub memory: Option<ByteSize>,
    /// Processor share of an instance, as 500m or 1.5 [default: 1]
    #[arg(long, value_name = "CORES", help_heading = "Resources")]
    pub cpu: Option<CpuMillis>,
    /// The most time for one call [default: 60s]
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = "Resources")]
    pub timeout: Option<Duration>,
    /// The most instances at once; further calls wait [default: 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Resources")]
    pub instances: Option<u32>,
    /// Calls that an instance takes at once, for code that is safe for threads [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000), help_heading = "Resources")]
    pub concurrency: Option<u32>,
    /// Instances that are started ahead and wait [default: 0]
    #[arg(long, value_name = "N", help_heading = "Resources")]
    pub parked: Option<u32>,
    /// How long an instance without work is kept [default: 60s]
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = "Resources")]
    pub idle: Option<Duration>,
    /// How long the results of asynchronous calls are kept [default: 24h]
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = "Resources")]
    pub keep: Option<Duration>,
    /// Bytes that it may write to /tmp, its only writable folder [default: 64MiB]
    #[arg(long, value_name = "SIZE", help_heading = "Resources")]
    pub scratch: Option<ByteSize>,
    /// Processes and threads of an instance [default: 64]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Resources")]
    pub pids: Option<u32>,
    /// Open files of a process [default: 1024]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(16..), help_heading = "Resources")]
    pub open_files: Option<u64>,
    /// Bytes of its output that are kept of one call [default: 1MiB]
    #[arg(long, value_name = "SIZE", help_heading = "Resources")]
    pub log: Option<ByteSize>,

    /// What runs the code [default: by the ending of the file, python]
    #[arg(
        long,
        value_enum,
        value_name = "NAME",
        conflicts_with = "command",
        help_heading = "Code"
    )]
    pub runtime: Option<RuntimeName>,
    /// Run this program, which speaks the protocol of docs/runtimes.md; `./x` is a file of the code
    #[arg(long, value_name = "WORDS", help_heading = "Code")]
    pub command: Option<String>,
    /// Code package with the code and what it needs, instead of both (snowmelt fn pack)
    #[arg(
        long,
        value_name = "PACKAGE",
        conflicts_with_all = ["code", "runtime", "command", "image", "root", "packages", "requirements"],
        help_heading = "Code"
    )]
    pub packed: Option<String>,
    /// Run in this block image, by its own command unless one is named; blocks come as they are read
    #[arg(long, value_name = "IMAGE", conflicts_with = "root", help_heading = "Code")]
    pub image: Option<String>,
    /// Run in the unpacked file system of an image, in this folder, instead of the host's programs
    #[arg(long, value_name = "FOLDER", help_heading = "Code")]
    pub root: Option<PathBuf>,
    /// Set an environment variable (repeatable)
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = variable, help_heading = "Code")]
    pub environment: Vec<(String, String)>,
    /// One package that it needs, as `pillow==11.*` (repeatable)
    #[arg(long = "package", value_name = "REQ", help_heading = "Code")]
    pub packages: Vec<String>,
    /// requirements.txt with packages that it needs
    #[arg(long, value_name = "FILE", help_heading = "Code")]
    pub requirements: Option<PathBuf>,

    /// Which platform keeps it.
    #[command(flatten, next_help_heading = "Platform")]
    pub platform: PlatformArgs,
}

/// `snowmelt fn pack`.
#[derive(Debug, Args)]
#[command(after_help = PACK_EXAMPLES)]
pub struct PackArgs {
    /// Python file, and what is called in it [default: handler]
    #[arg(value_name = "PATH[:HANDLER]")]
    pub code: String,
    /// Its name: of this platform, or in a registry, to which it is sent
    #[arg(value_name = "PACKAGE", value_parser = package_name)]
    pub name: String,
    /// One package that it needs, as `pillow==11.*` (repeatable)
    #[arg(long = "package", value_name = "REQ")]
    pub packages: Vec<String>,
    /// requirements.txt with packages that it needs
    #[arg(long, value_name = "FILE")]
    pub requirements: Option<PathBuf>,
    /// Which platform makes it.
    #[command(flatten, next_help_heading = "Platform")]
    pub platform: PlatformArgs,
}

/// `snowmelt fn new`.
#[derive(Debug, Args)]
#[command(after_help = NEW_EXAMPLES)]
pub struct NewArgs {
    /// The folder to make
    pub folder: PathBuf,
    /// What runs the code
    #[arg(long, value_enum, value_name = "NAME", default_value = "python")]
    pub runtime: RuntimeName,
}

/// `snowmelt fn show`.
#[derive(Debug, Args)]
#[command(after_help = SHOW_EXAMPLES)]
pub struct ShowFunctionArgs {
    /// Name of the function
    #[arg(value_parser = function_name)]
    pub name: FunctionName,
    /// Format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: ShowFormat,
    /// Which platform is asked.
    #[command(flatten, next_help_heading = "Platform")]
    pub platform: PlatformArgs,
}

/// Runtimes that the platform brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RuntimeName {
    // The platform's Python.
    Python,
    // Node.js.
    Node,
    // Java 17 or later.
    Java,
    // A program made with the Go package.
    Go,
}

impl From<RuntimeName> for Runtime {
    fn from(name: RuntimeName) -> Self {
        match name {
            RuntimeName::Python => Self::Python,
            RuntimeName::Node => Self::Node,
            RuntimeName::Java => Self::Java,
            RuntimeName::Go => Self::Go,
        }
    }
}

/// `snowmelt fn ls`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Format of the list
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: ListFormat,
    /// Which platform is asked.
    #[command(flatten, next_help_heading = "Platform")]
    pub platform: PlatformArgs,
}

/// `snowmelt fn call`.
#[derive(Debug, Args)]
#[command(after_help = CALL_EXAMPLES)]
pub struct CallArgs {
    /// Name of the function
    #[arg(value_parser = function_name)]
    pub name: FunctionName,
    /// The event as JSON, `@FILE`, or `-` for stdin [default: {}]
    #[arg(short, long, value_name = "JSON", allow_negative_numbers = true)]
    pub data: Option<String>,
    /// Print an id at once; `snowmelt fn result` has the answer later
    #[arg(long = "async", conflicts_with = "embedded")]
    pub asynchronous: bool,
    /// Which platform runs it.
    #[command(flatten, next_help_heading = "Platform")]
    pub platform: PlatformArgs,
}

/// `snowmelt fn burst`.
#[derive(Debug, Args)]
#[command(after_help = BURST_EXAMPLES)]
pub struct BurstArgs {
    /// Name of the function
    #[arg(value_parser = function_name)]
    pub name: FunctionName,
    /// How many
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), required_unless_present = "events")]
    pub functions: Option<u32>,
    /// The event of all as JSON, `@FILE`, or `-` for stdin [default: {}]
    #[arg(short, long, value_name = "JSON", allow_negative_numbers = true)]
    pub data: Option<String>,
    /// File with an event on each line, a function for each; `-` for stdin
    #[arg(long, value_name = "FILE", conflicts_with_all = ["functions", "data"])]
    pub events: Option<PathBuf>,
    /// Give them a network of their own, by which they talk
    #[arg(long)]
    pub network: bool,
    /// The most hosts to run them on [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub hosts: Option<u32>,
    /// How long all of them may take to start [default: 60s]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub start_within: Option<Duration>,
    /// Which platform runs them.
    #[command(flatten, next_help_heading = "Platform")]
    pub platform: PlatformArgs,
}

/// `snowmelt fn result`.
#[derive(Debug, Args)]
#[command(after_help = RESULT_EXAMPLES)]
pub struct ResultArgs {
    /// Id that `fn call --async` printed
    #[arg(value_name = "ID")]
    pub id: String,
    /// Wait until it has ended
    #[arg(long)]
    pub wait: bool,
    /// Use the server at this socket, and no other
    #[arg(long, value_name = "SOCKET", help_heading = "Platform")]
    pub server: Option<PathBuf>,
}

/// `snowmelt fn logs`.
#[derive(Debug, Args)]
#[command(after_help = LOGS_EXAMPLES)]
pub struct LogArgs {
    /// Name of the function
    #[arg(value_parser = function_name)]
    pub name: FunctionName,
    /// Only this call
    #[arg(long, value_name = "ID")]
    pub invocation: Option<String>,
    /// Only the last so many calls
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub tail: Option<u32>,
    /// Format: json is one object a line
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: LogFormat,
    /// Which platform is asked.
    #[command(flatten, next_help_heading = "Platform")]
    pub platform: PlatformArgs,
}

/// `snowmelt fn rm`.
#[derive(Debug, Args)]
pub struct RemoveArgs {
    /// Name of the function
    #[arg(value_parser = function_name)]
    pub name: FunctionName,
    /// Which platform forgets it.
    #[command(flatten, next_help_heading = "Platform")]
    pub platform: PlatformArgs,
}

/// Formats of logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    // The text as it was written, with a line before each call.
    #[default]
    Text,
    // One JSON object a line.
    Json,
}

fn function_name(text: &str) -> Result<FunctionName, String> {
    text.parse()
}

fn package_name(text: &str) -> Result<String, String> {
    let parsed = text.parse::<Reference>().map_err(|error| error.to_string())?;
    match parsed.digest {
        Some(_) => Err("a digest is what comes of it: give it a tag".to_owned()),
        None => Ok(text.to_owned()),
    }
}

pub(super) fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write NAME=VALUE".to_owned()),
    }
}
