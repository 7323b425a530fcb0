//! The processes that Snowmelt starts from its own binary: `snowmelt internal NAME`.
//!
//! They are dispatched first, because every command that finds no server waits for their start.

use std::ffi::OsString;
use std::process::ExitCode;

use snowmelt_node::DaemonUser;
use snowmelt_telemetry::Settings;
use tracing_subscriber::EnvFilter;

use super::spans;
use crate::args::{Cli, ErrorForm, ProgressMode};
use crate::config::Config;
use crate::env;
use crate::server;
use crate::terminal::{CommandOutcome, Printer};

/// Runs an internal command; `None` if the command line has none.
pub fn run(typed: &[OsString]) -> Option<ExitCode> {
    let [_, internal, name, ..] = typed else { return None };
    if internal != "internal" {
        return None;
    }
    match name.to_str()? {
        "spawner" => {
            Some(snowmelt_sandbox::spawner_main(typed.get(3).and_then(|text| text.to_str())))
        }
        "broker" => Some(snowmelt_control::server::broker_main()),
        "images" => Some(daemon(&typed[3..], snowmelt_node::image_daemon_main)),
        "networks" => Some(daemon(&typed[3..], snowmelt_node::network_daemon_main)),
        "daemon" => Some(exit_code(server::detach())),
        "serve" => Some(exit_code(serve())),
        _ => None,
    }
}

/// Sends the log to stderr, and records spans if they are exported. `SNOWMELT_LOG` overrides the
/// default filter of the log.
pub fn log(default: &str, spans: Option<Settings>) {
    let filter = env::text(env::LOG).unwrap_or_else(|| default.to_owned());
    let filter = EnvFilter::builder().parse_lossy(filter);
    if let Some(settings) = spans {
        return spans::record(settings, filter);
    }
    // Installing a second subscriber fails; the first one stays.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .try_init();
}

/// Runs a daemon of one node. `numbers` are those of the user and group that the daemon becomes, if a
/// broker has started it.
fn daemon(numbers: &[OsString], run: fn(Option<DaemonUser>) -> ExitCode) -> ExitCode {
    log("warn", None);
    let number = |text: &OsString| text.to_str().and_then(|text| text.parse().ok());
    match numbers {
        [] => run(None),
        [user, group] => match (number(user), number(group)) {
            (Some(user), Some(group)) => run(Some(DaemonUser { user, group })),
            _ => ExitCode::FAILURE,
        },
        _ => ExitCode::FAILURE,
    }
}

fn serve() -> CommandOutcome {
    let config = Config::load(&Cli::server())?;
    log("info", spans::settings(&config)?);
    server::background(&config, printer())
}

fn exit_code(outcome: CommandOutcome) -> ExitCode {
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
