//! Watches a task while another thread runs it: reports its progress, and cancels it when its
//! connection ends.
//!
//! One thread watches all tasks of a process, one after the other: to start a thread and end it was a
//! sixth of the processor time of a short task.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::executor::Executor;
use super::huge_pages;
use super::outbox::Outbox;

/// Interval between progress reports.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);

/// Time after which the memory of a task is first looked at; then after twice the time, until
/// [`PROGRESS_EVERY`].
const FIRST_LOOK: Duration = Duration::from_millis(8);

/// A task that runs.
pub(super) struct WatchedTask {
    pub executor: Arc<dyn Executor>,
    pub outbox: Arc<Outbox>,
    /// The task's connection, whose reading side the thread that runs the task shuts down at the
    /// end.
    pub socket: Arc<UnixStream>,
}

/// A task, and what is dropped when it is no longer watched.
type WatchJob = (WatchedTask, Sender<()>);

/// Passes tasks to the thread that watches them.
pub struct Watcher {
    jobs: Sender<WatchJob>,
}

/// Watches the tasks that a [`Watcher`] passes on.
pub struct TaskMonitor {
    jobs: Receiver<WatchJob>,
}

/// Creates both ends of a channel of tasks: the one that passes them on, and the one that watches
/// them.
pub fn pair() -> (Watcher, TaskMonitor) {
    let (sender, receiver) = mpsc::channel();
    (Watcher { jobs: sender }, TaskMonitor { jobs: receiver })
}

impl Watcher {
    /// Has a task watched while `run` runs it; returns when it is no longer watched.
    pub(super) fn during<T>(&self, task: WatchedTask, run: impl FnOnce() -> T) -> T {
        let (watching, ended) = mpsc::channel();
        // Without the other thread, which ends only with this process, a task runs unwatched.
        drop(self.jobs.send((task, watching)));
        let ran = run();
        // Fails when the other end is dropped, which is what it waits for.
        _ = ended.recv();
        ran
    }
}

impl TaskMonitor {
    /// Watches each task until the watcher is dropped.
    pub fn run(self) {
        for (task, watching) in self.jobs {
            watch(task.executor.as_ref(), &task.outbox, &task.socket);
            // The thread that ran the task drops it last: the memory is its own.
            drop(task);
            drop(watching);
        }
    }
}

/// Reports progress until the connection ends, and then cancels the task, unless it has ended.
fn watch(executor: &dyn Executor, outbox: &Outbox, socket: &UnixStream) {
    let mut pause = FIRST_LOOK;
    let mut reported = Instant::now();
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
