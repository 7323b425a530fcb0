//! The event loop of a lane: one event at a time, from the server, from processes that end, from
//! children that are being set up and from zygotes.
//!
//! | part | file |
//! |---|---|
//! | the main function of a lane, and further lanes | `lane` |
//! | the state of each sandbox | `record` |
//! | refused specs | `spec_checks` |
//! | start of a program, of a zygote | `program`, `start` |
//! | children of zygotes: the request, the check of a child, its mounts | `fork`, `child_setup`, `zygote_mounts` |
//! | children that are made before a request | `preforked_children` |
//! | networks of jobs | `networks` |
//! | the memory of sandboxes without control groups | `memory_watch` |
//! | reports to the server, and the ends of sandboxes | `reports`, `end` |
//!
//! Invariant: no event waits for code of a tenant, so no sandbox delays the others.

mod child_setup;
mod end;
mod fork;
mod lane;
mod memory_watch;
mod networks;
mod preforked_children;
mod program;
mod record;
mod reports;
mod spec_checks;
mod start;
mod zygote_mounts;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use rustix::process::{PidfdFlags, getpid, pidfd_open};
use snowmelt_kernel::landlock;
use snowmelt_kernel::packet::{self, Packet};
use snowmelt_kernel::vfork::Stack;
use snowmelt_types::SandboxId;

use super::ids::IdSlots;
use super::init::Init;
use super::zygote::protocol::SandboxToken;
use super::{child, control};
use crate::cgroup::GroupPool;
use crate::message::{
    LONGEST_PACKET, Setup, SpawnerEvent, SpawnerOperation, SpawnerRequest, StartFailure,
};
use crate::namespaces::Namespaces;
use crate::policy::Programs;
use crate::root::Roots;
use crate::spec::NetworkProgram;
use crate::times::DEADLINE_SLACK;
use record::{Forked, ProcessOrigin, SandboxRecord, UNREQUESTED};

/// The state of a lane. Its methods are in the files of this folder.
pub(super) struct Service {
    control: OwnedFd,
    /// The set-up message.
    home: Setup,
    epoll: OwnedFd,
    namespaces: Namespaces,
    roots: Roots,
    programs: Programs,
    groups: GroupPool,
    slots: IdSlots,
    /// The handle of init, which kills everything when the last lane has ended.
    init: Option<Init>,
    records: BTreeMap<SandboxToken, SandboxRecord>,
    /// The standard input of every child.
    null: OwnedFd,
    /// The pidfd of this process: readable once it has ended.
    pidfd: OwnedFd,
    /// Files of `/proc` to hide from programs.
    masked: Vec<&'static str>,
    /// The stack of a program until its exec.
    stack: Stack,
    names: HashMap<SandboxId, SandboxToken>,
    next: SandboxToken,
    /// The time of the next look at the memory of sandboxes without control groups.
    look_due: Instant,
}

/// The resources of a lane.
pub(super) struct Tools {
    pub namespaces: Namespaces,
    pub roots: Roots,
    pub programs: Programs,
    pub groups: GroupPool,
    pub slots: IdSlots,
}

/// The subject of an event. The data of an event is the token of a record and one of these.
#[derive(Clone, Copy)]
enum EventSubject {
    Control = 0,
    Process = 1,
    Sync = 2,
    Zygote = 3,
}

const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

impl Service {
    /// Makes the first lane, without sandboxes.
    pub(super) fn new(
        control: OwnedFd,
        home: Setup,
        tools: Tools,
        init: Option<Init>,
    ) -> io::Result<Self> {
        let Tools { namespaces, roots, programs, groups, slots } = tools;
        // Read and cached here, before any process that sees no Landlock.
        landlock::version();
        let service = Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            slots,
            init,
            masked: child::masked(&namespaces)?,
            control,
            home,
            namespaces,
            roots,
            programs,
            groups,
            records: BTreeMap::new(),
            null: std::fs::File::open("/dev/null")?.into(),
            pidfd: pidfd_open(getpid(), PidfdFlags::empty())?,
            stack: Stack::new()?,
            names: HashMap::new(),
            next: 0,
            look_due: Instant::now(),
        };
        service.watch(service.control.as_fd(), EventSubject::Control, 0)?;
        Ok(service)
    }

    /// Serves until the server ends or sends a shutdown request.
    fn serve(&mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(64);
        let mut buffer = vec![0; LONGEST_PACKET];
        loop {
            // Idle time is used to prepare control groups.
            let prepares = self.groups.needs_refill();
            // With groups to make it does not wait for events, but takes those that are there
            // first.
            let timeout = if prepares { Some(NOW) } else { self.time_left() };
            events.clear();
            let free = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&self.epoll, free, timeout.as_ref()) {
                Ok(_) => {}
                // A stop and continue of the process, or a debugger: the events are still there.
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                let token = event.data.u64() >> 2;
                let about = event.data.u64() & 3;
                match about {
                    0 if !self.handle_request(&mut buffer)? => return Ok(()),
                    0 => {}
                    1 => self.process_ended(token),
                    2 => self.on_child_message(token),
                    _ => self.on_zygote_message(token),
                }
            }
            // One group at a time, so that a request waits for the making of one at most.
            if events.is_empty() && prepares {
                self.groups.refill();
            }
            let now = Instant::now();
            // After the events: a child that has reported in time is not failed because its lane
            // was busy.
            self.enforce_deadlines(now);
            self.tidy(now);
            self.look_at_memory(now);
        }
    }

    /// Handles a request of the server; false for a shutdown.
    fn handle_request(&mut self, buffer: &mut [u8]) -> io::Result<bool> {
        let Packet { length, fds, .. } = match packet::receive(&self.control, buffer) {
            Ok(packet) if packet.length > 0 => packet,
            // A server that dies with answers unread resets the connection.
            Err(error) if !control::is_server_gone(&error) => return Err(error),
            _ => return Ok(false),
        };
        let SpawnerRequest { sequence, operation } = serde_json::from_slice(&buffer[..length])?;
        match operation {
            SpawnerOperation::Start(spec) => self.start(sequence, spec, None),
            SpawnerOperation::StartZygote(spec) => self.start_zygote(sequence, spec),
            SpawnerOperation::Fork { zygote, spec } => self.fork(sequence, &zygote, spec),
            SpawnerOperation::StartMany(specs) => {
                for (sequence, spec) in (sequence..).zip(specs) {
                    self.start(sequence, spec, None);
                }
            }
            SpawnerOperation::StartManyIn(programs) => {
                for (sequence, NetworkProgram { program, entry }) in (sequence..).zip(programs) {
                    self.start(sequence, program, entry.as_deref());
                }
            }
            SpawnerOperation::ForkMany { zygote, specs } => {
                self.fork_many(sequence, &zygote, specs)
            }
            SpawnerOperation::Grow { zygote, spec } => self.grow(sequence, &zygote, spec),
            SpawnerOperation::MakeNetwork { network, owner, has_notifier } => {
                self.make_network(sequence, network, owner.as_ref(), has_notifier, fds);
            }
            SpawnerOperation::DropNetwork { network } => {
                drop(self.namespaces.networks.remove(&network))
            }
            SpawnerOperation::Kill { id } => self.kill(&id),
            SpawnerOperation::Retire { id } => self.retire(&id),
            SpawnerOperation::Open { lane } => self.open_lane(lane, fds),
            SpawnerOperation::Shutdown => return Ok(false),
        }
        Ok(true)
    }

    /// Sends an event to the server. The end of the control socket shows a server that has ended.
    fn send_event(&self, event: &SpawnerEvent, fds: &[BorrowedFd<'_>]) {
        if let Ok(bytes) = serde_json::to_vec(event) {
            // The socket blocks, so a server that reads slowly slows this lane down and loses
            // nothing.
            drop(packet::send(&self.control, &bytes, fds));
        }
    }

    /// Reports to the server that nothing was started.
    fn refuse(&self, sequence: u64, failure: StartFailure) {
        if sequence == UNREQUESTED {
            return;
        }
        self.send_event(&SpawnerEvent::Failed { sequence, failure }, &[]);
    }

    /// Registers a descriptor with the event loop.
    fn watch(
        &self,
        fd: BorrowedFd<'_>,
        about: EventSubject,
        token: SandboxToken,
    ) -> io::Result<()> {
        let data = epoll::EventData::new_u64(token << 2 | about as u64);
        Ok(epoll::add(&self.epoll, fd, data, epoll::EventFlags::IN)?)
    }

    /// Unregisters a descriptor from the event loop. Closing it is not enough: the server has a
    /// copy of each pidfd, so the loop would report it forever.
    fn unwatch(&self, fd: BorrowedFd<'_>) {
        // Fails only for a descriptor that is not registered.
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Returns a token for a new sandbox, or the reason why the sandbox is refused.
    fn new_token(&mut self, id: &SandboxId) -> Result<SandboxToken, StartFailure> {
        let refused = |reason: &str| Err(StartFailure::Spec { reason: reason.to_owned() });
        let text = id.as_str();
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if text.is_empty() || text.len() > 100 || !text.chars().all(plain) {
            return refused("its id is not 1 to 100 letters, digits, `-` or `_`");
        }
        // The record is in the map until the sandbox is removed, so an id is never of two
        // sandboxes.
        if self.names.contains_key(id) {
            return refused("a sandbox with that id is running");
        }
        self.next += 1;
        Ok(self.next)
    }

    fn insert(&mut self, token: SandboxToken, record: SandboxRecord) {
        self.names.insert(record.id.clone(), token);
        self.records.insert(token, record);
    }

    fn take(&mut self, token: SandboxToken) -> Option<SandboxRecord> {
        let record = self.records.remove(&token)?;
        self.names.remove(&record.id);
        Some(record)
    }

    fn find(&self, id: &SandboxId) -> Option<SandboxToken> {
        self.names.get(id).copied()
    }

    /// The time until the first deadline; `None` without deadlines.
    fn time_left(&self) -> Option<Timespec> {
        let records = self.records.values().filter_map(SandboxRecord::deadline);
        let first = records.chain(self.groups.next_tidy()).chain(self.next_look()).min()?;
        let left = first.saturating_duration_since(Instant::now()) + DEADLINE_SLACK;
        Some(Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() })
    }

    fn enforce_deadlines(&mut self, now: Instant) {
        let is_late =
            |record: &SandboxRecord| record.deadline().is_some_and(|deadline| deadline <= now);
        let late = self.records.iter().filter(|(_, record)| is_late(record));
        let late: Vec<SandboxToken> = late.map(|(token, _)| *token).collect();
        late.into_iter().for_each(|token| self.on_deadline(token));
    }
}

impl SandboxRecord {
    /// The first deadline: a forked child must report its process, its zygote must report how it
    /// ended, a preforked child expires or is due.
    fn deadline(&self) -> Option<Instant> {
        const STATUS_TIMEOUT: Duration = Duration::from_secs(1);
        match &self.origin {
            ProcessOrigin::Forked(Forked { died: Some(died), .. }) => Some(*died + STATUS_TIMEOUT),
            _ => [self.started_by(), self.preforked_due()].into_iter().flatten().min(),
        }
    }
}
