//! The processes that serve: in the foreground, in the background, or for one client.
//!
//! Invariant: who started a server is told that it is ready only once it answered a request.

use std::fs::File;
use std::future::Future;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;

use rustix::fs::Mode;
use snowmelt_api::Status;
use snowmelt_control::client::Client;
use snowmelt_control::server::Launch;
use snowmelt_types::{Code, ErrorReport};
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::failure::{Failure, Outcome};
use crate::platform;
use crate::printer::Printer;
use crate::signals::Signals;

/// `snowmelt up --foreground`.
///
/// # Errors
/// What [`Launch`] gives.
pub fn foreground(config: &Config, printer: Printer) -> Outcome {
    usual_modes();
    refuse_second(config)?;
    let launch = Launch::prepare(platform::server_settings(config)?)?;
    serve(launch, printer, std::future::pending(), move |status| {
        printer.note(&format!("serving at {} (Ctrl-C ends it)", status.socket));
        Ok(())
    })
}

/// The background process of `snowmelt up`: tells its starter over stdout, then lets go of it.
///
/// # Errors
/// What [`Launch`] gives; the starter finds it in the log.
pub fn background(config: &Config, printer: Printer) -> Outcome {
    usual_modes();
    let launch = Launch::prepare(platform::server_settings(config)?)?;
    serve(launch, printer, std::future::pending(), |status| {
        announce(status)?;
        // The starter waits for the end of this pipe.
        snowmelt_kernel::fds::duplicate_to(
            File::options().write(true).open("/dev/null")?.as_fd(),
            1,
        )?;
        Ok(())
    })
}

/// `snowmelt serve --private`: a server that lives as long as whoever holds its stdin.
///
/// # Errors
/// What [`Launch`] gives.
pub fn private(config: &Config, printer: Printer) -> Outcome {
    usual_modes();
    let launch = Launch::prepare(platform::embedded_settings(config)?)?;
    serve(launch, printer, end_of_stdin(), announce)
}

/// Whatever the umask of whoever starts it: what it makes is written by itself alone, and what
/// sandboxes are shown can be read in them.
pub fn usual_modes() {
    rustix::process::umask(Mode::from_raw_mode(0o022));
}

/// Refuses to start where a server answers.
///
/// # Errors
/// `SM-0504`.
pub fn refuse_second(config: &Config) -> Result<(), ErrorReport> {
    let socket = &config.socket.value;
    if !platform::answers(socket)? {
        return Ok(());
    }
    let message = format!("a server is running already at {}", socket.display());
    Err(ErrorReport::new(Code::SERVER_RUNNING, message)
        .hint("`snowmelt status` shows it, `snowmelt down` ends it"))
}

fn serve(
    launch: Launch,
    printer: Printer,
    end: impl Future<Output = ()>,
    ready: impl FnOnce(&Status) -> std::io::Result<()>,
) -> Outcome {
    let runtime = platform::server_runtime()?;
    let socket = launch.socket().to_owned();
    let served = runtime.block_on(async {
        let signals = Signals::listen(printer)?;
        let shutdown = CancellationToken::new();
        let serving = launch.serve(shutdown.clone());
        let watching = watch(socket, &signals, &shutdown, end, ready);
        let (served, ()) = tokio::join!(serving, watching);
        served
    });
    runtime.shutdown_background();
    served.map(|()| 0).map_err(Failure::from)
}

/// Announces the server, and ends it when it is time.
async fn watch(
    socket: PathBuf,
    signals: &Signals,
    shutdown: &CancellationToken,
    end: impl Future<Output = ()>,
    ready: impl FnOnce(&Status) -> std::io::Result<()>,
) {
    let announced = async {
        let status = super::ready(&Client::new(socket)).await;
        // Nobody waits for this server any more.
        if ready(&status).is_err() {
            shutdown.cancel();
        }
        end.await;
    };
    tokio::select! {
        () = announced => {}
        () = signals.token().cancelled() => {}
        () = shutdown.cancelled() => {}
    }
    signals.waiting_for("the sandboxes to end");
    shutdown.cancel();
}

fn announce(status: &Status) -> std::io::Result<()> {
    let line = serde_json::json!({ "socket": status.socket, "pid": status.pid });
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

/// A thread reads stdin, because a read of a pipe cannot be taken back from a runtime.
fn end_of_stdin() -> impl Future<Output = ()> {
    let ended = CancellationToken::new();
    let reader = ended.clone();
    std::thread::spawn(move || {
        let mut ignored = [0; 256];
        while matches!(std::io::stdin().read(&mut ignored), Ok(count) if count > 0) {}
        reader.cancel();
    });
    async move { ended.cancelled().await }
}
