//! The processes that Snowmelt starts of itself: `snowmelt internal NAME`.
//!
//! They are dispatched before anything else happens, because the start of a server is on the path
//! of every command that finds none.

use std::ffi::OsString;
use std::process::ExitCode;

use tracing_subscriber::EnvFilter;

use crate::args::{Cli, ErrorForm, ProgressMode};
use crate::config::Config;
use crate::failure::Outcome;
use crate::printer::Printer;
use crate::{env, server};

/// Runs the internal command if that is what was asked for.
pub fn run(typed: &[OsString]) -> Option<ExitCode> {
    let [_, internal, name, ..] = typed else { return None };
    if internal != "internal" {
        return None;
    }
    match name.to_str()? {
        "spawner" => Some(snowmelt_sandbox::spawner_main()),
        "images" => Some(images()),
        "daemon" => Some(ended(server::detach())),
        "serve" => Some(ended(serve())),
        _ => None,
    }
}

/// Sends the log to stderr, with `SNOWMELT_LOG` over this default.
pub fn log(default: &str) {
    let filter = env::text(env::LOG).unwrap_or_else(|| default.to_owned());
    // A second subscriber is refused; the first one stays.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::builder().parse_lossy(filter))
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .try_init();
}

/// Mounts images and serves their blocks, for one node.
fn images() -> ExitCode {
    log("warn");
    snowmelt_node::image_daemon_main()
}

fn serve() -> Outcome {
    log("info");
    let config = Config::load(&Cli::server())?;
    server::background(&config, printer())
}

fn ended(outcome: Outcome) -> ExitCode {
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
