//! The packets from the spawner to a zygote and to its children.
//!
//! Invariant: the C declarations of the packets in `runtimes/native/snowmelt_internals.h` are
//! generated from the declarations here (`c_header`).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use snowmelt_kernel::{packet, seccomp, shared_structure};

use crate::spawner::child::notifier::NotifierSetup;
use crate::spec::ForkSpec;

/// Identifies a sandbox in the spawner and in its packets from and to zygotes; never reused.
pub(in crate::spawner) type SandboxToken = u64;

/// The length of the longest packet to a child in bytes: its filters, or its entries.
pub(crate) const LONGEST_TO_CHILD: usize = 192 << 10;

/// The kinds of children, as in a request (`enum snowmelt_kind`).
pub(crate) const HANDLER_KIND: u32 = 0;
pub(crate) const ZYGOTE_KIND: u32 = 1;

shared_structure! {
    /// The request for one child, in the form of its packet. With descriptors: the child's end of
    /// its socket pair with the spawner, the mount namespace of its root if it is `fresh`, and its
    /// network if it has one.
    #[repr(C)]
    pub(crate) struct OrderPacket as "order" {
        /// [`HANDLER_KIND`] or [`ZYGOTE_KIND`].
        kind: u32,
        /// The child's first user id in the zygote's range.
        number: u32,
        /// The number of the child's ids.
        count: u32,
        /// The zygote's number for the root.
        root: u32,
        /// 1 if the root is sent with this order.
        fresh: u32,
        /// 1 if the network of the child's job is sent with this order, as the last descriptor.
        network: u32,
        /// The number of the child that reports about it repeat.
        token: u64,
    }
}

shared_structure! {
    /// The inputs of a child's set-up, in the form of the beginning of their packet. With
    /// descriptors: channel, log and the files that enter its control group. Afterwards it receives
    /// "go" once it is in its control group and its mounts are attached and, for a handler, its
    /// entries.
    #[repr(C)]
    pub(crate) struct SetupPacket as "setup" {
        /// Length of the system call filter that follows, in bytes.
        filter: u32,
        /// Length of the address notifier's filter after that, in bytes.
        notifier: u32,
        /// The limit of open descriptors. With a notifier: also the handover descriptor.
        open_files: u64,
        /// The limit of processes and threads; 0 where a control group has it.
        processes: u64,
    }
}

/// The request for one child.
pub(in crate::spawner) struct ChildOrder {
    /// The number of the child that reports about it repeat.
    pub token: SandboxToken,
    pub is_zygote: bool,
    /// The child's first user id in the zygote's range.
    pub number: u32,
    /// The number of the child's ids.
    pub count: u32,
    /// The zygote's number for the root.
    pub root: u32,
    /// Whether the root is sent with this order.
    pub fresh: bool,
    /// Whether the network of the child's job is sent with this order.
    pub has_network: bool,
}

impl ChildOrder {
    pub fn to_bytes(&self) -> Vec<u8> {
        OrderPacket {
            kind: if self.is_zygote { ZYGOTE_KIND } else { HANDLER_KIND },
            number: self.number,
            count: self.count,
            root: self.root,
            fresh: self.fresh.into(),
            network: self.has_network.into(),
            token: self.token,
        }
        .to_bytes()
    }
}

/// The letters with which entries begin: a variable of the environment here, a folder of the import
/// path next.
pub(crate) const ENVIRONMENT: u8 = b'e';
pub(crate) const IMPORT_PATH: u8 = b'p';
pub(crate) const CALL: u8 = b'c';

/// The work of a child after its set-up: a list of entries, each a letter, text and a zero byte.
#[derive(Default)]
pub(in crate::spawner) struct Entries(Vec<u8>);

impl Entries {
    /// The entries of a handler.
    pub fn of(spec: &ForkSpec) -> Self {
        let mut entries = Self::default();
        for (name, value) in &spec.env {
            entries.push(ENVIRONMENT, &[name, "=", value]);
        }
        spec.sys_path.iter().for_each(|path| entries.push(IMPORT_PATH, &[path]));
        entries.push(CALL, &[&spec.entry]);
        entries
    }

    fn push(&mut self, kind: u8, parts: &[&str]) {
        self.0.push(kind);
        parts.iter().for_each(|part| self.0.extend(part.as_bytes()));
        self.0.push(0);
    }

    /// Sends the entries to a child that is set up.
    pub fn send(&self, sync: &OwnedFd) -> io::Result<()> {
        send_to_child(sync, &self.0, &[])
    }
}

/// The limits that a child sets for itself.
#[derive(Clone, Copy)]
pub(in crate::spawner) struct ChildLimits {
    pub open_files: u64,
    /// The limit of processes and threads; `None` where a control group has it.
    pub processes: Option<u64>,
}

/// Sends the inputs of a child's set-up ([`SetupPacket`]).
pub(in crate::spawner) fn send_setup(
    sync: &OwnedFd,
    limits: ChildLimits,
    filter: Option<&seccomp::FilterProgram>,
    notifier: Option<&NotifierSetup>,
    fds: &[&OwnedFd],
) -> io::Result<()> {
    let filter = filter.map(seccomp::FilterProgram::to_bytes).unwrap_or_default();
    let waiting = notifier.map(|notifier| notifier.filter.to_bytes()).unwrap_or_default();
    let ChildLimits { open_files, processes } = limits;
    let open_files = notifier.map_or(open_files, |notifier| notifier.handover_fd.into());
    let processes = processes.unwrap_or(0);
    let filter_bytes = filter.len() as u32;
    let waiting_bytes = waiting.len() as u32;
    let setup =
        SetupPacket { filter: filter_bytes, notifier: waiting_bytes, open_files, processes };
    let mut bytes = setup.to_bytes();
    bytes.extend(filter);
    bytes.extend(waiting);
    let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
    send_to_child(sync, &bytes, &fds)
}

/// Sends a packet to a child. A packet that is too long is refused, because the child would receive
/// only its beginning.
fn send_to_child(sync: &OwnedFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    match bytes.len() > LONGEST_TO_CHILD {
        true => Err(rustix::io::Errno::TOOBIG.into()),
        false => packet::send(sync, bytes, fds),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_that_a_child_could_not_receive_is_refused() {
        let (ours, _theirs) = packet::pair().unwrap();
        let entries = Entries(vec![b'x'; LONGEST_TO_CHILD + 1]);
        let error = entries.send(&ours).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::TOOBIG.raw_os_error()));
        Entries(vec![b'x'; 1000]).send(&ours).unwrap();
    }
}
