//! Serves one task, from its connection to its last frame.

use std::io;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Instant;

use snowmelt_kernel::memory::{self, KeepFree};
use snowmelt_types::{ErrorReport, Report};
use snowmelt_wire::{Frame, FrameStream, Result, TaskDone};

use super::executor::{DataFusionExecutor, Executor};
use super::inbox;
use super::outbox::Outbox;
use super::watch::{WatchedTask, Watcher};
use crate::process::process_cpu;

/// Receives the task of a connection whose first frame is given, runs it and sends the results. An
/// error means that the connection is broken.
pub fn answer(
    first: (Frame, Vec<OwnedFd>),
    mut stream: FrameStream,
    watcher: &Watcher,
) -> Result<()> {
    let began = Instant::now();
    let cpu = process_cpu();
    let outbox = Arc::new(Outbox::new(stream.try_clone()?));
    let inbox = match inbox::receive(first, &mut stream) {
        Ok(inbox) => inbox,
        Err(error) => {
            outbox.failure(error.report(), Vec::new())?;
            return Err(error);
        }
    };
    let limit = inbox.task.memory_bytes;
    let (executor, ran) = match DataFusionExecutor::prepare(inbox) {
        Ok(executor) => {
            let executor = Arc::new(executor);
            let ran = run(&executor, &outbox, stream.into_inner(), watcher);
            (Some(executor), ran)
        }
        Err(report) => (None, Err(report)),
    };
    // What is dropped from here on, the next task needs again.
    let kept = KeepFree::begin();
    let sent = match (executor, ran) {
        (Some(executor), Ok(())) => {
            let (rows, output) = executor.output();
            outbox.done(&TaskDone {
                progress: executor.progress(),
                rows: outbox.rows() + rows,
                output,
                peak_reserved_bytes: executor.peak_reserved(),
                wall_nanos: began.elapsed().as_nanos() as u64,
                cpu_nanos: process_cpu().saturating_sub(cpu).as_nanos() as u64,
                operators: executor.operators(),
                udfs: executor.udfs(),
            })
        }
        (executor, Err(report)) => {
            let lost = executor.map(|executor| executor.lost_outputs());
            outbox.failure(*report, lost.unwrap_or_default())
        }
        (None, Ok(())) => Ok(()),
    };
    make_room(limit);
    drop(kept);
    sent
}

/// Returns free memory to the kernel, if what the allocator keeps could make the next task reach the
/// limit of the sandbox. To get it again costs time.
fn make_room(limit: u64) {
    // The peak, which costs less to ask for, counts the pages of this program too.
    if memory::peak_resident() > limit / 4 * 3 && is_much(memory::anonymous(), limit) {
        memory::release_free_of_mimalloc();
    }
}

/// Whether a worker holds much of the limit between two tasks. Memory that cannot be told may be.
fn is_much(held: io::Result<u64>, limit: u64) -> bool {
    held.map_or(true, |held| held > limit / 4)
}

/// Runs the program while another thread reports progress and waits for the end of the connection.
fn run(
    executor: &Arc<DataFusionExecutor>,
    outbox: &Arc<Outbox>,
    socket: UnixStream,
    watcher: &Watcher,
) -> Result<(), Box<ErrorReport>> {
    // Not a second descriptor: where there is none left, nothing would end the watch.
    let connection = Arc::new(socket);
    let socket = Arc::clone(&connection);
    let task =
        WatchedTask { executor: Arc::clone(executor) as _, outbox: Arc::clone(outbox), socket };
    watcher.during(task, || {
        let ran = executor.run(outbox);
        _ = connection.shutdown(Shutdown::Read);
        ran
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_makes_room_when_it_holds_much_of_its_limit() {
        assert!(!is_much(Ok(1 << 20), 16 << 20));
        assert!(is_much(Ok(5 << 20), 16 << 20));
        assert!(is_much(Err(io::ErrorKind::NotFound.into()), 1 << 30));
    }
}
