//! A child of a zygote has reported its process: the spawner verifies it and continues its set-up.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use snowmelt_kernel::packet::Sender;

use super::cell::{Call, Forked, Origin, Phase, Token};
use super::service::{Service, Watched};
use super::spare::SPARE_KEPT;
use super::start::group_fault;
use super::sync::{self, Said};
use crate::message::Failure;
use crate::root::{Fault, doing};

impl Service {
    /// A child has reported its process: puts it into its control group and lets it continue. A
    /// sender without the id made for this child is an attack, and its zygote is killed.
    pub(super) fn child_is_here(&mut self, token: Token, sender: Sender) {
        let Err(fault) = self.adopt(token, sender) else { return };
        let attacker = match fault.source.kind() {
            // Another user or another control group is never an accident.
            io::ErrorKind::PermissionDenied => self.zygote_of(token),
            _ => None,
        };
        // A child that died has reported its fault, if it could.
        let failure = self.last_words(token).unwrap_or_else(|| fault.into());
        self.fail(token, failure);
        if let Some(zygote) = attacker {
            self.kill_cell(zygote);
        }
    }

    fn last_words(&self, token: Token) -> Option<Failure> {
        let Phase::Beginning(beginning) = &self.cells.get(&token)?.phase else { return None };
        match sync::hear_now(&beginning.sync) {
            Some(Said::Fault(failure)) => Some(failure),
            _ => None,
        }
    }

    fn adopt(&mut self, token: Token, sender: Sender) -> Result<(), Fault> {
        let gone = || io::Error::from(io::ErrorKind::NotFound);
        let expected = self.forked_id(token).ok_or_else(gone);
        let expected = doing("find the child's zygote", expected)?;
        let pidfd = doing("find the child's process", open_process(sender, expected))?;
        let Some(cell) = self.cells.get_mut(&token) else { return Ok(()) };
        if cell.pidfd.is_some() {
            return Ok(());
        }
        cell.pidfd = Some(pidfd);
        cell.pid = sender.pid;
        let cell = &self.cells[&token];
        let Some(pidfd) = &cell.pidfd else { return Ok(()) };
        self.groups.backend().confirm(&cell.group.path, sender.pid).map_err(group_fault)?;
        doing("watch the child", self.watch(pidfd.as_fd(), Watched::Process, token))?;
        if let Phase::Beginning(beginning) = &cell.phase {
            doing("release the child", sync::send_go(&beginning.sync))?;
        }
        self.call_child(token)?;
        self.landed(token);
        Ok(())
    }

    /// Tells a child that is set up what to call, if that is known yet.
    fn call_child(&mut self, token: Token) -> Result<(), Fault> {
        let Some(cell) = self.cells.get_mut(&token) else { return Ok(()) };
        let (Phase::Beginning(beginning), Origin::Forked(forked)) = (&mut cell.phase, &cell.origin)
        else {
            return Ok(());
        };
        match &forked.call {
            Call::Handler(entries) => doing("tell the child", entries.tell(&beginning.sync)),
            Call::Spare => {
                beginning.deadline = Some(Instant::now() + SPARE_KEPT);
                Ok(())
            }
            Call::Zygote => Ok(()),
        }
    }

    /// One child less is in flight.
    pub(super) fn landed(&mut self, token: Token) {
        if let Some(zygote) = self.zygote_of(token) {
            if let Some(state) = self.zygote(zygote) {
                state.in_flight = state.in_flight.saturating_sub(1);
            }
            self.fork_queued(zygote);
        }
    }

    /// The host user id that was made for this child.
    fn forked_id(&mut self, token: Token) -> Option<u32> {
        let Origin::Forked(Forked { zygote, number, .. }) = self.cells.get(&token)?.origin else {
            return None;
        };
        Some(self.zygote(zygote)?.host_id(number))
    }
}

/// Opens the process if it has the user id that only this child can have: the pid could have been
/// reused since it sent its message.
fn open_process(sender: Sender, expected_uid: u32) -> io::Result<OwnedFd> {
    let stranger = || io::Error::from(io::ErrorKind::PermissionDenied);
    let pid = Pid::from_raw(sender.pid).ok_or_else(stranger)?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
    let status = fs::read_to_string(format!("/proc/{}/status", sender.pid))?;
    let uid = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    let uid = uid.and_then(|ids| ids.split_whitespace().next()).and_then(|id| id.parse().ok());
    if sender.uid != expected_uid || uid != Some(expected_uid) {
        return Err(stranger());
    }
    Ok(pidfd)
}
