//! What one host has of the gangs of one query: the room of their tasks, and the ends of the streams.
//!
//! Room is reserved for all of its tasks at once or for none, and never waited for. Each task takes
//! its own when it starts; what none has taken is given back with the gang.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use snowmelt_wire::{GangTask, TaskAsk};

use super::messages::GangPart;
use super::stream_ends::{KeptEnds, StreamEnds, StreamStore, Streams};
use crate::query_room::TaskRoom;
use crate::runner::QueryRunner;
use crate::task_room::Needs;

/// The gangs of one query on a host.
#[derive(Debug)]
pub(crate) struct GangParts {
    // By gang, and by task: those that have not started.
    members: Mutex<HashMap<u64, HashMap<u32, Member>>>,
    ends: KeptEnds,
}

/// What a task has before it starts.
#[derive(Debug)]
struct Member {
    udfs: Vec<String>,
    network: bool,
    room: TaskRoom,
}

impl GangParts {
    pub fn new(store: &Arc<StreamStore>, query: &str) -> Self {
        Self { members: Mutex::default(), ends: store.keep(query) }
    }

    /// The ends of the streams.
    pub fn ends(&self) -> &StreamEnds {
        self.ends.all()
    }

    /// Reserves room for all tasks of a gang on this host. False if there is none for all of them.
    pub fn reserve(&self, runner: &QueryRunner, part: &GangPart) -> bool {
        let needs = |task| {
            let GangTask { udfs, network, .. }: &GangTask = task;
            Needs { udfs, spec: runner.worker_spec(*network) }
        };
        let needs: Vec<_> = part.tasks.iter().map(needs).collect();
        let Some(rooms) = runner.gang_room(&needs) else { return false };
        let member = |(task, room): (&GangTask, TaskRoom)| {
            let GangTask { task, udfs, network, .. } = task;
            (*task, Member { udfs: udfs.clone(), network: *network, room })
        };
        self.ends().begin(part.gang, part.tasks.iter().map(|task| task.task));
        let members = part.tasks.iter().zip(rooms).map(member).collect();
        let before = self.lock().insert(part.gang, members);
        put_back(before);
        true
    }

    /// What a task has, which starts now; `None` if it is not one of the gang, or needs something
    /// else than was reserved.
    pub fn take(&self, gang: u64, ask: &TaskAsk) -> Option<(TaskRoom, Streams)> {
        let member = self.lock().get_mut(&gang)?.remove(&ask.task)?;
        let streams = self.ends().take(gang, ask.task);
        if member.udfs != ask.udfs || member.network == ask.s3.is_empty() {
            member.room.put_back();
            return None;
        }
        Some((member.room, streams))
    }

    /// A gang is over.
    pub fn end(&self, gang: u64) {
        self.ends().end(gang);
        let members = self.lock().remove(&gang);
        put_back(members);
    }

    /// All gangs are over.
    pub fn end_all(&self) {
        self.ends().end_all();
        let all = std::mem::take(&mut *self.lock());
        put_back(all.into_values());
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, HashMap<u32, Member>>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn put_back(gangs: impl IntoIterator<Item = HashMap<u32, Member>>) {
    gangs.into_iter().flatten().for_each(|(_, member)| member.room.put_back());
}
