//! The worker, in its sandbox: receives tasks, runs their partitions and posts the results. A
//! connection may also request it to drive a whole query (`drive`), to remove the objects of one that
//! ended early (`clean`), or to parse a statement that defines a function (`define`).
//!
//! A worker opens no path and starts no process. It has a listening socket; the node connects for
//! each task and sends descriptors for files and UDFs, then the plan, then the task. Nothing that
//! costs memory or time is created before the first task.
//!
//! The results of partition `p` follow a schema frame whose metadata contains `p`. Batches of
//! several partitions may alternate; a schema frame precedes each change.

mod clean;
mod damage;
mod define;
mod drive;
mod executor;
mod huge_pages;
mod inbox;
mod memory;
mod metrics;
mod narrow;
mod outbox;
mod scratch;
mod short;
mod sink;
mod stores;
mod task;
mod watch;

use std::os::unix::net::{UnixListener, UnixStream};
use std::process::ExitCode;

use snowmelt_wire::{FrameStream, Kind};

pub(crate) use memory::PeakPool;
pub(crate) use metrics::operators;
pub(crate) use outbox::partition_of;
use watch::Watcher;

/// The stack size of every thread that plans, decodes or runs a plan. An expression of thousands of
/// terms is an equally deep tree, and most code that traverses it recurses. Only touched pages use
/// memory.
pub(crate) const STACK_BYTES: usize = 512 << 20;

/// Serves tasks, one at a time, until the listener fails. The main loop of `snowmelt-query`, whose
/// first thread watches the tasks that the second one runs.
pub fn serve(listener: UnixListener) -> ExitCode {
    huge_pages::turn_off();
    let (watcher, watch) = watch::pair();
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
    let (watcher, watch) = watch::pair();
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
        Kind::Drive => drive::answer(&first, descriptors, stream),
        Kind::Clean => clean::answer(&first, stream),
        Kind::Definition => define::answer(&first, stream),
        _ => task::answer((first, descriptors), stream, watcher),
    }
}
