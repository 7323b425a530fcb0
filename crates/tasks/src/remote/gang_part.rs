//! The reservations of the gangs of one query on one host: the room of their tasks, and the ends of
//! the streams.
//!
//! Room is reserved for all tasks of a gang on the host at once or for none, and no gang waits for
//! room. Each task takes its own room when it starts; room that no task has taken is given back
//! with the gang.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use snowmelt_wire::{GangTask, TaskAsk};

use crate::peers::messages::GangPart;
use crate::peers::stream_ends::{KeptEnds, StreamEnds, StreamStore, Streams};
use crate::runner::{Needs, QueryRunner, TaskRoom};

/// The gangs of one query on a host.
#[derive(Debug)]
pub(crate) struct GangParts {
    // By gang, and by task: those that have not started.
    members: Mutex<HashMap<u64, HashMap<u32, GangMember>>>,
    ends: KeptEnds,
}

/// The reservation of a task that has not started.
#[derive(Debug)]
struct GangMember {
    udfs: Vec<String>,
    network: bool,
    room: TaskRoom,
}

impl GangParts {
    pub fn new(store: &Arc<StreamStore>, query: &str) -> Self {
        Self { members: Mutex::default(), ends: store.keep(query) }
    }

    /// Returns the ends of the streams.
    pub fn ends(&self) -> &StreamEnds {
        self.ends.all()
    }

    /// Reserves room for all tasks of a gang on this host. False if there is no room for all of
    /// them.
    pub fn reserve(&self, runner: &QueryRunner, part: &GangPart) -> bool {
        let needs = |task| {
            let GangTask { udfs, network, .. }: &GangTask = task;
            Needs { udfs, spec: runner.worker_spec(*network) }
        };
        let needs: Vec<_> = part.tasks.iter().map(needs).collect();
        let Some(rooms) = runner.gang_room(&needs) else { return false };
        let member = |(task, room): (&GangTask, TaskRoom)| {
            let GangTask { task, udfs, network, .. } = task;
            (*task, GangMember { udfs: udfs.clone(), network: *network, room })
        };
        self.ends().begin(part.gang, part.tasks.iter().map(|task| task.task));
        let members = part.tasks.iter().zip(rooms).map(member).collect();
        let before = self.lock().insert(part.gang, members);
        put_back(before);
        true
    }

    /// Takes the reservation of a task, which starts now; `None` if the task is not in the gang, or
    /// needs something else than was reserved.
    pub fn take(&self, gang: u64, ask: &TaskAsk) -> Option<(TaskRoom, Streams)> {
        let member = self.lock().get_mut(&gang)?.remove(&ask.task)?;
        let streams = self.ends().take(gang, ask.task);
        if member.udfs != ask.udfs || member.network == ask.s3.is_empty() {
            member.room.put_back();
            return None;
        }
        Some((member.room, streams))
    }

    /// Ends a gang that is over, and gives its room back.
    pub fn end(&self, gang: u64) {
        self.ends().end(gang);
        let members = self.lock().remove(&gang);
        put_back(members);
    }

    /// Ends all gangs, and gives their room back.
    pub fn end_all(&self) {
        self.ends().end_all();
        let all = std::mem::take(&mut *self.lock());
        put_back(all.into_values());
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, HashMap<u32, GangMember>>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn put_back(gangs: impl IntoIterator<Item = HashMap<u32, GangMember>>) {
    gangs.into_iter().flatten().for_each(|(_, member)| member.room.put_back());
}
