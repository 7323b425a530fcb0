//! The service of the program `snowmelt-query`: answers the connections of the platform, one at a
//! time.
//!
//! A connection has a task of a query (`worker`), or requests this process to drive a whole query
//! (`driver_process`), to remove the objects of one that ended early (`clean`), or to parse a statement that
//! defines a function (`define`). The process opens no path: it has a listening socket, to which the
//! platform connects for each of these.

mod clean;
mod define;

use std::os::unix::net::{UnixListener, UnixStream};
use std::process::ExitCode;

use snowmelt_execute::worker::{self, STACK_BYTES, Watcher, turn_off_huge_pages, watch_pair};
use snowmelt_wire::{FrameStream, Kind};

use crate::driver_process;

/// Serves tasks, one at a time, until the listener fails. The main loop of `snowmelt-query`, whose
/// first thread watches the tasks that the second one runs.
pub fn serve(listener: UnixListener) -> ExitCode {
    turn_off_huge_pages();
    let (watcher, watch) = watch_pair();
    let serving = std::thread::Builder::new().stack_size(STACK_BYTES);
    match serving.spawn(move || accept(&listener, &watcher)) {
        Ok(serving) => {
            watch.run();
            serving.join().unwrap_or(ExitCode::FAILURE)
        }
        Err(error) => {
            tracing::error!(%error, "the worker cannot start its thread");
            ExitCode::FAILURE
        }
    }
}

fn accept(listener: &UnixListener, watcher: &Watcher) -> ExitCode {
    loop {
        match listener.accept() {
            Ok((socket, _)) => serve_watched(socket, watcher),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => (),
            Err(error) => {
                tracing::error!(%error, "the worker cannot accept connections");
                return ExitCode::FAILURE;
            }
        }
    }
}

/// Serves the task or the query of a connection. A connection that ends early cancels its task.
/// After any failure the worker can serve the next connection.
pub fn serve_connection(socket: UnixStream) {
    let (watcher, watch) = watch_pair();
    std::thread::scope(|scope| {
        scope.spawn(|| watch.run());
        serve_watched(socket, &watcher);
        drop(watcher);
    });
}

fn serve_watched(socket: UnixStream, watcher: &Watcher) {
    if let Err(error) = answer(socket, watcher) {
        // The node closed the connection or violated the protocol: no error can be sent.
        tracing::warn!(%error, "a task's connection failed");
    }
}

fn answer(socket: UnixStream, watcher: &Watcher) -> snowmelt_wire::Result<()> {
    let mut stream = FrameStream::new(socket);
    let (first, descriptors) = stream.receive_with()?;
    match first.kind {
        Kind::Drive => driver_process::answer(&first, descriptors, stream),
        Kind::Clean => clean::answer(&first, stream),
        Kind::Definition => define::answer(&first, stream),
        _ => worker::answer((first, descriptors), stream, watcher),
    }
}
