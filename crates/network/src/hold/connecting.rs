//! Connections of functions to themselves that wait for the other end: the guard opens these,
//! because the kernel would go where the call says.
//!
//! Invariant: nothing here waits, a function has at most [`MOST`] that do, and one whose caller has
//! died is let go of within [`LOOKED_EVERY`]. Only a thread that undoes [`step`]'s flag in the very
//! moment can have its own job's calls wait, until the job ends.

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

/// The most that one function has waiting. A connection to oneself waits only while nobody takes
/// those before it.
const MOST: usize = 64;
/// How often those whose caller has died are looked for.
const LOOKED_EVERY: Duration = Duration::from_secs(1);
/// Marks the keys of these among what the guard waits at.
const MARK: u64 = 1 << 63;

/// Those of all functions of a job.
#[derive(Debug, Default)]
pub struct Connecting {
    waiting: BTreeMap<u64, Waiting>,
    next: u64,
}

#[derive(Debug)]
struct Waiting {
    function: Arc<Function>,
    call: Call,
    /// A copy of the function's.
    socket: OwnedFd,
    to: SocketAddr,
    /// Until when the function wants to wait.
    until: Option<Instant>,
}

impl Connecting {
    /// Whether a key is one of these.
    pub fn is_key(key: u64) -> bool {
        key & MARK != 0
    }

    /// Begins one: the answer, or none if it comes later.
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

    /// Goes on with one whose socket has something to say.
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

    /// Ends those whose time is up and those whose caller has died.
    pub fn look(&mut self, epoll: &OwnedFd) {
        let now = Instant::now();
        let late = |waiting: &Waiting| waiting.until.is_some_and(|until| until <= now);
        let dead = |waiting: &Waiting| !waiting.function.listener.is_waiting(&waiting.call);
        let ended = self.waiting.iter().filter(|(_, one)| late(one) || dead(one));
        for key in ended.map(|(key, _)| *key).collect::<Vec<_>>() {
            // What the kernel says to whoever set a limit of time.
            self.end(epoll, key, Err(Errno::INPROGRESS));
        }
    }

    /// Lets go of those of a function that has ended.
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
        // The function has the same socket, so closing the copy would not do it.
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

/// Opens a connection, or finds out how far it is, without waiting for it. A socket that does not
/// wait is told so as by the kernel.
fn step(socket: &OwnedFd, to: SocketAddr) -> Result<Progress, Errno> {
    let flags = fcntl_getfl(socket)?;
    let waits = !flags.contains(OFlags::NONBLOCK);
    if waits {
        // The function's too, for this moment: it waits in this very call.
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
