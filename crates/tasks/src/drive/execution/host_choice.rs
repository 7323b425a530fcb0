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

use super::starts::{Asked, Begun, NotTaken, Starts};
use super::turns::{Found, Steps, Waiting};
use crate::drive::hosts::{Choice, Counted, Opened};
use crate::peers::{TaskPlace, TaskWish};
use crate::remote::session::Session;
use crate::remote::starting::Placed;
use crate::runner::TaskRoom;

/// The reserved room of an attempt on a host.
pub(super) enum Room {
    Here(Box<TaskRoom>, Counted),
    There(Placed, Counted),
}

/// The start of an attempt.
pub(super) struct Start<'a, 'q> {
    pub starts: &'a Starts<'q>,
    pub asked: &'a Asked,
}

/// A host that may run the attempt.
struct Open {
    choice: Choice,
    // None on this host.
    session: Option<Arc<Session>>,
}

/// The request to the cluster for a host; `None` where each host decides alone.
type Place = Option<Box<dyn TaskPlace>>;

impl Start<'_, '_> {
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
                Choice::Here => None,
                Choice::There(peer) => match starts.cluster.session(peer) {
                    Opened::Session(session) => Some(session),
                    Opened::Soon => {
                        expected.get_or_insert(round);
                        return None;
                    }
                    Opened::Later | Opened::Never => return None,
                },
            };
            Some(Some(Open { choice, session }))
        })
    }

    /// Asks a host for room. If it has some, the room is reserved for the attempt.
    async fn ask_host(
        &self,
        Open { choice, session }: Open,
        place: &mut Place,
    ) -> Result<Result<Room, NotTaken>, RequestFailure> {
        let Self { starts, asked } = self;
        let counted = starts.cluster.count(&choice);
        let room = match session {
            None => match starts.runner.reserve_at_once(&asked.ask) {
                Some(room) => Room::Here(Box::new(room), counted.at(place.take())),
                None => return Ok(Err(NotTaken::NoRoom)),
            },
            Some(session) => match starts.place_there(asked, &session).await? {
                Ok(placed) => Room::There(placed, counted.at(place.take())),
                Err(why) => return Ok(Err(why)),
            },
        };
        Ok(Ok(room))
    }

    fn name(&self, choice: &Choice) -> Option<HostName> {
        match choice {
            Choice::Here => self.starts.cluster.own_name(),
            Choice::There(peer) => Some(peer.name()),
        }
    }
}

#[async_trait]
impl Steps for Start<'_, '_> {
    type Place = Room;
    type Begun = Begun;
    type Error = RequestFailure;
    type Asked = Place;

    fn ask(&self) -> Place {
        let Self { starts, asked } = self;
        let needs = starts.needs(&asked.ask.udfs);
        starts.cluster.peers().and_then(|peers| peers.task(needs))
    }

    async fn look(&self, place: &mut Place) -> Result<Found<Room>, RequestFailure> {
        self.starts.note_failures();
        for open in self.open() {
            let Some(open) = open else { return Ok(Found::Soon) };
            if let (Some(place), Some(host)) = (&mut *place, self.name(&open.choice))
                && !place.take(&host)
            {
                continue;
            }
            let why = match self.ask_host(open, place).await? {
                Ok(room) => return Ok(Found::Place(room)),
                Err(why) => why,
            };
            if let Some(place) = place {
                if matches!(why, NotTaken::NoRoom) {
                    place.refused();
                }
                place.leave();
            }
        }
        Ok(Found::NoRoom)
    }

    async fn look_in_turn(
        &self,
        place: &mut Place,
        queue: Waiting,
    ) -> Result<Found<Room>, RequestFailure> {
        if place.is_none() {
            return self.look(place).await;
        }
        self.starts.note_failures();
        let mut hosts = Vec::new();
        let mut otherwise = Found::NoRoom;
        for open in self.open() {
            match open {
                Some(open) => hosts.extend(self.name(&open.choice).map(|name| (name, open))),
                None => {
                    otherwise = Found::Soon;
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
                (Ok(room), _) => return Ok(Found::Place(room)),
                (Err(NotTaken::NoRoom), Some(place)) => place.refused(),
                (Err(NotTaken::Unfit), Some(place)) => place.leave(),
                (Err(_), None) => return Ok(otherwise),
            }
        }
    }

    async fn placed(&self, place: &mut Place) {
        match place {
            Some(place) => place.placed().await,
            None => std::future::pending().await,
        }
    }

    async fn here(&self) -> Result<Room, RequestFailure> {
        let Self { starts, asked } = self;
        // Other room of this host is given by the cluster.
        let room = match starts.cluster.places_tasks() {
            true => {
                let kept = starts.runner.kept_task_room(&asked.ask).await;
                kept.map_err(|error| RequestFailure::of(error.report()))?
            }
            false => starts.runner.reserve(&asked.ask).await?,
        };
        Ok(Room::Here(Box::new(room), starts.cluster.count(&Choice::Here)))
    }

    async fn start(&self, room: Room) -> Result<Option<Begun>, RequestFailure> {
        let Self { starts, asked } = self;
        match room {
            Room::Here(room, counted) => {
                starts.start_here(asked, *room, counted, Vec::new()).boxed().await.map(Some)
            }
            Room::There(placed, counted) => starts.start_there(asked, placed, counted).await,
        }
    }
}
