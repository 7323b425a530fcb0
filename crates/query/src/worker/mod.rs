//! What runs inside a worker's sandbox: takes tasks, runs their partitions, posts the results.
//!
//! A worker opens no path and starts no process. It has a listening socket; the node connects for
//! each task and sends descriptors for files and UDFs, then the plan, then the task. Nothing that
//! costs memory or time is made before the first task.
//!
//! The results of partition `p` follow a schema frame whose metadata says `p`. Batches of several
//! partitions may alternate; each change is announced by a schema frame.

mod executor;
mod inbox;
mod memory;
mod metrics;
mod outbox;
mod panics;
mod task;

use std::os::unix::net::{UnixListener, UnixStream};
use std::process::ExitCode;

pub(crate) use memory::PeakPool;
pub(crate) use metrics::operators;
pub(crate) use outbox::partition_of;

/// Serves tasks, one at a time, until the listener fails. For the binary's `internal worker`.
pub fn serve(listener: UnixListener) -> ExitCode {
    loop {
        match listener.accept() {
            Ok((socket, _)) => serve_connection(socket),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => (),
            Err(error) => {
                tracing::error!(%error, "the worker cannot accept connections");
                return ExitCode::FAILURE;
            }
        }
    }
}

/// Serves the one task of a connection. A connection that ends early cancels its task. Whatever
/// happens, the worker can take the next one.
pub fn serve_connection(socket: UnixStream) {
    if let Err(error) = task::answer(socket) {
        // The node is gone or broke the protocol: there is nobody left to tell.
        tracing::warn!(%error, "a task's connection failed");
    }
}
