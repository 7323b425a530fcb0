//! A preforked child of a zygote: made before a request, which then finds it set up and warm.
//! Instead of a fork, the request costs one message with the entry to call.
//!
//! Each recently used zygote has one preforked child. It is made when the zygote has been idle for
//! a moment, with the root and the limits of the last request. A job's network belongs to one job,
//! so children with a network are never preforked.
//!
//! Invariant: a preforked child serves one request, with exactly its root and limits, and runs no
//! user code before. The server does not know about it, and it never keeps a zygote from ending.

use std::os::fd::AsFd;
use std::time::Instant;

use snowmelt_types::SandboxId;

use super::Service;
use super::fork::FORK_TIMEOUT;
use super::record::{
    ChildPurpose, Forked, ProcessOrigin, SandboxRecord, StartPhase, Starting, UNREQUESTED,
};
use crate::message::StartFailure;
use crate::spawner::zygote::Wanted;
use crate::spawner::zygote::preforked_child::{Preforked, PreforkedSpec, State};
use crate::spawner::zygote::protocol::{Entries, SandboxToken};
use crate::spec::ForkSpec;
use crate::times::PREFORK_AFTER;

impl Service {
    /// Serves a request with the zygote's preforked child, and schedules the next one. Returns
    /// false if there is no child that matches.
    pub(super) fn use_preforked(
        &mut self,
        zygote: SandboxToken,
        sequence: u64,
        spec: &ForkSpec,
    ) -> Result<bool, StartFailure> {
        let Some(state) = self.zygote(zygote) else { return Ok(false) };
        let due = State::Due(Instant::now() + PREFORK_AFTER);
        let root = spec.root.clone();
        let limits = spec.limits;
        let next = Some(Preforked { root, limits, state: due });
        let made = state.preforked.as_ref().and_then(Preforked::token);
        let fits =
            |preforked: &Preforked| preforked.root == spec.root && preforked.limits == spec.limits;
        let Some(token) = made.filter(|_| state.preforked.as_ref().is_some_and(fits)) else {
            // A child for another kind of request is kept: such a request may come again.
            if made.is_none() {
                state.preforked = next;
            }
            return Ok(false);
        };
        // Only for its checks of the id: the child keeps the token that it has. Before it leaves its
        // slot: a request that is refused must not take the child from the next one, or leave it
        // without anybody who knows it.
        self.new_token(&spec.id)?;
        // Before the child is handed over: the slot is for the next child from now on.
        if let Some(state) = self.zygote(zygote) {
            state.preforked = next;
        }
        Ok(self.hand_over(token, sequence, spec))
    }

    /// Assigns a preforked child to a request. Returns false if the child is about to end.
    fn hand_over(&mut self, token: SandboxToken, sequence: u64, spec: &ForkSpec) -> bool {
        let Some(record) = self.records.get_mut(&token) else { return false };
        let is_set_up = record.pidfd.is_some();
        let (StartPhase::Starting(starting), ProcessOrigin::Forked(forked)) =
            (&mut record.phase, &mut record.origin)
        else {
            return false;
        };
        let entries = Entries::of(spec);
        if starting.fault.is_some() || (is_set_up && entries.send(&starting.sync).is_err()) {
            return false;
        }
        forked.call = ChildPurpose::Handler(entries);
        starting.answer.sequence = sequence;
        record.started_at = Instant::now();
        starting.deadline = Some(record.started_at + FORK_TIMEOUT);
        // The child had an id that the server does not know; from now on it is killed and found by
        // the new one.
        let before = std::mem::replace(&mut record.id, spec.id.clone());
        self.names.remove(&before);
        self.names.insert(spec.id.clone(), token);
        if is_set_up {
            self.send_handed_over(token);
        }
        true
    }

    /// Answers a request that got a preforked child, immediately: a child that is set up has no
    /// step left that could fail, and its channel accepts connections already.
    fn send_handed_over(&mut self, token: SandboxToken) {
        let Some(record) = self.records.get_mut(&token) else { return };
        match std::mem::replace(&mut record.phase, StartPhase::Running) {
            StartPhase::Starting(starting) => {
                self.unwatch(starting.sync.as_fd());
                self.send_started(token, &starting.answer, None);
            }
            other => record.phase = other,
        }
    }

    /// Makes the preforked child of a zygote if it is due. Returns false if the token is about
    /// something else.
    pub(super) fn make_due_preforked(&mut self, zygote: SandboxToken, now: Instant) -> bool {
        let Some(state) = self.zygote(zygote) else { return false };
        let Some(preforked) =
            state.preforked.take_if(|preforked| preforked.due().is_some_and(|due| due <= now))
        else {
            return false;
        };
        // Requests come first: the fork of this child would take the zygote's time from theirs.
        let is_busy = state.in_flight > 0 || !state.queue.is_empty();
        if is_busy {
            state.preforked =
                Some(Preforked { state: State::Due(now + PREFORK_AFTER), ..preforked });
        } else if !state.retired {
            self.make_preforked(zygote, preforked);
        }
        true
    }

    fn make_preforked(&mut self, zygote: SandboxToken, Preforked { root, limits, .. }: Preforked) {
        let spec = PreforkedSpec { id: SandboxId::new(), root, limits };
        // If it fails, the next request reports why.
        if self.fork_now(zygote, UNREQUESTED, &Wanted::Preforked(spec.clone())).is_err() {
            return;
        }
        let token = self.find(&spec.id);
        let PreforkedSpec { root, limits, .. } = spec;
        if let (Some(token), Some(state)) = (token, self.zygote(zygote)) {
            state.preforked = Some(Preforked { root, limits, state: State::Made(token) });
        }
    }

    /// Ends a preforked child that no request has used in time. Returns false if the token is not
    /// one of a preforked child.
    pub(super) fn end_expired_preforked(&mut self, token: SandboxToken) -> bool {
        let Some(record) = self.records.get_mut(&token) else { return false };
        let (Some(_), StartPhase::Starting(starting)) = (&record.pidfd, &mut record.phase) else {
            return false;
        };
        if !matches!(
            record.origin,
            ProcessOrigin::Forked(Forked { call: ChildPurpose::Preforked, .. })
        ) {
            return false;
        }
        // The kill is sent once; the record goes when the kernel reports the end.
        starting.deadline = None;
        self.kill_sandbox(token);
        true
    }

    /// Ends the preforked child of a zygote that is to have no more children.
    pub(super) fn end_preforked(&mut self, zygote: SandboxToken) {
        let preforked = self.zygote(zygote).and_then(|state| state.preforked.take());
        let Some(token) = preforked.as_ref().and_then(Preforked::token) else { return };
        match self.records.get(&token).and_then(|record| record.pidfd.as_ref()) {
            Some(_) => self.kill_sandbox(token),
            // Its child finds the socket pair closed, and ends.
            None => self.fail(token, StartFailure::Spec { reason: "it was not used".to_owned() }),
        }
    }

    /// Forgets a child that has ended, if it was the zygote's preforked child.
    pub(super) fn forget_preforked(&mut self, zygote: SandboxToken, child: SandboxToken) {
        if let Some(state) = self.zygote(zygote) {
            state.preforked.take_if(|preforked| preforked.token() == Some(child));
        }
    }
}

impl SandboxRecord {
    /// The time at which the preforked child of this zygote is to be made.
    pub(super) fn preforked_due(&self) -> Option<Instant> {
        self.zygote.as_ref()?.preforked.as_ref()?.due()
    }

    /// The time until which the child must have been used, or be about to call its entry.
    pub(super) fn started_by(&self) -> Option<Instant> {
        match &self.phase {
            StartPhase::Starting(Starting { deadline, .. }) => *deadline,
            _ => None,
        }
    }
}
