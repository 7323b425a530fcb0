//! The grammar of `snowmelt run`.

use std::time::Duration;

use clap::Args;
use snowmelt_types::{ByteSize, CpuMillis, parse_duration};

use crate::args::{EnvironmentArgs, PackageArgs, PlatformArgs};

const EXAMPLES: &str = "\
Examples:
  snowmelt run hello.py                          the file has def handler(event)
  snowmelt run hello.py --data '{\"name\": \"Ada\"}'
  snowmelt run images.py:resize --package pillow==11.* --data @event.json
  snowmelt run handler.mjs

The result is JSON on stdout; what the function prints is on stderr. Nothing stays deployed.";

/// `snowmelt run`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct RunArgs {
    /// File with the code, and the name of the handler [default: handler; in Java the class]
    #[arg(value_name = "PATH[:HANDLER]")]
    pub code: String,
    /// The event as JSON, `@FILE`, or `-` for stdin [default: {}]
    #[arg(short, long, value_name = "JSON", allow_negative_numbers = true)]
    pub data: Option<String>,
    /// Memory limit [default: 512MiB]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<ByteSize>,
    /// CPU limit, for example 500m or 1.5 [default: 1]
    #[arg(long, value_name = "CORES")]
    pub cpu: Option<CpuMillis>,
    /// Time limit of the call [default: 60s]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub timeout: Option<Duration>,
    /// The environment variables of the function.
    #[command(flatten)]
    pub environment: EnvironmentArgs,
    /// The packages that the function needs.
    #[command(flatten)]
    pub needs: PackageArgs,
    /// The platform that runs the function.
    #[command(flatten, next_help_heading = "Platform")]
    pub platform: PlatformArgs,
}
