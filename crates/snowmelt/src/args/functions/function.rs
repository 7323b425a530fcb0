//! The grammar of `snowmelt fn`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use snowmelt_api::Runtime;
use snowmelt_image::source::Reference;
use snowmelt_types::{ByteSize, CpuMillis, FunctionName, parse_duration};

use crate::args::values::function_name;
use crate::args::{EnvironmentArgs, ListFormat, PackageArgs, PlatformArgs, ShowFormat};

pub const EXAMPLES: &str = "\
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
  snowmelt fn deploy app app/                     a folder with app.py, and its requirements.txt
  snowmelt fn deploy app app:jobs.nightly:run     the function run of app/jobs/nightly.py
  snowmelt fn deploy hello handler.mjs            Node.js: export function handler(event)
  snowmelt fn deploy hello Hello.java --prewarmed 1  Java: public static Object handle(Map event)
  snowmelt fn deploy report report.sh             a script: stdin is the event, stdout the result
  snowmelt fn deploy hello ./hello --runtime go   a program built from the template of fn new
  snowmelt fn deploy thumb ./app --command './serve --fast' --root images/tools
  snowmelt fn deploy small ./app --command './serve' --image registry.example/tools:v1
  snowmelt fn deploy whole --image registry.example/app:v1     with the image's own command
  snowmelt fn deploy web web.py --image web:v1 --writable /var/lib/nginx
  snowmelt fn deploy score model.py --image registry.example/science:v1   with the image's Python
  snowmelt fn deploy score --packed registry.example/team/score:v1

Deploying an existing name replaces the function; calls in progress end with the old version.";

const PACK_EXAMPLES: &str = "\
Examples:
  snowmelt fn pack model.py score:v1
  snowmelt fn pack model.py:score registry.example/team/score:v1 --requirements requirements.txt
  snowmelt fn deploy score --packed registry.example/team/score:v1

Each wheel is one layer, shared by all packages that contain it. A package with a registry in its
name is pushed there, and each host fetches the blocks that its functions read.";

const NEW_EXAMPLES: &str = "\
Examples:
  snowmelt fn new hello --runtime node
  snowmelt fn new hello --runtime go && cd hello && CGO_ENABLED=0 go build -o handler .

The folder contains an example handler. The commands to run next are printed.";

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

const RESULT_EXAMPLES: &str = "\
Examples:
  snowmelt fn result i-0193… --wait

Exit code 3 means that the call is still running.";

const LOGS_EXAMPLES: &str = "\
Examples:
  snowmelt fn logs hello
  snowmelt fn logs hello --tail 1
  snowmelt fn logs hello --follow
  snowmelt fn logs hello --invocation i-0193…";

const RM_EXAMPLES: &str = "\
Examples:
  snowmelt fn rm hello";

/// `snowmelt fn`.
#[derive(Debug, Subcommand)]
pub enum FunctionCommand {
    /// Deploy a function written in Python, Node.js, Java, Go or shell, or any program
    Deploy(Box<DeployArgs>),
    /// Build a code package: Python code with its dependencies
    Pack(PackArgs),
    /// Create a folder with an example handler
    New(NewArgs),
    /// List the deployed functions
    #[command(after_help = LS_EXAMPLES)]
    Ls(ListArgs),
    /// Show a function with its limits
    Show(ShowFunctionArgs),
    /// Call a function and print its result
    Call(CallArgs),
    /// Run many instances of a function concurrently, across all hosts
    Burst(crate::args::BurstArgs),
    /// Get the result of an asynchronous call
    Result(ResultArgs),
    /// Print the output of a function
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
    /// File or folder with the code, and name of the handler [default: handler; in Java the class]
    #[arg(value_name = "PATH[:HANDLER]", required_unless_present_any = ["packed", "image"])]
    pub code: Option<String>,

    /// Memory limit of an instance [default: 512MiB]
    #[arg(long, value_name = "SIZE", help_heading = "Resources")]
    pub memory: Option<ByteSize>,
    /// CPU limit of an instance, for example 500m or 1.5 [default: 1]
    #[arg(long, value_name = "CORES", help_heading = "Resources")]
    pub cpu: Option<CpuMillis>,
    /// Time limit of one call [default: 60s]
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = "Resources")]
    pub timeout: Option<Duration>,
    /// Maximum number of concurrent instances; further calls wait [default: 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Resources")]
    pub instances: Option<u32>,
    /// Concurrent calls per instance, for thread-safe code [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000), help_heading = "Resources")]
    pub concurrency: Option<u32>,
    /// Number of instances to keep prewarmed [default: 0]
    #[arg(long, value_name = "N", help_heading = "Resources")]
    pub prewarmed: Option<u32>,
    /// How long an idle instance is kept [default: 60s]
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = "Resources")]
    pub idle: Option<Duration>,
    /// How long the results of asynchronous calls are kept [default: 24h]
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = "Resources")]
    pub keep: Option<Duration>,
    /// Size limit of /tmp and of writable folders together [default: 64MiB]
    #[arg(long, value_name = "SIZE", help_heading = "Resources")]
    pub scratch: Option<ByteSize>,
    /// Folder of the image in which instances may write: a copy, which counts to --scratch
    /// (repeatable)
    #[arg(long, value_name = "FOLDER", help_heading = "Resources")]
    pub writable: Vec<PathBuf>,
    /// Maximum number of processes and threads of an instance [default: 64]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Resources")]
    pub pids: Option<u32>,
    /// Maximum number of open files of a process [default: 1024]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(16..), help_heading = "Resources")]
    pub open_files: Option<u64>,
    /// How much of the output of each call is kept [default: 1MiB]
    #[arg(long, value_name = "SIZE", help_heading = "Resources")]
    pub log: Option<ByteSize>,

    /// Runtime of the code [default: by the extension of the file, else python]
    #[arg(
        long,
        value_enum,
        value_name = "NAME",
        conflicts_with = "command",
        help_heading = "Code"
    )]
    pub runtime: Option<RuntimeName>,
    /// Run this program, which implements the protocol of docs/reference/runtimes.md; `./x` is in
    /// the code
    #[arg(long, value_name = "WORDS", help_heading = "Code")]
    pub command: Option<String>,
    /// Code package with the code and its dependencies (made by snowmelt fn pack)
    #[arg(
        long,
        value_name = "PACKAGE",
        conflicts_with_all = ["code", "runtime", "command", "image", "root", "packages", "requirements", "python"],
        help_heading = "Code"
    )]
    pub packed: Option<String>,
    /// Run in this block image, by default with its own command; blocks are fetched when read
    #[arg(long, value_name = "IMAGE", conflicts_with = "root", help_heading = "Code")]
    pub image: Option<String>,
    /// Run in this folder, an unpacked image, instead of the host's file system
    #[arg(long, value_name = "FOLDER", help_heading = "Code")]
    pub root: Option<PathBuf>,
    /// File or folder that the function reads: PATH, or PATH:NAME to give it another name
    /// (repeatable)
    #[arg(long = "file", value_name = "PATH[:NAME]", help_heading = "Code")]
    pub files: Vec<OsString>,
    /// Secret by reference: the server reads it from a variable (NAME=env:VARIABLE) or from a file
    /// of its folder of secrets (NAME=file:FILE)
    #[arg(long = "secret", value_name = "NAME=REFERENCE", help_heading = "Code")]
    pub secrets: Vec<String>,
    /// The environment variables of the function.
    #[command(flatten, next_help_heading = "Code")]
    pub environment: EnvironmentArgs,
    /// The packages that the function needs.
    #[command(flatten, next_help_heading = "Code")]
    pub needs: PackageArgs,

    /// The platform to deploy to.
    #[command(flatten, next_help_heading = "Platform")]
    pub platform: PlatformArgs,
}

/// `snowmelt fn pack`.
#[derive(Debug, Args)]
#[command(after_help = PACK_EXAMPLES)]
pub struct PackArgs {
    /// Python file, and the name of the handler [default: handler]
    #[arg(value_name = "PATH[:HANDLER]")]
    pub code: String,
    /// Name on this platform, or in a registry, to which it is pushed
    #[arg(value_name = "PACKAGE", value_parser = package_name)]
    pub name: String,
    /// The packages that it needs.
    #[command(flatten)]
    pub needs: PackageArgs,
    /// The platform that builds it.
    #[command(flatten, next_help_heading = "Platform")]
    pub platform: PlatformArgs,
}

/// `snowmelt fn new`.
#[derive(Debug, Args)]
#[command(after_help = NEW_EXAMPLES)]
pub struct NewArgs {
    /// Folder to create
    pub folder: PathBuf,
    /// Runtime of the code
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
    /// Show the values of environment variables, too
    #[arg(long)]
    pub values: bool,
    /// Format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: ShowFormat,
    /// The platform to query.
    #[command(flatten, next_help_heading = "Platform")]
    pub platform: PlatformArgs,
}

/// Runtimes that the platform provides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RuntimeName {
    // The platform's Python.
    Python,
    // Node.js.
    Node,
    // Java 17 or later.
    Java,
    // A program built with the Go package.
    Go,
    // A script for a shell, which the platform's Python runs.
    Shell,
}

impl From<RuntimeName> for Runtime {
    fn from(name: RuntimeName) -> Self {
        match name {
            RuntimeName::Python | RuntimeName::Shell => Self::Python,
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
    /// The platform to query.
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
    /// Print an id without waiting; `snowmelt fn result` gets the result later
    #[arg(long = "async", conflicts_with = "embedded")]
    pub asynchronous: bool,
    /// The platform that runs it.
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
    /// Wait until the call has ended
    #[arg(long)]
    pub wait: bool,
    /// Use only the server at this socket
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
    /// Only the last N calls
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub tail: Option<u32>,
    /// Go on until Ctrl-C: print what calls write as they end
    #[arg(short, long, conflicts_with = "embedded")]
    pub follow: bool,
    /// Format; json prints one object per line
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: LogFormat,
    /// The platform to query.
    #[command(flatten, next_help_heading = "Platform")]
    pub platform: PlatformArgs,
}

/// `snowmelt fn rm`.
#[derive(Debug, Args)]
pub struct RemoveArgs {
    /// Name of the function
    #[arg(value_parser = function_name)]
    pub name: FunctionName,
    /// The platform to remove it from.
    #[command(flatten, next_help_heading = "Platform")]
    pub platform: PlatformArgs,
}

/// Formats of logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    // The text as it was written, with a line before each call.
    #[default]
    Text,
    // One JSON object per line.
    Json,
}

fn package_name(text: &str) -> Result<String, String> {
    let parsed = text.parse::<Reference>().map_err(|error| error.to_string())?;
    match parsed.digest {
        Some(_) => Err("a package name has a tag, not a digest".to_owned()),
        None => Ok(text.to_owned()),
    }
}
