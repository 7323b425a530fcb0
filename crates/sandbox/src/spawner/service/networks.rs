//! The network namespaces of jobs.
//!
//! A process may enter a network namespace only with rights over the user namespace that owns it.
//! The spawner puts programs into it. A child of a zygote enters it itself, so its job's namespace
//! is made in the user namespace of the zygote. The zygote has no rights over networks, so it
//! cannot change it.
//!
//! Invariant: the namespaces are kept only by descriptors and by the processes in them, so none
//! outlives this process and its sandboxes.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags, openat};
use snowmelt_kernel::bpf::Map;
use snowmelt_kernel::clone::clone_into;
use snowmelt_kernel::namespace::{flags, join, unshare};
use snowmelt_kernel::{packet, process};
use snowmelt_types::SandboxId;

use super::Service;
use crate::cgroup::{FreezerFile, SandboxGroup};
use crate::fault::{StepFault, doing};
use crate::message::{SpawnerEvent, StartFailure};
use crate::namespaces::SandboxNetwork;
use crate::spec::{Network, NetworkId};

impl Service {
    /// Makes a network, and answers with its descriptor.
    pub(super) fn make_network(
        &mut self,
        sequence: u64,
        id: NetworkId,
        owner: Option<&SandboxId>,
        has_notifier: bool,
        table: Vec<OwnedFd>,
    ) {
        let table = table.into_iter().next().map(Map::received).transpose();
        let table = doing("receive the table of a network", table);
        let made = self.network_for(owner).and_then(|namespace| Ok((namespace, table?)));
        match made {
            Ok((namespace, table)) => {
                self.send_event(&SpawnerEvent::Network { sequence }, &[namespace.as_fd()]);
                let network = SandboxNetwork { namespace, has_notifier, table };
                // After the answer: a request of the server that names it is handled after this one
                // anyway.
                self.namespaces.networks.insert(id, network);
            }
            Err(failure) => self.refuse(sequence, failure),
        }
    }

    /// Writes the entry of a program into the table of its network, before anything of it runs:
    /// a program may use its addresses as soon as it is executed.
    pub(super) fn enter(
        &self,
        network: Network,
        group: &SandboxGroup,
        entry: &[u8],
    ) -> Result<(), StepFault> {
        let written = self.row_of(network, group).and_then(|(table, key)| table.set(&key, entry));
        doing("give a program the addresses of its network", written)
    }

    /// Removes the entry of a program that was not started.
    pub(super) fn leave(&self, network: Network, group: &SandboxGroup) {
        // It may never have been written.
        drop(self.row_of(network, group).and_then(|(table, key)| table.remove(&key)));
    }

    fn row_of(&self, network: Network, group: &SandboxGroup) -> io::Result<(&Map, [u8; 8])> {
        let network = network.job().and_then(|id| self.namespaces.networks.get(&id));
        let freezer = self.groups.backend().freezer_file(&group.path);
        let folder = freezer.as_ref().and_then(FreezerFile::unified_group);
        let (Some(table), Some(folder)) = (network.and_then(|one| one.table.as_ref()), folder)
        else {
            return Err(io::ErrorKind::NotFound.into());
        };
        Ok((table, std::fs::metadata(folder)?.ino().to_ne_bytes()))
    }

    fn network_for(&self, owner: Option<&SandboxId>) -> Result<OwnedFd, StartFailure> {
        let user = match owner {
            None => None,
            Some(zygote) => {
                let lost = || StartFailure::ZygoteLost { zygote: zygote.clone() };
                let record = self.find(zygote).and_then(|token| self.records.get(&token));
                let pid = record.ok_or_else(lost)?.pid;
                let user = self.open_namespace(&format!("{pid}/ns/user"));
                Some(doing("open the user namespace of the zygote", user)?)
            }
        };
        Ok(self.fresh_network(user.as_ref())?)
    }

    /// Makes a network namespace in a helper process, because a process cannot return from another
    /// user namespace.
    fn fresh_network(&self, user: Option<&OwnedFd>) -> Result<OwnedFd, StepFault> {
        let (ours, theirs) = doing("make a pair of sockets", packet::pair())?;
        let make = || -> io::Result<()> {
            if let Some(user) = user {
                join(user, flags::USER)?;
            }
            unshare(flags::NETWORK)?;
            let made = self.open_namespace("self/ns/net")?;
            packet::send(&theirs, b"made", &[made.as_fd()])
        };
        let helper = clone_into(0, None, || match make() {
            Ok(()) => 0,
            Err(error) => error.raw_os_error().unwrap_or(1).clamp(1, 255),
        });
        let helper = doing("clone a process", helper)?;
        let ended = poll(&mut [PollFd::new(&helper.pidfd, PollFlags::IN)], None);
        doing("wait for a process", ended.map_err(Into::into))?;
        let reaped = doing("wait for a process", process::reap(helper.pidfd.as_fd()))?;
        let code = reaped.map_or(1, |reaped| reaped.code);
        let made = if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) };
        doing("make a network namespace", made)?;
        let received = doing("receive a network namespace", packet::receive(&ours, &mut [0; 16]))?;
        let namespace = received.fds.into_iter().next().ok_or(io::ErrorKind::InvalidData.into());
        doing("receive a network namespace", namespace)
    }

    fn open_namespace(&self, path: &str) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        Ok(openat(self.namespaces.proc(), path, flags, Mode::empty())?)
    }
}
