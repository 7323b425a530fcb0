//! Pending connections of functions to themselves. The notifier opens them, because the kernel
//! would use the address in the call.
//!
//! Invariant: nothing here blocks. A function has at most [`MAX_PENDING`] pending connections, and
//! one whose caller has died is dropped within [`CHECK_INTERVAL`]. Only a thread that clears the
//! socket's `O_NONBLOCK` during [`step`] can block the calls of its own job, until the job ends.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::net::connect;
use rustix::net::sockopt::{self, Timeout};
use snowmelt_kernel::notify::{CallAnswer, NotifiedCall};

use super::function::NotifiedFunction;

/// The most pending connections of one function. A connection to oneself is pending only while the
/// listen backlog is full.
const MAX_PENDING: usize = 64;
/// The interval between two checks whether callers of pending connections have died.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Marks the keys of pending connections in the notifier's epoll set.
const MARK: u64 = 1 << 63;

/// The pending connections of all functions of a job.
#[derive(Debug, Default)]
pub struct PendingConnections {
    pending: BTreeMap<u64, Pending>,
    next: u64,
}

#[derive(Debug)]
struct Pending {
    function: Arc<NotifiedFunction>,
    call: NotifiedCall,
    /// A duplicate of the function's descriptor.
    socket: OwnedFd,
    to: SocketAddr,
    /// The time at which the socket's send timeout expires.
    until: Option<Instant>,
}

impl PendingConnections {
    /// Whether a key belongs to a pending connection.
    pub fn is_key(key: u64) -> bool {
        key & MARK != 0
    }

    /// Begins a connection; returns the answer, or none if it is pending.
    pub fn begin(
        &mut self,
        epoll: &OwnedFd,
        function: &Arc<NotifiedFunction>,
        call: NotifiedCall,
        socket: OwnedFd,
        to: SocketAddr,
    ) -> Result<Option<CallAnswer>, Errno> {
        // Mostly so: the listener is in the same namespace, and only a full backlog makes it wait.
        if step(&socket, to)?.is_done() {
            return Ok(Some(CallAnswer::Value(0)));
        }
        self.make_room(epoll, function)?;
        // The kernel ends a blocking connect after the socket's own timeout, so the same is done
        // here.
        let limit = sockopt::socket_timeout(&socket, Timeout::Send)?;
        let key = MARK | self.next;
        self.next = (self.next + 1) & !MARK;
        let events = epoll::EventFlags::OUT | epoll::EventFlags::ONESHOT;
        epoll::add(epoll, &socket, epoll::EventData::new_u64(key), events)?;
        let until = limit.map(|limit| Instant::now() + limit);
        let function = function.clone();
        self.pending.insert(key, Pending { function, call, socket, to, until });
        Ok(None)
    }

    /// Continues a connection whose socket is ready.
    pub fn resume(&mut self, epoll: &OwnedFd, key: u64) {
        let Some(one) = self.pending.get(&key) else { return };
        let done = match step(&one.socket, one.to) {
            Ok(ConnectionState::InProgress) => {
                let events = epoll::EventFlags::OUT | epoll::EventFlags::ONESHOT;
                let data = epoll::EventData::new_u64(key);
                match epoll::modify(epoll, &one.socket, data, events) {
                    Ok(()) => return,
                    Err(error) => Err(error),
                }
            }
            Ok(ConnectionState::Done) => Ok(CallAnswer::Value(0)),
            Err(error) => Err(error),
        };
        self.end(epoll, key, done);
    }

    /// Ends connections that have timed out or whose caller has died.
    pub fn drop_expired(&mut self, epoll: &OwnedFd) {
        let now = Instant::now();
        let late = |one: &Pending| one.until.is_some_and(|until| until <= now);
        let dead = |one: &Pending| !one.function.listener.is_waiting(&one.call);
        let ended = self.pending.iter().filter(|(_, one)| late(one) || dead(one));
        for key in ended.map(|(key, _)| *key).collect::<Vec<_>>() {
            // The kernel's error for an expired socket timeout.
            self.end(epoll, key, Err(Errno::INPROGRESS));
        }
    }

    /// Drops the connections of a function that has ended.
    pub fn forget(&mut self, epoll: &OwnedFd, function: &Arc<NotifiedFunction>) {
        let of = self.pending.iter().filter(|(_, one)| Arc::ptr_eq(&one.function, function));
        for key in of.map(|(key, _)| *key).collect::<Vec<_>>() {
            self.end(epoll, key, Err(Errno::CONNABORTED));
        }
    }

    /// The time until [`Self::drop_expired`] must be called next; `None` while no connection is
    /// pending.
    pub fn timeout(&self) -> Option<Duration> {
        let first = self.pending.values().filter_map(|one| one.until).min();
        let left = first.map(|until| until.saturating_duration_since(Instant::now()));
        (!self.pending.is_empty()).then(|| left.unwrap_or(CHECK_INTERVAL).min(CHECK_INTERVAL))
    }

    fn make_room(
        &mut self,
        epoll: &OwnedFd,
        function: &Arc<NotifiedFunction>,
    ) -> Result<(), Errno> {
        let of = |pending: &BTreeMap<u64, Pending>| {
            pending.values().filter(|one| Arc::ptr_eq(&one.function, function)).count()
        };
        if of(&self.pending) >= MAX_PENDING {
            self.drop_expired(epoll);
        }
        if of(&self.pending) < MAX_PENDING { Ok(()) } else { Err(Errno::NOBUFS) }
    }

    fn end(&mut self, epoll: &OwnedFd, key: u64, done: Result<CallAnswer, Errno>) {
        let Some(ended) = self.pending.remove(&key) else { return };
        // The function has the socket open too, so closing the copy does not remove it from epoll.
        let _ = epoll::delete(epoll, &ended.socket);
        // After it is out of the set: the function may close or use the socket as soon as it has
        // its answer.
        ended.function.answer(&ended.call, done);
    }
}

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionState {
    Done,
    InProgress,
}

impl ConnectionState {
    fn is_done(self) -> bool {
        self == Self::Done
    }
}

/// Starts a connection, or continues it, without blocking. A nonblocking socket gets the kernel's
/// error.
fn step(socket: &OwnedFd, to: SocketAddr) -> Result<ConnectionState, Errno> {
    let flags = fcntl_getfl(socket)?;
    let blocking = !flags.contains(OFlags::NONBLOCK);
    if blocking {
        // This sets the function's flag too; the function is blocked in this call.
        fcntl_setfl(socket, flags | OFlags::NONBLOCK)?;
    }
    let done = connect(socket, &to);
    if blocking {
        // Before the function is answered, so that its caller does not see the flag.
        fcntl_setfl(socket, flags)?;
    }
    match done {
        Ok(()) => Ok(ConnectionState::Done),
        Err(Errno::INPROGRESS | Errno::ALREADY) if blocking => Ok(ConnectionState::InProgress),
        Err(error) => Err(error),
    }
}
