//! A preforked child of a zygote: made before a request, which then finds it set up and warm.
//! Instead of a fork, the request costs one message with the entry to call.
//!
//! Each recently used zygote has one. It is made when the zygote has been idle for a moment, with
//! the root and the limits of the last request. A job's network belongs to one job, so children
//! with a network are never preforked.
//!
//! Invariant: a preforked child serves one request, with exactly its root and limits, and runs no
//! user code before. The server does not know about it, and it never keeps a zygote from ending.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use snowmelt_types::SandboxId;

use super::cell::{Beginning, Call, Cell, Forked, NOBODY, Origin, Phase, Token};
use super::fork::FORK_PATIENCE;
use super::service::Service;
use super::zygote::{Entries, Wanted};
use crate::message::Failure;
use crate::spec::{ForkSpec, Limits, Root};

/// How long a zygote must be idle before it preforks: requests in a burst are better served first,
/// and a call that has just started must not share the processor with the next fork.
const QUIET: Duration = Duration::from_millis(4);

/// How long a preforked child waits for a request.
pub(super) const SPARE_KEPT: Duration = Duration::from_secs(60);

/// The preforked child that a zygote has, or is to have.
pub(super) struct Spare {
    root: Root,
    limits: Limits,
    state: State,
}

enum State {
    /// To be made at this time.
    Due(Instant),
    /// Made, and perhaps still in flight.
    Made(Token),
}

/// The spec of a child without an entry: only its root and limits are known.
#[derive(Clone)]
pub(super) struct SpareSpec {
    pub id: SandboxId,
    pub root: Root,
    pub limits: Limits,
}

impl Spare {
    /// When it is to be made, if it is not.
    pub fn due(&self) -> Option<Instant> {
        match self.state {
            State::Due(then) => Some(then),
            State::Made(_) => None,
        }
    }

    fn token(&self) -> Option<Token> {
        match self.state {
            State::Due(_) => None,
            State::Made(token) => Some(token),
        }
    }
}

impl Service {
    /// Serves a request with the zygote's preforked child; false if there is none that matches.
    /// Schedules the next one.
    pub(super) fn use_spare(
        &mut self,
        zygote: Token,
        sequence: u64,
        spec: &ForkSpec,
    ) -> Result<bool, Failure> {
        let Some(state) = self.zygote(zygote) else { return Ok(false) };
        let due = State::Due(Instant::now() + QUIET);
        let (root, limits) = (spec.root.clone(), spec.limits);
        let next = Some(Spare { root, limits, state: due });
        let made = state.spare.as_ref().and_then(Spare::token);
        let fits = |spare: &Spare| spare.root == spec.root && spare.limits == spec.limits;
        let Some(token) = made.filter(|_| state.spare.as_ref().is_some_and(fits)) else {
            // A child for another kind of request is kept: such a request may come again.
            if made.is_none() {
                state.spare = next;
            }
            return Ok(false);
        };
        state.spare = next;
        self.name(&spec.id)?;
        Ok(self.hand_over(token, sequence, spec))
    }

    /// Assigns a preforked child to a request. False if it is about to end.
    fn hand_over(&mut self, token: Token, sequence: u64, spec: &ForkSpec) -> bool {
        let Some(cell) = self.cells.get_mut(&token) else { return false };
        let has_landed = cell.pidfd.is_some();
        let (Phase::Beginning(beginning), Origin::Forked(forked)) =
            (&mut cell.phase, &mut cell.origin)
        else {
            return false;
        };
        let entries = Entries::of(spec);
        if beginning.fault.is_some() || (has_landed && entries.tell(&beginning.sync).is_err()) {
            return false;
        }
        forked.call = Call::Handler(entries);
        beginning.answer.sequence = sequence;
        cell.begun = Instant::now();
        beginning.deadline = Some(cell.begun + FORK_PATIENCE);
        let before = std::mem::replace(&mut cell.id, spec.id.clone());
        self.names.remove(&before);
        self.names.insert(spec.id.clone(), token);
        if has_landed {
            self.tell_handed_over(token);
        }
        true
    }

    /// Answers immediately: a child that is set up has no step left that could fail, and its
    /// channel accepts connections already.
    fn tell_handed_over(&mut self, token: Token) {
        let Some(cell) = self.cells.get_mut(&token) else { return };
        match std::mem::replace(&mut cell.phase, Phase::Running) {
            Phase::Beginning(beginning) => {
                self.unwatch(beginning.sync.as_fd());
                self.tell_started(token, &beginning.answer, None);
            }
            other => cell.phase = other,
        }
    }

    /// Makes the preforked child of a zygote if it is due; false if the token is about something
    /// else.
    pub(super) fn make_due_spare(&mut self, zygote: Token, now: Instant) -> bool {
        let Some(state) = self.zygote(zygote) else { return false };
        let Some(spare) = state.spare.take_if(|spare| spare.due().is_some_and(|due| due <= now))
        else {
            return false;
        };
        let is_busy = state.in_flight > 0 || !state.queue.is_empty();
        if is_busy {
            state.spare = Some(Spare { state: State::Due(now + QUIET), ..spare });
        } else if !state.retired {
            self.make_spare(zygote, spare);
        }
        true
    }

    fn make_spare(&mut self, zygote: Token, Spare { root, limits, .. }: Spare) {
        let spec = SpareSpec { id: SandboxId::new(), root, limits };
        // If it fails, the next request reports why.
        if self.fork_now(zygote, NOBODY, &Wanted::Spare(spec.clone())).is_err() {
            return;
        }
        let token = self.find(&spec.id);
        let SpareSpec { root, limits, .. } = spec;
        if let (Some(token), Some(state)) = (token, self.zygote(zygote)) {
            state.spare = Some(Spare { root, limits, state: State::Made(token) });
        }
    }

    /// Ends a preforked child that no request has used in time; false if the token is not one.
    pub(super) fn end_late_spare(&mut self, token: Token) -> bool {
        let Some(cell) = self.cells.get_mut(&token) else { return false };
        let (Some(_), Phase::Beginning(beginning)) = (&cell.pidfd, &mut cell.phase) else {
            return false;
        };
        if !matches!(cell.origin, Origin::Forked(Forked { call: Call::Spare, .. })) {
            return false;
        }
        beginning.deadline = None;
        self.kill_cell(token);
        true
    }

    /// Ends the preforked child of a zygote that is to have no more children.
    pub(super) fn end_spare(&mut self, zygote: Token) {
        let spare = self.zygote(zygote).and_then(|state| state.spare.take());
        let Some(token) = spare.as_ref().and_then(Spare::token) else { return };
        match self.cells.get(&token).and_then(|cell| cell.pidfd.as_ref()) {
            Some(_) => self.kill_cell(token),
            // Its child finds the socket pair closed, and ends.
            None => self.fail(token, Failure::Spec { reason: "it was not used".to_owned() }),
        }
    }

    /// A child has ended; forgets it if it was the zygote's preforked child.
    pub(super) fn forget_spare(&mut self, zygote: Token, child: Token) {
        if let Some(state) = self.zygote(zygote) {
            state.spare.take_if(|spare| spare.token() == Some(child));
        }
    }
}

impl Cell {
    /// When the preforked child of this zygote is to be made.
    pub(super) fn spare_due(&self) -> Option<Instant> {
        self.zygote.as_ref()?.spare.as_ref()?.due()
    }

    /// When it must have been used, or be about to call its entry.
    pub(super) fn begun_by(&self) -> Option<Instant> {
        match &self.phase {
            Phase::Beginning(Beginning { deadline, .. }) => *deadline,
            _ => None,
        }
    }
}
