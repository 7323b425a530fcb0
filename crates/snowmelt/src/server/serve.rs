//! The server processes: in the foreground, in the background, or for one client.
//!
//! Invariant: a server is announced as ready only once it has answered a request.

use std::fs::File;
use std::future::Future;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use rustix::fs::Mode;
use snowmelt_api::Status;
use snowmelt_control::client::ApiClient;
use snowmelt_control::server::Launch;
use snowmelt_types::{Code, ErrorReport};
use tokio_util::sync::CancellationToken;

use super::{log_file, spans};
use crate::config::Config;
use crate::platform;
use crate::terminal::{CommandFailure, CommandOutcome, Printer, Signals};

/// `snowmelt up --foreground`.
///
/// # Errors
/// The errors of [`Launch`].
pub fn foreground(config: &Config, printer: Printer) -> CommandOutcome {
    set_umask();
    refuse_second(config)?;
    let launch = Launch::prepare(platform::server_settings(config)?)?;
    let served = serve(launch, printer, std::future::pending(), move |status| {
        printer.note(&format!("serving at {} (Ctrl-C stops it)", status.socket));
        Ok(())
    });
    begin_again(served, config)
}

/// The background process of `snowmelt up`: announces itself on stdout, then closes the pipe.
///
/// # Errors
/// The errors of [`Launch`]; `snowmelt up` reads the error from the log.
pub fn background(config: &Config, printer: Printer) -> CommandOutcome {
    set_umask();
    let launch = Launch::prepare(platform::server_settings(config)?)?;
    let served = serve(launch, printer, std::future::pending(), |status| {
        log_file::keep_bounded(&config.state.value)?;
        announce(status)?;
        // `snowmelt up` waits until this pipe is closed.
        snowmelt_kernel::fds::duplicate_to(
            File::options().write(true).open("/dev/null")?.as_fd(),
            1,
        )?;
        Ok(())
    });
    begin_again(served, config)
}

/// Executes the program once more if the server has ended because another control leads: it stands
/// by then. A server that has given up root cannot, and leaves that to its supervisor.
fn begin_again(served: CommandOutcome, config: &Config) -> CommandOutcome {
    let Err(failure) = &served else { return served };
    if failure.report.known_code() != Code::LEADER_OTHER || config.user.is_some() {
        return served;
    }
    let program = std::env::current_exe().unwrap_or_else(|_| "/proc/self/exe".into());
    let error = Command::new(program).args(std::env::args_os().skip(1)).exec();
    tracing::error!(%error, "the server cannot begin again to stand by");
    served
}

/// `snowmelt serve --private`: a server that runs until its stdin is closed.
///
/// # Errors
/// The errors of [`Launch`].
pub fn private(config: &Config, printer: Printer) -> CommandOutcome {
    set_umask();
    let launch = Launch::prepare(platform::embedded_settings(config)?)?;
    serve(launch, printer, end_of_stdin(), announce)
}

/// Replaces the inherited umask: only the server's user may write its files, and sandboxes can
/// read the files that are mounted in them.
pub fn set_umask() {
    rustix::process::umask(Mode::from_raw_mode(0o022));
}

/// Refuses to start if a server is running.
///
/// # Errors
/// `SM-0504`.
pub fn refuse_second(config: &Config) -> Result<(), ErrorReport> {
    let socket = &config.socket.value;
    if !platform::answers(socket)? {
        return Ok(());
    }
    let message = format!("a server is already running at {}", socket.display());
    Err(ErrorReport::new(Code::SERVER_RUNNING, message)
        .hint("`snowmelt status` shows it, `snowmelt down` stops it"))
}

fn serve(
    launch: Launch,
    printer: Printer,
    end: impl Future<Output = ()>,
    ready: impl FnOnce(&Status) -> std::io::Result<()>,
) -> CommandOutcome {
    let runtime = platform::server_runtime()?;
    let spans = spans::start();
    let socket = launch.socket().to_owned();
    let served = runtime.block_on(async {
        let signals = Signals::listen(printer)?;
        let shutdown = CancellationToken::new();
        let serving = async {
            let served = launch.serve(shutdown.clone()).await;
            // One that fails before it serves is never announced.
            shutdown.cancel();
            served
        };
        let watching = watch(socket, &signals, &shutdown, end, ready);
        let (served, ()) = tokio::join!(serving, watching);
        served
    });
    runtime.shutdown_background();
    spans::end(spans);
    served.map(|()| 0).map_err(CommandFailure::from)
}

/// Announces the server, and stops it on `end`, a signal or a shutdown request.
async fn watch(
    socket: PathBuf,
    signals: &Signals,
    shutdown: &CancellationToken,
    end: impl Future<Output = ()>,
    ready: impl FnOnce(&Status) -> std::io::Result<()>,
) {
    let announced = async {
        let status = super::ready(&ApiClient::new(socket)).await;
        // The process that started this server has exited.
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

/// A thread reads stdin, because a runtime cannot cancel a blocking read of a pipe.
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
