//! Connections of functions to themselves that wait to be accepted. The guard opens them, because
//! the kernel would use the address that the call names.
//!
//! Invariant: nothing here blocks. A function has at most [`MOST`] pending connections, and one
//! whose caller has died is dropped within [`LOOKED_EVERY`]. Only a thread that clears the flag of
//! [`step`] at that very moment can block the calls of its own job, until the job ends.

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
use snowmelt_kernel::notify::{Answer, Call};

use super::guard::Function;

/// The most pending connections of one function. A connection to oneself is pending only while the
/// backlog is full.
const MOST: usize = 64;
/// How often connections whose caller has died are looked for.
const LOOKED_EVERY: Duration = Duration::from_secs(1);
/// Marks the keys of pending connections in the guard's epoll set.
const MARK: u64 = 1 << 63;

/// The pending connections of all functions of a job.
#[derive(Debug, Default)]
pub struct Connecting {
    waiting: BTreeMap<u64, Waiting>,
    next: u64,
}

#[derive(Debug)]
struct Waiting {
    function: Arc<Function>,
    call: Call,
    /// A copy of the function's descriptor.
    socket: OwnedFd,
    to: SocketAddr,
    /// When the function's own time limit ends.
    until: Option<Instant>,
}

impl Connecting {
    /// Whether a key belongs to a pending connection.
    pub fn is_key(key: u64) -> bool {
        key & MARK != 0
    }

    /// Begins a connection: the answer, or none if it comes later.
    pub fn begin(
        &mut self,
        epoll: &OwnedFd,
        (function, call): (&Arc<Function>, Call),
        (socket, to): (OwnedFd, SocketAddr),
    ) -> Result<Option<Answer>, Errno> {
        if step(&socket, to)?.is_done() {
            return Ok(Some(Answer::Value(0)));
        }
        self.make_room(epoll, function)?;
        let limit = sockopt::socket_timeout(&socket, Timeout::Send)?;
        let key = MARK | self.next;
        self.next = (self.next + 1) & !MARK;
        let events = epoll::EventFlags::OUT | epoll::EventFlags::ONESHOT;
        epoll::add(epoll, &socket, epoll::EventData::new_u64(key), events)?;
        let until = limit.map(|limit| Instant::now() + limit);
        let function = function.clone();
        self.waiting.insert(key, Waiting { function, call, socket, to, until });
        Ok(None)
    }

    /// Continues a connection whose socket is ready.
    pub fn go_on(&mut self, epoll: &OwnedFd, key: u64) {
        let Some(waiting) = self.waiting.get(&key) else { return };
        let done = match step(&waiting.socket, waiting.to) {
            Ok(Progress::Waits) => {
                let events = epoll::EventFlags::OUT | epoll::EventFlags::ONESHOT;
                let data = epoll::EventData::new_u64(key);
                match epoll::modify(epoll, &waiting.socket, data, events) {
                    Ok(()) => return,
                    Err(error) => Err(error),
                }
            }
            Ok(Progress::Done) => Ok(Answer::Value(0)),
            Err(error) => Err(error),
        };
        self.end(epoll, key, done);
    }

    /// Ends connections whose time is up or whose caller has died.
    pub fn look(&mut self, epoll: &OwnedFd) {
        let now = Instant::now();
        let late = |waiting: &Waiting| waiting.until.is_some_and(|until| until <= now);
        let dead = |waiting: &Waiting| !waiting.function.listener.is_waiting(&waiting.call);
        let ended = self.waiting.iter().filter(|(_, one)| late(one) || dead(one));
        for key in ended.map(|(key, _)| *key).collect::<Vec<_>>() {
            // The kernel's error when a time limit of the socket is reached.
            self.end(epoll, key, Err(Errno::INPROGRESS));
        }
    }

    /// Drops the connections of a function that has ended.
    pub fn forget(&mut self, epoll: &OwnedFd, function: &Arc<Function>) {
        let of = self.waiting.iter().filter(|(_, one)| Arc::ptr_eq(&one.function, function));
        for key in of.map(|(key, _)| *key).collect::<Vec<_>>() {
            self.end(epoll, key, Err(Errno::CONNABORTED));
        }
    }

    /// After how long [`Self::look`] is to be called; none while nothing waits.
    pub fn patience(&self) -> Option<Duration> {
        let first = self.waiting.values().filter_map(|one| one.until).min();
        let left = first.map(|until| until.saturating_duration_since(Instant::now()));
        (!self.waiting.is_empty()).then(|| left.unwrap_or(LOOKED_EVERY).min(LOOKED_EVERY))
    }

    fn make_room(&mut self, epoll: &OwnedFd, function: &Arc<Function>) -> Result<(), Errno> {
        let of = |waiting: &BTreeMap<u64, Waiting>| {
            waiting.values().filter(|one| Arc::ptr_eq(&one.function, function)).count()
        };
        if of(&self.waiting) >= MOST {
            self.look(epoll);
        }
        if of(&self.waiting) < MOST { Ok(()) } else { Err(Errno::NOBUFS) }
    }

    fn end(&mut self, epoll: &OwnedFd, key: u64, done: Result<Answer, Errno>) {
        let Some(ended) = self.waiting.remove(&key) else { return };
        // The function has the same socket, so closing the copy would not end the connection.
        let _ = epoll::delete(epoll, &ended.socket);
        ended.function.answer(&ended.call, done);
    }
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Done,
    Waits,
}

impl Progress {
    fn is_done(self) -> bool {
        self == Self::Done
    }
}

/// Opens a connection, or finds out how far it is, without blocking. A nonblocking socket gets the
/// error that the kernel would give.
fn step(socket: &OwnedFd, to: SocketAddr) -> Result<Progress, Errno> {
    let flags = fcntl_getfl(socket)?;
    let waits = !flags.contains(OFlags::NONBLOCK);
    if waits {
        // This sets the function's flag too; the function is blocked in this very call.
        fcntl_setfl(socket, flags | OFlags::NONBLOCK)?;
    }
    let done = connect(socket, &to);
    if waits {
        fcntl_setfl(socket, flags)?;
    }
    match done {
        Ok(()) => Ok(Progress::Done),
        Err(Errno::INPROGRESS | Errno::ALREADY) if waits => Ok(Progress::Waits),
        Err(error) => Err(error),
    }
}
