//! The gangs of one query: tasks that stream rows to each other, so that they run at the same time on
//! this host.
//!
//! Room and connections of all tasks are made together, before the first one starts. Each task takes
//! its own; what none has taken is gone with the gang. Nothing that is streamed passes through this
//! process, and what is on its way is bounded by the buffers of the sockets.

use std::collections::{BTreeSet, HashMap};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::net::sockopt::set_socket_send_buffer_size;
use snowmelt_types::{Code, ErrorReport};
use snowmelt_wire::{Failed, GangAsk, GangTask, MAX_STREAMS, TaskAsk};

use super::scope::refused;
use crate::query_room::TaskRoom;
use crate::runner::QueryRunner;
use crate::task_room::Needs;

/// The buffers of all streams of one task that sends, and those of one stream at least and at most.
/// The kernel gives twice as much, and counts it for the worker that sends.
const SENT_BYTES: usize = 8 << 20;
const LEAST_BYTES: usize = 16 << 10;
const MOST_BYTES: usize = 128 << 10;

/// The streams of a task, each with the task at its other end.
pub(super) type Streams = Vec<(u32, OwnedFd)>;

/// The gangs of one query.
#[derive(Debug, Default)]
pub(super) struct Gangs {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    gangs: HashMap<u64, Gang>,
}

#[derive(Debug)]
struct Gang {
    streams: usize,
    /// Those that have not started.
    members: HashMap<u32, Member>,
}

/// What a task of a gang has before it starts.
#[derive(Debug)]
struct Member {
    asked: GangTask,
    room: TaskRoom,
    streams: Streams,
}

impl Gangs {
    /// Reserves room for all tasks of a gang, and connects them. `None` if there is no room for all of
    /// them now.
    pub fn reserve(&self, runner: &QueryRunner, ask: &GangAsk) -> Result<Option<u64>, Failed> {
        check(ask)?;
        let streams = ask.streams();
        let mut state = self.lock();
        if state.gangs.values().map(|gang| gang.streams).sum::<usize>() + streams > MAX_STREAMS {
            return Ok(None);
        }
        let tasks = || ask.senders.iter().chain(&ask.receivers);
        let needs = |task| {
            let GangTask { udfs, network, .. }: &GangTask = task;
            Needs { udfs, spec: runner.worker_spec(*network) }
        };
        let Some(rooms) = runner.gang_room(&tasks().map(needs).collect::<Vec<_>>()) else {
            return Ok(None);
        };
        let mut sockets = match connect(ask) {
            Ok(sockets) => sockets,
            Err(error) => {
                rooms.into_iter().for_each(TaskRoom::put_back);
                let message = format!("tasks could not be connected: {error}");
                return Err(Failed::of(ErrorReport::new(Code::STORAGE, message)));
            }
        };
        let members = tasks().zip(rooms).map(|(asked, room)| {
            let streams = sockets.remove(&asked.task).unwrap_or_default();
            (asked.task, Member { asked: asked.clone(), room, streams })
        });
        let gang = Gang { streams, members: members.collect() };
        let number = state.next;
        state.next += 1;
        state.gangs.insert(number, gang);
        Ok(Some(number))
    }

    /// What a task of a gang has, which starts now.
    pub fn take(&self, gang: u64, ask: &TaskAsk) -> Result<(TaskRoom, Streams), Failed> {
        let mut state = self.lock();
        let members = state.gangs.get_mut(&gang).map(|gang| &mut gang.members);
        let member = members.and_then(|members| members.remove(&ask.task));
        drop(state);
        let Some(Member { asked, room, streams }) = member else {
            return Err(refused("it ran a task of a gang that does not have it"));
        };
        if asked.udfs != ask.udfs || asked.network == ask.s3.is_empty() {
            return Err(refused("a task of a gang needs something else than was reserved"));
        }
        Ok((room, streams))
    }

    /// A gang is over.
    pub fn disband(&self, gang: u64) {
        let gang = self.lock().gangs.remove(&gang);
        let members = gang.into_iter().flat_map(|gang| gang.members.into_values());
        members.for_each(|member| member.room.put_back());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn check(ask: &GangAsk) -> Result<(), Failed> {
    let all = ask.senders.iter().chain(&ask.receivers).map(|task| task.task);
    let distinct: BTreeSet<u32> = all.collect();
    let is_right = distinct.len() == ask.senders.len() + ask.receivers.len()
        && (1..=MAX_STREAMS).contains(&ask.streams());
    match is_right {
        true => Ok(()),
        false => Err(refused("it asked for a gang that no query has")),
    }
}

/// A socket pair for each task that sends and each that receives; the ends by task.
fn connect(ask: &GangAsk) -> std::io::Result<HashMap<u32, Streams>> {
    let bytes = (SENT_BYTES / ask.receivers.len().max(1)).clamp(LEAST_BYTES, MOST_BYTES);
    let mut ends: HashMap<u32, Streams> = HashMap::new();
    for sender in ask.senders.iter().map(|task| task.task) {
        for receiver in ask.receivers.iter().map(|task| task.task) {
            let (near, far) = UnixStream::pair()?;
            set_socket_send_buffer_size(&near, bytes)?;
            ends.entry(sender).or_default().push((receiver, near.into()));
            ends.entry(receiver).or_default().push((sender, far.into()));
        }
    }
    Ok(ends)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    fn tasks(numbers: std::ops::Range<u32>) -> Vec<GangTask> {
        numbers.map(|task| GangTask { task, ..GangTask::default() }).collect()
    }

    #[test]
    fn each_sender_is_connected_with_each_receiver() {
        let ask = GangAsk { senders: tasks(0..2), receivers: tasks(2..5) };
        let mut ends = connect(&ask).unwrap();
        for sender in 0..2 {
            for (receiver, socket) in ends.remove(&sender).unwrap() {
                UnixStream::from(socket).write_all(&[sender as u8, receiver as u8]).unwrap();
            }
        }
        for receiver in 2..5_u32 {
            let streams = ends.remove(&receiver).unwrap();
            assert_eq!(streams.iter().map(|(sender, _)| *sender).collect::<Vec<_>>(), [0, 1]);
            for (sender, socket) in streams {
                let mut found = Vec::new();
                UnixStream::from(socket).read_to_end(&mut found).unwrap();
                assert_eq!(found, [sender as u8, receiver as u8]);
            }
        }
        assert!(ends.is_empty());
    }

    #[test]
    fn a_gang_has_some_tasks_of_each_kind_and_each_once() {
        check(&GangAsk { senders: tasks(0..32), receivers: tasks(32..64) }).unwrap();
        for (senders, receivers) in [(0..0, 0..1), (0..1, 0..0), (0..2, 1..3), (0..33, 33..66)] {
            assert!(
                check(&GangAsk { senders: tasks(senders), receivers: tasks(receivers) }).is_err()
            );
        }
    }
}
