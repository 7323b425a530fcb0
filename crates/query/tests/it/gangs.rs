//! The gangs of the runner in this process: real socket pairs, with tasks that are killed while rows
//! are on their way.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use snowmelt_query::PlannedTask;
use snowmelt_wire::GangAsk;
use tokio::sync::Notify;

type Streams = Vec<(u32, OwnedFd)>;

/// The gangs of a query.
#[derive(Default)]
pub struct Gangs {
    /// There is room for no gang.
    pub full: bool,
    /// The task that is killed once one of its streams has carried so many bytes.
    pub kill: Option<(u32, usize)>,
    /// The first task that sends reaches none that receives, although it runs and is not told.
    pub apart: bool,
    /// Its ends of streams that go nowhere.
    pub held: Mutex<Vec<UnixStream>>,
    /// Gangs so far, and those that were not disbanded.
    pub begun: AtomicU32,
    pub live: AtomicU32,
    /// Bytes that all streams have carried.
    pub carried: Arc<Mutex<u64>>,
    pub ends: Mutex<BTreeMap<(u64, u32), Streams>>,
    pub dying: Arc<Notify>,
}

impl Gangs {
    pub fn reserve(&self, ask: &GangAsk) -> Option<u64> {
        if self.full {
            return None;
        }
        let gang = u64::from(self.begun.fetch_add(1, Ordering::SeqCst));
        self.live.fetch_add(1, Ordering::SeqCst);
        let mut ends = self.ends.lock().unwrap();
        for sender in ask.senders.iter().map(|task| task.task) {
            for receiver in ask.receivers.iter().map(|task| task.task) {
                let is_apart = self.apart && sender == ask.senders[0].task;
                let (near, far) = match is_apart {
                    true => self.apart(),
                    false => self.connection(sender, receiver),
                };
                ends.entry((gang, sender)).or_default().push((receiver, near.into()));
                ends.entry((gang, receiver)).or_default().push((sender, far.into()));
            }
        }
        Some(gang)
    }

    pub fn disband(&self, gang: u64) {
        self.live.fetch_sub(1, Ordering::SeqCst);
        self.ends.lock().unwrap().retain(|(it, _), _| *it != gang);
    }

    /// The streams of a task.
    pub fn take(&self, gang: u64, task: u32) -> Streams {
        self.ends.lock().unwrap().remove(&(gang, task)).unwrap()
    }

    /// Ends when a task is to be killed.
    pub async fn killed(&self, task: &PlannedTask) {
        match self.kill {
            Some((kill, _)) if kill == task.task && task.gang.is_some() => {
                self.dying.notified().await;
            }
            _ => std::future::pending().await,
        }
    }

    /// Two ends that are not connected. Who writes to the first one waits, and the second is closed.
    fn apart(&self) -> (UnixStream, UnixStream) {
        let (mut near, reading) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        while near.write(&[0; 4096]).is_ok() {}
        near.set_nonblocking(false).unwrap();
        self.held.lock().unwrap().push(reading);
        (near, UnixStream::pair().unwrap().1)
    }

    /// Two ends of a stream. What goes through it is counted.
    fn connection(&self, sender: u32, receiver: u32) -> (UnixStream, UnixStream) {
        let (near, mut reading) = UnixStream::pair().unwrap();
        let (mut writing, far) = UnixStream::pair().unwrap();
        let limit = self.kill.filter(|(task, _)| [sender, receiver].contains(task));
        let limit = limit.map_or(usize::MAX, |(_, bytes)| bytes);
        let dying = Arc::clone(&self.dying);
        let total = Arc::clone(&self.carried);
        std::thread::spawn(move || {
            let mut buffer = vec![0; 64 << 10];
            let mut carried = 0;
            loop {
                let most = buffer.len().min(limit - carried);
                if most == 0 {
                    // Its worker is killed: this breaks all of its streams.
                    dying.notify_one();
                    return;
                }
                match reading.read(&mut buffer[..most]) {
                    Ok(bytes) if bytes > 0 && writing.write_all(&buffer[..bytes]).is_ok() => {
                        carried += bytes;
                        *total.lock().unwrap() += bytes as u64;
                    }
                    _ => return,
                }
            }
        });
        (near, far)
    }
}
