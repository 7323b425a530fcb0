//! The place of one attempt: the best of the hosts that may run it and have room.
//!
//! Where the cluster decides which task gets a host, the cluster is asked before the host itself,
//! which has the last word. A task that waits tells the cluster which hosts could run the attempt
//! now.

use std::sync::Arc;

use async_trait::async_trait;
use futures::FutureExt;
use snowmelt_types::{HostName, Report};
use snowmelt_wire::RequestFailure;

use super::placement_order::{PlaceSearch, Steps, WaitingTasks};
use super::starts::{AttemptRequest, NotTaken, RunningAttempt, Starts};
use crate::driver_service::hosts::{HostChoice, SessionOpening, TaskCount};
use crate::peers::{TaskPlace, TaskWish};
use crate::remote::session::Session;
use crate::remote::starting::PlacedAttempt;
use crate::runner::TaskRoom;

/// The reserved room of an attempt on a host.
pub(super) enum AttemptRoom {
    Here(Box<TaskRoom>, TaskCount),
    There(PlacedAttempt, TaskCount),
}

/// The start of an attempt.
pub(super) struct AttemptStart<'a, 'q> {
    pub starts: &'a Starts<'q>,
    pub asked: &'a AttemptRequest,
}

/// A host that may run the attempt.
struct Open {
    choice: HostChoice,
    // None on this host.
    session: Option<Arc<Session>>,
}

/// The place of an attempt among all work of the cluster; `None` where each host decides alone.
type ClusterPlace = Option<Box<dyn TaskPlace>>;

impl AttemptStart<'_, '_> {
    /// Returns the hosts that may run the attempt, the best first. An item `None` marks that the
    /// hosts after it are worse than a host that is expected to have a session soon.
    fn open(&self) -> impl Iterator<Item = Option<Open>> {
        let Self { starts, asked } = self;
        // The round of the best host that is expected.
        let mut expected = None;
        let choices = starts.cluster.choices(&asked.ask, &asked.inputs).into_iter();
        choices.filter_map(move |(round, choice)| {
            if expected.is_some_and(|better| better < round) {
                return Some(None);
            }
            let session = match &choice {
                HostChoice::Here => None,
                HostChoice::There(peer) => match starts.cluster.session(peer) {
                    SessionOpening::Session(session) => Some(session),
                    SessionOpening::Soon => {
                        expected.get_or_insert(round);
                        return None;
                    }
                    SessionOpening::Later | SessionOpening::Never => return None,
                },
            };
            Some(Some(Open { choice, session }))
        })
    }

    /// Asks a host for room. If it has some, the room is reserved for the attempt.
    async fn ask_host(
        &self,
        Open { choice, session }: Open,
        place: &mut ClusterPlace,
    ) -> Result<Result<AttemptRoom, NotTaken>, RequestFailure> {
        let Self { starts, asked } = self;
        let counted = starts.cluster.count(&choice);
        let room = match session {
            None => match starts.runner.reserve_at_once(&asked.ask) {
                Some(room) => AttemptRoom::Here(Box::new(room), counted.at(place.take())),
                None => return Ok(Err(NotTaken::NoRoom)),
            },
            Some(session) => match starts.place_there(asked, &session).await? {
                Ok(placed) => AttemptRoom::There(placed, counted.at(place.take())),
                Err(why) => return Ok(Err(why)),
            },
        };
        Ok(Ok(room))
    }

    fn name(&self, choice: &HostChoice) -> Option<HostName> {
        match choice {
            HostChoice::Here => self.starts.cluster.own_name(),
            HostChoice::There(peer) => Some(peer.name()),
        }
    }
}

#[async_trait]
impl Steps for AttemptStart<'_, '_> {
    type Place = AttemptRoom;
    type Begun = RunningAttempt;
    type Error = RequestFailure;
    type Asked = ClusterPlace;

    fn ask(&self) -> ClusterPlace {
        let Self { starts, asked } = self;
        let needs = starts.needs(&asked.ask.udfs);
        starts.cluster.peers().and_then(|peers| peers.task(needs))
    }

    async fn look(
        &self,
        place: &mut ClusterPlace,
    ) -> Result<PlaceSearch<AttemptRoom>, RequestFailure> {
        self.starts.note_failures();
        for open in self.open() {
            let Some(open) = open else { return Ok(PlaceSearch::Soon) };
            if let (Some(place), Some(host)) = (&mut *place, self.name(&open.choice))
                && !place.take(&host)
            {
                continue;
            }
            let why = match self.ask_host(open, place).await? {
                Ok(room) => return Ok(PlaceSearch::Place(room)),
                Err(why) => why,
            };
            if let Some(place) = place {
                if matches!(why, NotTaken::NoRoom) {
                    place.refused();
                }
                place.leave();
            }
        }
        Ok(PlaceSearch::NoRoom)
    }

    async fn look_in_turn(
        &self,
        place: &mut ClusterPlace,
        queue: WaitingTasks,
    ) -> Result<PlaceSearch<AttemptRoom>, RequestFailure> {
        if place.is_none() {
            return self.look(place).await;
        }
        self.starts.note_failures();
        let mut hosts = Vec::new();
        let mut otherwise = PlaceSearch::NoRoom;
        for open in self.open() {
            match open {
                Some(open) => hosts.extend(self.name(&open.choice).map(|name| (name, open))),
                None => {
                    otherwise = PlaceSearch::Soon;
                    break;
                }
            }
        }
        let behind = u32::try_from(queue.tasks.saturating_sub(1)).unwrap_or(u32::MAX);
        loop {
            let names = hosts.iter().map(|(name, _)| name.clone()).collect();
            let wish = TaskWish { hosts: names, behind, waited: queue.since.elapsed() };
            let Some(host) = place.as_mut().and_then(|place| place.wait(wish)) else {
                return Ok(otherwise);
            };
            let found = hosts.iter().position(|(name, _)| *name == host);
            let answer = match found.map(|at| hosts.remove(at)) {
                Some((_, open)) => self.ask_host(open, place).await?,
                // The cluster found this host before, and it cannot run the attempt any more.
                None => Err(NotTaken::Unfit),
            };
            match (answer, &mut *place) {
                (Ok(room), _) => return Ok(PlaceSearch::Place(room)),
                (Err(NotTaken::NoRoom), Some(place)) => place.refused(),
                (Err(NotTaken::Unfit), Some(place)) => place.leave(),
                (Err(_), None) => return Ok(otherwise),
            }
        }
    }

    async fn placed(&self, place: &mut ClusterPlace) {
        match place {
            Some(place) => place.placed().await,
            None => std::future::pending().await,
        }
    }

    async fn here(&self) -> Result<AttemptRoom, RequestFailure> {
        let Self { starts, asked } = self;
        // Other room of this host is given by the cluster.
        let room = match starts.cluster.places_tasks() {
            true => {
                let kept = starts.runner.kept_task_room(&asked.ask).await;
                kept.map_err(|error| RequestFailure::of(error.report()))?
            }
            false => starts.runner.reserve(&asked.ask).await?,
        };
        Ok(AttemptRoom::Here(Box::new(room), starts.cluster.count(&HostChoice::Here)))
    }

    async fn start(&self, room: AttemptRoom) -> Result<Option<RunningAttempt>, RequestFailure> {
        let Self { starts, asked } = self;
        match room {
            AttemptRoom::Here(room, counted) => {
                starts.start_here(asked, *room, counted, Vec::new()).boxed().await.map(Some)
            }
            AttemptRoom::There(placed, counted) => starts.start_there(asked, placed, counted).await,
        }
    }
}
