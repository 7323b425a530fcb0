//! The hosts on which the tasks of a gang run. The tasks are spread by cores over the hosts that
//! can be used now, like other tasks; tasks that send come before tasks that receive.
//!
//! The gang waits for hosts that are opening their sessions as long as other tasks do.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use snowmelt_types::HostName;
use snowmelt_wire::{GangAsk, GangTask};

use super::starts::Starts;
use crate::driver_service::hosts::{HostChoice, QueryCluster, SessionOpening, TaskCount};
use crate::peers::messages::{GangLinks, GangPart, ReceiversAt, RelativeHost};
use crate::remote::pass_on::buffer_bytes;
use crate::remote::session::Session;

/// The interval at which hosts that are opening a session are looked at again.
const LOOKED_AGAIN: Duration = Duration::from_millis(100);

/// The slot of each task of a gang.
#[derive(Debug)]
pub(super) struct GangSlots(HashMap<u32, GangSlot>);

/// The host on which a task of a gang runs.
#[derive(Debug)]
pub(super) struct GangSlot {
    pub host: GangHost,
    /// The count of the task on its host.
    pub counted: TaskCount,
}

/// A host of a gang.
#[derive(Clone, Debug)]
pub(super) enum GangHost {
    /// Control's own host, on which the query's driver runs.
    Here,
    /// Another host, and the address at which its agent listens.
    There(Arc<Session>, SocketAddr),
}

/// The result of a search for a task's slot.
enum SlotSearch {
    Slot(GangSlot),
    /// A host that is opening its session; the task is counted there, so that other tasks get other
    /// hosts.
    Soon(TaskCount),
}

/// The hosts that a gang does without.
#[derive(Debug, Default)]
pub(super) struct Without {
    pub here: bool,
    pub others: BTreeSet<HostName>,
    /// Hosts that lack files of the gang, and may still run its tasks that read no files.
    pub for_files: BTreeSet<HostName>,
}

impl Without {
    fn excludes(&self, choice: &HostChoice, task: &GangTask) -> bool {
        match choice {
            HostChoice::Here => self.here,
            HostChoice::There(peer) => {
                let name = peer.name();
                let lacks_files = !task.files.is_empty() && self.for_files.contains(&name);
                self.others.contains(&name) || lacks_files
            }
        }
    }
}

impl GangSlots {
    /// Finds a slot for each task of a gang; `None` if one of them may run on no host.
    pub async fn of(cluster: &QueryCluster, ask: &GangAsk, without: &Without) -> Option<Self> {
        loop {
            let changed = cluster.changed().notified();
            tokio::pin!(changed);
            // Before the look, so that no session that opens after it is missed.
            changed.as_mut().enable();
            let mut slots = HashMap::new();
            let mut soon = Vec::new();
            for task in ask.senders.iter().chain(&ask.receivers) {
                match slot(cluster, task, without)? {
                    SlotSearch::Slot(slot) => drop(slots.insert(task.task, slot)),
                    SlotSearch::Soon(counted) => soon.push(counted),
                }
            }
            if soon.is_empty() {
                return Some(Self(slots));
            }
            drop((slots, soon));
            tokio::select! {
                () = changed => {}
                () = tokio::time::sleep(LOOKED_AGAIN) => {}
            }
        }
    }

    /// Gives all slots their places among all work of the cluster. False if a host has no room for
    /// its part; the host is added to `without`, so that the next try leaves it out.
    pub fn place(&mut self, starts: &Starts<'_>, ask: &GangAsk, without: &mut Without) -> bool {
        let (Some(peers), Some(own)) = (starts.cluster.peers(), starts.cluster.own_name()) else {
            return true;
        };
        let mut in_kept_room = starts.runner.kept_room_is_free();
        let mut placed = Vec::new();
        for task in ask.senders.iter().chain(&ask.receivers) {
            let Some(slot) = self.0.get(&task.task) else { continue };
            let name = slot.host.name();
            // The first of this host runs in the room that the query keeps.
            if name.is_none() && std::mem::take(&mut in_kept_room) {
                continue;
            }
            placed.push((task.task, starts.needs(&task.udfs), name.unwrap_or(&own).clone()));
        }
        let needs = placed.iter().map(|(_, needs, host)| (needs.clone(), host.clone())).collect();
        match peers.tasks(needs) {
            Ok(places) => {
                for ((task, ..), place) in placed.iter().zip(places) {
                    if let Some(GangSlot { host, counted }) = self.0.remove(task) {
                        self.0.insert(*task, GangSlot { host, counted: counted.at(Some(place)) });
                    }
                }
                true
            }
            Err(host) if host == own => {
                without.here = true;
                false
            }
            Err(host) => {
                without.others.insert(host);
                false
            }
        }
    }

    /// Takes the slot of a task, which starts now.
    pub fn take(&mut self, task: u32) -> Option<GangSlot> {
        self.0.remove(&task)
    }

    /// Returns the hosts of the gang, each with its tasks.
    pub fn parts(&self, gang: u64, ask: &GangAsk) -> Vec<(GangHost, GangPart)> {
        let mut parts = BTreeMap::new();
        for task in ask.senders.iter().chain(&ask.receivers) {
            let Some(GangSlot { host, .. }) = self.0.get(&task.task) else { continue };
            let empty = || (host.clone(), GangPart { gang, tasks: Vec::new() });
            let (_, part) = parts.entry(host.name()).or_insert_with(empty);
            part.tasks.push(task.clone());
        }
        parts.into_values().collect()
    }

    /// Returns the streams from the tasks on the host `from`; `None` is this host.
    pub fn links(&self, gang: u64, ask: &GangAsk, from: Option<&HostName>) -> GangLinks {
        let host = |task: &GangTask| self.0.get(&task.task).map(|slot| &slot.host);
        let is_there = |task: &&GangTask| host(task).is_some_and(|host| host.name() == from);
        let senders = ask.senders.iter().filter(is_there).map(|task| task.task).collect();
        let mut receivers = BTreeMap::new();
        for task in &ask.receivers {
            let Some(host) = host(task) else { continue };
            let empty = || ReceiversAt { at: host.seen_from(from), tasks: Vec::new() };
            receivers.entry(host.name()).or_insert_with(empty).tasks.push(task.task);
        }
        let receivers = receivers.into_values().collect();
        GangLinks { gang, senders, receivers, buffer_bytes: buffer_bytes(ask.receivers.len()) }
    }
}

impl GangHost {
    fn name(&self) -> Option<&HostName> {
        match self {
            Self::Here => None,
            Self::There(session, _) => Some(session.name()),
        }
    }

    fn seen_from(&self, from: Option<&HostName>) -> RelativeHost {
        match self {
            _ if self.name() == from => RelativeHost::Here,
            Self::Here => RelativeHost::Control,
            Self::There(session, address) => {
                RelativeHost::Host { name: session.name().clone(), address: *address }
            }
        }
    }
}

/// Finds the best host for a task; the slots that other tasks already have are counted.
fn slot(cluster: &QueryCluster, task: &GangTask, without: &Without) -> Option<SlotSearch> {
    cluster.gang_choices(task).into_iter().find_map(|choice| {
        if without.excludes(&choice, task) {
            return None;
        }
        let host = match &choice {
            HostChoice::Here => GangHost::Here,
            HostChoice::There(peer) => match cluster.session(peer) {
                SessionOpening::Session(session) => GangHost::There(session, peer.address()?),
                SessionOpening::Soon => return Some(SlotSearch::Soon(cluster.count(&choice))),
                SessionOpening::Later | SessionOpening::Never => return None,
            },
        };
        Some(SlotSearch::Slot(GangSlot { host, counted: cluster.count(&choice) }))
    })
}

#[cfg(test)]
mod tests {
    use snowmelt_wire::FileGrant;
    use tokio::sync::Notify;

    use super::*;
    use crate::remote::fake::{FakePeer, FakePeers, open, order};

    fn gang(senders: u32, receivers: u32) -> GangAsk {
        let task = |task| GangTask { task, ..GangTask::default() };
        let receivers = (senders..senders + receivers).map(task).collect();
        GangAsk { senders: (0..senders).map(task).collect(), receivers }
    }

    /// Returns the names of the hosts with their tasks, those that send before those that receive.
    fn spread(slots: &GangSlots, ask: &GangAsk) -> Vec<(String, Vec<u32>)> {
        let parts = slots.parts(1, ask).into_iter();
        let name = |host: &GangHost| host.name().map_or("here", HostName::as_str).to_owned();
        parts
            .map(|(host, part)| (name(&host), part.tasks.iter().map(|task| task.task).collect()))
            .collect()
    }

    #[tokio::test]
    async fn each_host_gets_tasks_that_send_and_tasks_that_receive() {
        let (peer, mut connections) = FakePeer::new("other").await;
        let peers = Arc::new(FakePeers(vec![peer]));
        let cluster =
            QueryCluster::of(Some(peers), order(), &Arc::new(Notify::new()), Duration::MAX);
        // One more than this host has cores, and as many again.
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
        let ask = gang(cores + 1, cores + 1);
        let without = Without::default();
        // Its session is waited for.
        let (slots, _session) =
            tokio::join!(GangSlots::of(&cluster, &ask, &without), open(&mut connections));
        let slots = slots.unwrap();
        let found = spread(&slots, &ask);
        let [(here, at_here), (other, at_other)] = &found[..] else { panic!("{found:?}") };
        assert_eq!((here.as_str(), other.as_str()), ("here", "other"));
        for part in [at_here, at_other] {
            assert!(part.first().is_some_and(|task| *task <= cores), "{found:?}");
            assert!(part.last().is_some_and(|task| *task > cores), "{found:?}");
        }
        let links = slots.links(1, &ask, None);
        assert!(links.senders.iter().all(|task| at_here.contains(task)));
        let ats: Vec<&RelativeHost> = links.receivers.iter().map(|there| &there.at).collect();
        assert!(matches!(ats[..], [RelativeHost::Here, RelativeHost::Host { .. }]), "{ats:?}");
        let links = slots.links(1, &ask, slots.0[&at_other[0]].host.name());
        assert!(matches!(links.receivers[0].at, RelativeHost::Control), "{links:?}");
    }

    #[tokio::test]
    async fn a_gang_does_without_hosts_that_refuse_it() {
        let (peer, mut connections) = FakePeer::new("other").await;
        let other = peer.name.clone();
        let peers = Arc::new(FakePeers(vec![peer]));
        let cluster =
            QueryCluster::of(Some(peers), order(), &Arc::new(Notify::new()), Duration::MAX);
        let mut ask = gang(1, 1);
        ask.senders[0].files = vec![FileGrant { path: "/a".into(), bytes: 1, version: "1".into() }];
        let mut without = Without { here: true, ..Without::default() };
        let (slots, _session) =
            tokio::join!(GangSlots::of(&cluster, &ask, &without), open(&mut connections));
        assert_eq!(spread(&slots.unwrap(), &ask), [("other".to_owned(), vec![0, 1])]);
        // It lacks the file, and may run the task that reads none.
        without.for_files.insert(other.clone());
        assert!(GangSlots::of(&cluster, &ask, &without).await.is_none());
        without.here = false;
        let found = spread(&GangSlots::of(&cluster, &ask, &without).await.unwrap(), &ask);
        assert_eq!(found, [("here".to_owned(), vec![0]), ("other".to_owned(), vec![1])]);
        without.others.insert(other);
        let found = spread(&GangSlots::of(&cluster, &ask, &without).await.unwrap(), &ask);
        assert_eq!(found, [("here".to_owned(), vec![0, 1])]);
    }
}
