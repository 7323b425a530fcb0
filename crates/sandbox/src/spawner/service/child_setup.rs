//! The set-up of a zygote's child that has reported its process: the spawner verifies the child and
//! continues its set-up.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use snowmelt_kernel::packet::PacketSender;

use super::record::{ChildPurpose, Forked, ProcessOrigin, SandboxRecord, StartPhase, Starting};
use super::{EventSubject, Service};
use crate::disabled_defences::{Defence, is_disabled};
use crate::fault::{StepFault, doing};
use crate::message::StartFailure;
use crate::spawner::child::sync::{self, ChildMessage};
use crate::spawner::zygote::protocol::SandboxToken;
use crate::times::PREFORKED_KEPT;

impl Service {
    /// Handles the report of a child: puts its process into its control group and lets it continue.
    /// A sender without the id made for this child is an attack, and its zygote is killed.
    pub(super) fn child_is_here(&mut self, token: SandboxToken, sender: PacketSender) {
        let (fault, attacker) = match self.adopt(token, sender) {
            Ok(()) => match self.go_on(token) {
                Ok(()) => return,
                Err(fault) => (fault, None),
            },
            // Another user or another control group is never an accident.
            Err(fault) if fault.source.kind() == io::ErrorKind::PermissionDenied => {
                (fault, self.zygote_of(token))
            }
            Err(fault) => (fault, None),
        };
        // A child that died has reported its fault, if it could.
        let failure = self.final_fault(token).unwrap_or_else(|| fault.into());
        self.fail(token, failure);
        // After the child's record is gone, so that its request gets the reason and not the loss of
        // the zygote.
        if let Some(zygote) = attacker {
            self.kill_sandbox(zygote);
        }
    }

    fn final_fault(&self, token: SandboxToken) -> Option<StartFailure> {
        let StartPhase::Starting(starting) = &self.records.get(&token)?.phase else { return None };
        match sync::try_receive(&starting.sync) {
            Some(ChildMessage::Fault(failure)) => Some(failure),
            _ => None,
        }
    }

    /// Verifies the process of a child, and keeps its pidfd.
    fn adopt(&mut self, token: SandboxToken, sender: PacketSender) -> Result<(), StepFault> {
        let gone = || io::Error::from(io::ErrorKind::NotFound);
        let expected = self.forked_id(token).ok_or_else(gone);
        let expected = doing("find the child's zygote", expected)?;
        let pidfd = doing("find the child's process", open_process(sender, expected))?;
        let Some(record) = self.records.get_mut(&token) else { return Ok(()) };
        // A second report of the same child changes nothing: the process was verified once.
        if record.pidfd.is_some() {
            return Ok(());
        }
        // Kept before the group is checked: if that fails, the process can be killed by it.
        record.pidfd = Some(pidfd);
        record.pid = sender.pid;
        let record = &self.records[&token];
        let Some(pidfd) = &record.pidfd else { return Ok(()) };
        if !is_disabled(Defence::ChildIdentity) {
            let groups = self.groups.backend();
            groups.ensure_member(&record.group.path, sender.pid).map_err(StepFault::of_group)?;
        }
        doing("watch the child", self.watch(pidfd.as_fd(), EventSubject::Process, token))
    }

    /// Lets a verified child continue its set-up, once.
    fn go_on(&mut self, token: SandboxToken) -> Result<(), StepFault> {
        let Some(record) = self.records.get(&token) else { return Ok(()) };
        let StartPhase::Starting(Starting { mounts: Some(_), .. }) = &record.phase else {
            return Ok(());
        };
        self.attach_mounts(token)?;
        if let Some(StartPhase::Starting(starting)) =
            self.records.get(&token).map(|found| &found.phase)
        {
            // The mounts are attached by now; a child that went on before would run in a root
            // without its scratch.
            doing("release the child", sync::send_go(&starting.sync))?;
        }
        // The socket keeps the order: the child reads "go" first, then its entries.
        self.call_child(token)?;
        self.leave_flight(token);
        Ok(())
    }

    /// Tells a child that is set up which entry to call, if that is known yet.
    fn call_child(&mut self, token: SandboxToken) -> Result<(), StepFault> {
        let Some(record) = self.records.get_mut(&token) else { return Ok(()) };
        let (StartPhase::Starting(starting), ProcessOrigin::Forked(forked)) =
            (&mut record.phase, &record.origin)
        else {
            return Ok(());
        };
        match &forked.call {
            ChildPurpose::Handler(entries) => {
                doing("send the child its entries", entries.send(&starting.sync))
            }
            ChildPurpose::Preforked => {
                // In place of the deadline of its set-up, which is over.
                starting.deadline = Some(Instant::now() + PREFORKED_KEPT);
                Ok(())
            }
            ChildPurpose::Zygote => Ok(()),
        }
    }

    /// Counts a child as in flight no more, now and not a second time at its end.
    fn leave_flight(&mut self, token: SandboxToken) {
        let Some(SandboxRecord { origin: ProcessOrigin::Forked(forked), .. }) =
            self.records.get_mut(&token)
        else {
            return;
        };
        if std::mem::take(&mut forked.in_flight) {
            let zygote = forked.zygote;
            self.free_place(zygote);
        }
    }

    /// Counts one child less of the zygote as in flight.
    pub(super) fn free_place(&mut self, zygote: SandboxToken) {
        if let Some(state) = self.zygote(zygote) {
            state.in_flight = state.in_flight.saturating_sub(1);
        }
        // The next in the queue takes the place.
        self.fork_queued(zygote);
    }

    /// The host user id that was made for this child.
    fn forked_id(&mut self, token: SandboxToken) -> Option<u32> {
        let ProcessOrigin::Forked(Forked { zygote, number, .. }) = self.records.get(&token)?.origin
        else {
            return None;
        };
        Some(self.zygote(zygote)?.host_id(number))
    }
}

/// Opens the process if it has the user id that only this child can have: the pid could have been
/// reused since it sent its message.
fn open_process(sender: PacketSender, expected_uid: u32) -> io::Result<OwnedFd> {
    let unknown_process = || io::Error::from(io::ErrorKind::PermissionDenied);
    let pid = Pid::from_raw(sender.pid).ok_or_else(unknown_process)?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
    // After the pidfd is opened: a pid that was reused in between shows another user here.
    let status = fs::read_to_string(format!("/proc/{}/status", sender.pid))?;
    let uid = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    let uid = uid.and_then(|ids| ids.split_whitespace().next()).and_then(|id| id.parse().ok());
    let is_expected = sender.uid == expected_uid && uid == Some(expected_uid);
    if !is_expected && !is_disabled(Defence::ChildIdentity) {
        return Err(unknown_process());
    }
    Ok(pidfd)
}
