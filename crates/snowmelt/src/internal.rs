//! The processes that Snowmelt starts from its own binary: `snowmelt internal NAME`.
//!
//! They are dispatched first, because every command that finds no server waits for their start.

use std::ffi::OsString;
use std::process::ExitCode;

use tracing_subscriber::EnvFilter;

use crate::args::{Cli, ErrorForm, ProgressMode};
use crate::config::Config;
use crate::failure::Outcome;
use crate::printer::Printer;
use crate::{env, server};

/// Runs an internal command; `None` if the command line has none.
pub fn run(typed: &[OsString]) -> Option<ExitCode> {
    let [_, internal, name, ..] = typed else { return None };
    if internal != "internal" {
        return None;
    }
    match name.to_str()? {
        "spawner" => Some(snowmelt_sandbox::spawner_main()),
        "images" => Some(images()),
        "daemon" => Some(exit_code(server::detach())),
        "serve" => Some(exit_code(serve())),
        _ => None,
    }
}

/// Sends the log to stderr. `SNOWMELT_LOG` overrides the default filter.
pub fn log(default: &str) {
    let filter = env::text(env::LOG).unwrap_or_else(|| default.to_owned());
    // Installing a second subscriber fails; the first one stays.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::builder().parse_lossy(filter))
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .try_init();
}

/// Runs the image daemon of one node, which mounts images and serves their blocks.
fn images() -> ExitCode {
    log("warn");
    snowmelt_node::image_daemon_main()
}

fn serve() -> Outcome {
    log("info");
    let config = Config::load(&Cli::server())?;
    server::background(&config, printer())
}

fn exit_code(outcome: Outcome) -> ExitCode {
    outcome.map_or_else(
        |failure| {
            printer().error(&failure.report);
            ExitCode::from(failure.exit)
        },
        ExitCode::from,
    )
}

// `up` reads the error from the log.
fn printer() -> Printer {
    Printer::new(ErrorForm::Json, ProgressMode::Quiet)
}
