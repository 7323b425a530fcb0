//! Serves one task, from its connection to its last frame.

use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use snowmelt_kernel::memory;
use snowmelt_types::{ErrorReport, Report};
use snowmelt_wire::{Frame, FrameStream, Result, TaskDone};

use super::executor::{DataFusionExecutor, Executor};
use super::outbox::Outbox;
use super::{huge_pages, inbox};
use crate::cpu::process_cpu;

/// Interval between progress reports.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);

/// When the memory of a task is first looked at; then after twice the time, until [`PROGRESS_EVERY`].
const FIRST_LOOK: Duration = Duration::from_millis(8);

/// Receives the task of a connection whose first frame is given, runs it and sends the results. An
/// error means that the connection is broken.
pub(super) fn answer(first: (Frame, Vec<OwnedFd>), mut stream: FrameStream) -> Result<()> {
    let (began, cpu) = (Instant::now(), process_cpu());
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
            let ran = run(&executor, &outbox, stream.socket());
            (Some(executor), ran)
        }
        Err(report) => (None, Err(report)),
    };
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
    sent
}

/// Returns free memory to the kernel, if this worker has had so much that the next task could reach
/// the limit of the sandbox with what the allocator keeps. A worker with more room keeps it: to get
/// it again costs time.
fn make_room(limit: u64) {
    if memory::peak_resident() > limit / 4 * 3 {
        memory::release_free_of_mimalloc();
    }
}

/// Runs the program while another thread reports progress and waits for the end of the connection. It
/// ends with the run.
fn run(
    executor: &DataFusionExecutor,
    outbox: &Arc<Outbox>,
    socket: &UnixStream,
) -> Result<(), Box<ErrorReport>> {
    std::thread::scope(|scope| {
        scope.spawn(|| watch(executor, outbox, socket));
        let ran = executor.run(outbox);
        _ = socket.shutdown(Shutdown::Read);
        ran
    })
}

/// Reports progress until the connection ends, and then cancels the task, unless it has ended.
fn watch(executor: &DataFusionExecutor, outbox: &Outbox, socket: &UnixStream) {
    let (mut pause, mut reported) = (FIRST_LOOK, Instant::now());
    while is_open(socket, pause) {
        huge_pages::turn_on_if_large();
        pause = (pause * 2).min(PROGRESS_EVERY);
        if reported.elapsed() < PROGRESS_EVERY {
            continue;
        }
        reported = Instant::now();
        if outbox.progress(&executor.progress()).is_err() {
            break;
        }
    }
    executor.cancel();
}

/// Whether a connection has not ended after this time. The node sends nothing more, so anything that
/// can be read means the end.
fn is_open(socket: &UnixStream, within: Duration) -> bool {
    let within = Timespec::try_from(within).ok();
    let mut watched = [PollFd::new(socket, PollFlags::IN)];
    matches!(poll(&mut watched, within.as_ref()), Ok(0) | Err(Errno::INTR))
}
