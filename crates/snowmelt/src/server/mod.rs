//! `snowmelt up`, `down` and `status`, and the server processes behind them.

mod daemon;
mod health;
mod serve;

use std::path::Path;
use std::time::{Duration, Instant};

use snowmelt_api::{ShutdownRequest, Status};
use snowmelt_control::client::Client;
use snowmelt_types::{ByteSize, Code, ErrorReport};

use crate::args::{DownArgs, ShowFormat, StatusArgs};
use crate::config::Config;
use crate::failure::{Failure, Outcome};
use crate::platform::{self, Platform};
use crate::printer::{self, Printer};
use crate::{list, text};

pub use daemon::{detach, up};
pub use health::check;
pub use serve::{background, foreground, private, usual_modes};

/// What a server gives to what runs where nothing is said.
const GRACE: Duration = Duration::from_secs(10);
/// How long `down` waits beyond that for the server to be gone.
const ENDS_WITHIN: Duration = Duration::from_secs(20);
const ASKED_EVERY: Duration = Duration::from_millis(20);

/// Ends the server, once what runs has had its time, and waits until it is gone.
///
/// # Errors
/// `SM-0503` where it refuses us, `SM-0901` where it does not end.
pub fn down(args: &DownArgs, config: &Config, printer: Printer) -> Outcome {
    if !platform::answers(&config.socket.value)? {
        printer.note("no server is running");
        return Ok(0);
    }
    platform::with(Platform::server(None, config), printer, async |client, signals| {
        let pid = client.status().await?.pid;
        let grace_ms = args.grace.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        client.shutdown(&ShutdownRequest { grace_ms }).await?;
        signals.waiting_for("the server to end");
        until_gone(pid, ENDS_WITHIN + args.grace.unwrap_or(GRACE)).await
    })?;
    printer.note("the server has ended");
    Ok(0)
}

async fn until_gone(pid: u32, within: Duration) -> Result<(), ErrorReport> {
    let began = Instant::now();
    while is_alive(pid) {
        if began.elapsed() > within {
            let message = format!("the server (pid {pid}) did not end");
            return Err(ErrorReport::new(Code::INTERNAL, message)
                .hint(format!("kill -9 {pid}: the next start cleans up what is left")));
        }
        tokio::time::sleep(ASKED_EVERY).await;
    }
    Ok(())
}

// A process that ended and was not reaped yet has no executable any more.
fn is_alive(pid: u32) -> bool {
    std::fs::read_link(format!("/proc/{pid}/exe")).is_ok()
}

/// Shows the running server.
///
/// # Errors
/// `SM-0503` where none is running.
pub fn status(args: &StatusArgs, config: &Config, printer: Printer) -> Outcome {
    let asked = platform::with(Platform::server(None, config), printer, async |client, _| {
        client.status().await
    });
    let status = asked.map_err(|failure| explained(failure, &config.socket.value))?;
    let shown = match args.output {
        ShowFormat::Json => list::json(&status)?,
        ShowFormat::Table => lines(&status),
    };
    printer::print(&shown)?;
    Ok(0)
}

/// Says plainly that there is no server.
pub fn explained(failure: Failure, socket: &Path) -> Failure {
    if failure.report.code != Code::SERVER_UNREACHABLE.code {
        return failure;
    }
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
    rows.iter().map(|(name, value)| format!("{name:<10} {value}\n")).collect()
}

/// Waits until a server answers that was started just now.
async fn ready(client: &Client) -> Status {
    loop {
        if let Ok(status) = client.status().await {
            return status;
        }
        tokio::time::sleep(ASKED_EVERY).await;
    }
}
