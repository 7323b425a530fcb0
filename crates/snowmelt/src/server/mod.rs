//! `snowmelt up`, `down` and `status`, and the server processes behind them.
//!
//! | member | job |
//! |---|---|
//! | here | `down` and `status` |
//! | `daemon` | `up`: a server in the background |
//! | `serve` | a server in this process |
//! | `health` | checks of a server that runs |
//! | `certificates` | the certificate of a server that runs |
//! | `log_file` | the log of a server in the background |
//! | `spans` | export of spans |
//! | `processes` | the processes that Snowmelt starts from its own binary |

mod certificates;
mod daemon;
mod health;
mod log_file;
pub mod processes;
mod serve;
pub mod spans;

use std::path::Path;
use std::time::{Duration, Instant};

use snowmelt_api::{ShutdownRequest, Status};
use snowmelt_control::client::ApiClient;
use snowmelt_types::{ByteSize, Code, ErrorReport};

use crate::args::{DownArgs, ShowFormat, StatusArgs};
use crate::config::Config;
use crate::output::list;
use crate::platform::{self, CommandPlatform};
use crate::terminal::{CommandFailure, CommandOutcome, Printer, printer, text};

pub use daemon::{detach, up};
pub use health::{checks, of_user};
pub use serve::{background, foreground, private, set_umask};

/// The server's default grace time for running work.
const GRACE: Duration = Duration::from_secs(10);
/// The time for which `down` waits for the server to exit, beyond the grace time.
const EXIT_TIMEOUT: Duration = Duration::from_secs(20);
/// The text that is shown where images have no trees.
pub const NO_TREES: &str =
    "trees are off (images.trees): each host reads images from the registry by itself";
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Stops the server after the grace time for running work, and waits until it exits.
///
/// # Errors
/// `SM-0503` if it refuses the connection, `SM-0901` if it does not exit.
pub fn down(args: &DownArgs, config: &Config, printer: Printer) -> CommandOutcome {
    if !platform::answers(&config.socket.value)? {
        printer.note("no server is running");
        return Ok(0);
    }
    // That of this machine, also where commands use another one.
    let server = CommandPlatform::server(Some(&config.socket.value), config)?;
    platform::with(server, printer, async |client, signals| {
        let pid = client.status().await?.pid;
        let grace_ms = args.grace.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        client.shutdown(&ShutdownRequest { grace_ms }).await?;
        signals.waiting_for("the server to exit");
        wait_for_exit(pid, EXIT_TIMEOUT + args.grace.unwrap_or(GRACE)).await
    })?;
    printer.note("the server has stopped");
    Ok(0)
}

async fn wait_for_exit(pid: u32, within: Duration) -> Result<(), ErrorReport> {
    let began = Instant::now();
    while is_alive(pid) {
        if began.elapsed() > within {
            let message = format!("the server (pid {pid}) did not exit");
            return Err(ErrorReport::new(Code::INTERNAL, message)
                .hint(format!("kill -9 {pid}: the next start cleans up")));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

// A zombie has no executable: reading the link of one fails.
fn is_alive(pid: u32) -> bool {
    std::fs::read_link(format!("/proc/{pid}/exe")).is_ok()
}

/// Shows the running server.
///
/// # Errors
/// `SM-0503` if none is running.
pub fn status(args: &StatusArgs, config: &Config, printer: Printer) -> CommandOutcome {
    let asked =
        platform::with(CommandPlatform::server(None, config)?, printer, async |client, _| {
            client.status().await
        });
    let status = asked.map_err(|failure| explain_unreachable(failure, None, config))?;
    let shown = match args.output {
        ShowFormat::Json => list::json(&status)?,
        ShowFormat::Table => lines(&status),
    };
    printer::print(&shown)?;
    Ok(0)
}

/// Replaces a connection error by a message that no server is running.
pub fn explain_unreachable(
    failure: CommandFailure,
    server: Option<&Path>,
    config: &Config,
) -> CommandFailure {
    let is_remote = server.is_none() && config.remote.url.is_some();
    if is_remote || failure.report.code != Code::SERVER_UNREACHABLE.code {
        return failure;
    }
    let socket = server.unwrap_or(&config.socket.value);
    let message = format!("no server is running at {}", socket.display());
    ErrorReport::new(Code::SERVER_UNREACHABLE, message).hint("start one with `snowmelt up`").into()
}

fn lines(status: &Status) -> String {
    let pool = |[busy, idle]: [u32; 2]| format!("{} ({busy} busy, {idle} idle)", busy + idle);
    let rows = [
        ("version", status.version.clone()),
        ("pid", status.pid.to_string()),
        ("started", text::ago(status.started_ms)),
        ("socket", status.socket.clone()),
        ("memory", ByteSize(status.memory_bytes).to_string()),
        ("queries", status.queries.to_string()),
        ("workers", pool(status.workers)),
        ("instances", pool(status.instances)),
        ("zygotes", status.zygotes.to_string()),
        ("functions", status.functions.to_string()),
        ("spawner", health::of_spawner(&status.spawner)),
    ];
    let pool = status.pool.is_elastic.then(|| ("pool", health::of_pool(&status.pool)));
    let images = (!status.image_trees).then(|| ("images", NO_TREES.to_owned()));
    let store = (!status.store.is_empty()).then(|| ("store", status.store.clone()));
    let certificate = status.certificate.as_ref();
    let certificate = certificate.map(|of| ("tls", certificates::words(of)));
    rows.iter()
        .chain(&pool)
        .chain(&images)
        .chain(&store)
        .chain(&certificate)
        .map(|(name, value)| format!("{name:<10} {value}\n"))
        .collect()
}

/// Waits until a newly started server responds.
async fn ready(client: &ApiClient) -> Status {
    loop {
        if let Ok(status) = client.status().await {
            return status;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
