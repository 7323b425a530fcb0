//! The processes that Snowmelt starts of itself: `snowmelt internal NAME`.
//!
//! They are dispatched before anything else happens, because a worker's start is on the path of
//! every cold query.

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
        "worker" => Some(worker()),
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

/// Serves the socket that the spawner bound before this sandbox existed.
fn worker() -> ExitCode {
    log("warn");
    match snowmelt_kernel::fds::inherited(snowmelt_sandbox::CHANNEL_FD) {
        Ok(channel) => snowmelt_query::worker::serve(channel.into()),
        Err(error) => {
            eprintln!("snowmelt worker: there is no channel: {error}");
            ExitCode::FAILURE
        }
    }
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
