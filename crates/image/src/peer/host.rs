//! Another host: its connections, and what it did wrong.
//!
//! Invariant: a host that sent a wrong block is not asked again as long as this process lives. A
//! host that did not answer in time is left alone for [`Patience::rest`].

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

use super::protocol::{AnswerPart, AnswerReader, PeerRefusal, RangeRequest};
use super::transfer_rates::Meter;
use crate::Result;

/// The most requests to one host at the same time, each on a connection of its own.
const REQUESTS: usize = 4;

/// How much longer than the requested time a host is waited for: it says then why it has nothing.
const MARGIN: Duration = Duration::from_secs(1);

/// The most doublings of the time for which a slow host is left alone: up to some minutes.
const MAX_DOUBLED: u32 = 5;

/// Another host of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PeerHost {
    /// The name of the host, for messages.
    pub name: String,
    /// The address at which the host is reached.
    pub address: SocketAddr,
}

/// Opens connections to other hosts.
#[async_trait]
pub trait Connect: Send + Sync {
    /// Opens a connection whose other end is served by [`super::Exports::serve`].
    async fn connect(&self, host: &PeerHost) -> Result<Box<dyn PeerLink>>;

    /// Notes that a host has sent a wrong block. Called once for each host.
    fn expelled(&self, _host: &PeerHost) {}
}

/// A connection in both directions.
pub trait PeerLink: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> PeerLink for T {}

/// The times for which another host is waited for before the registry is asked.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// The time for the connection, and without any sign that the host is at work.
    pub silence: Duration,
    /// The time for the next bytes of a host that is at work: it may wait for its own parent.
    pub work: Duration,
    /// The least rate of an answer in bytes a second, once it has lasted as long as `work`.
    pub rate: u64,
    /// How long a host has to send before its rate is known.
    pub proven: Duration,
    /// How long a host is left alone that did not answer in time.
    pub rest: Duration,
}

impl Default for Patience {
    /// Hosts share their links with other requests, so a single answer may be slow.
    fn default() -> Self {
        let seconds = Duration::from_secs;
        let silence = seconds(5);
        let work = seconds(30);
        let proven = seconds(5);
        let rest = seconds(10);
        Self { silence, work, rate: 64 << 10, proven, rest }
    }
}

/// The reason why a host did not send the rest of what it was asked for.
#[derive(Debug)]
pub(super) enum PeerFailure {
    /// The host answers, and refuses the request.
    Refused(PeerRefusal),
    /// The connection ended, or the host breaks the protocol.
    Broken(String),
    /// Bytes of the host were damaged, by itself or on their way.
    Damaged,
    /// The host does not answer in time.
    Late,
    /// The host answers, but slower than [`Patience::rate`], or than its share of the link.
    Slow,
}

impl PeerFailure {
    fn of(error: &io::Error) -> Self {
        match error.get_ref().is_some_and(<dyn StdError + Send + Sync>::is::<LinkDamage>) {
            true => Self::Damaged,
            false => Self::Broken(error.to_string()),
        }
    }
}

/// The error of a link that has found out by itself that bytes of the other host are damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkDamage;

impl fmt::Display for LinkDamage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes of another host arrived damaged")
    }
}

impl StdError for LinkDamage {}

/// A host, and what is known of it. All images that are read from the host have one in common.
pub(super) struct PeerState {
    pub host: PeerHost,
    idle: Mutex<Vec<Box<dyn PeerLink>>>,
    requests: Arc<Semaphore>,
    state: Mutex<State>,
    meter: Mutex<Meter>,
    /// How often the host was left because it was slow.
    times_slow: AtomicU32,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Usable,
    RestsUntil(Instant),
    Expelled,
}

/// An answer that is being received. Dropped before its end, it closes its connection.
pub(super) struct PeerAnswer {
    peer: Arc<PeerState>,
    link: Box<dyn PeerLink>,
    reading: AnswerReader,
    first: Option<Bytes>,
    patience: Patience,
    begun: Instant,
    received: u64,
    sending: Option<PieceTimer>,
    permit: Option<OwnedSemaphorePermit>,
}

/// A piece that a host sends. Its time ends when this is dropped.
struct PieceTimer(Arc<PeerState>);

impl PeerState {
    pub fn new(host: PeerHost) -> Self {
        let idle = Mutex::default();
        let state = Mutex::new(State::Usable);
        let meter = Mutex::default();
        let requests = Arc::new(Semaphore::new(REQUESTS));
        let times_slow = AtomicU32::new(0);
        Self { host, idle, requests, state, meter, times_slow }
    }

    /// Returns whether the host may be asked now.
    pub fn is_usable(&self) -> bool {
        match *self.state() {
            State::Usable => true,
            State::RestsUntil(time) => Instant::now() >= time,
            State::Expelled => false,
        }
    }

    /// Returns whether the host sent a wrong block.
    pub fn is_expelled(&self) -> bool {
        matches!(*self.state(), State::Expelled)
    }

    /// Leaves the host alone for a time.
    pub fn rest(&self, time: Duration) {
        let mut state = self.state();
        if !matches!(*state, State::Expelled) {
            *state = State::RestsUntil(Instant::now() + time);
        }
        drop(state);
        self.idle().clear();
    }

    /// Returns the rate at which the host sends to this one, in bytes a second, once that is known.
    pub fn rate(&self, proven: Duration) -> Option<f64> {
        self.meter().rate(proven)
    }

    /// Leaves it alone because it is slow, each time for longer: sources that are about as fast
    /// must not be exchanged again and again.
    pub fn rest_slow(&self, time: Duration) {
        let before = self.times_slow.fetch_add(1, Ordering::Relaxed).min(MAX_DOUBLED);
        self.meter().forget();
        self.rest(time * (1 << before));
    }

    /// Expels the host, which is never asked again. Returns true the first time.
    pub fn expel(&self) -> bool {
        // Whatever the state was: no later rest makes the host usable again.
        let before = std::mem::replace(&mut *self.state(), State::Expelled);
        // Its open connections are not used either.
        self.idle().clear();
        !matches!(before, State::Expelled)
    }

    /// Asks for a range; returns when its first bytes are there.
    pub async fn ask(
        self: &Arc<Self>,
        connect: &dyn Connect,
        request: &RangeRequest,
        patience: Patience,
    ) -> Result<PeerAnswer, PeerFailure> {
        let length = request.length().ok_or(PeerFailure::Refused(PeerRefusal::Range))?;
        // No longer than the request itself may take: the registry can be asked instead.
        let permit = timeout(request.within, Arc::clone(&self.requests).acquire_owned()).await;
        // It is not asked, so this says nothing about it.
        let permit = permit.map_err(|_| PeerFailure::Refused(PeerRefusal::Absent))?;
        let permit =
            permit.map_err(|_| PeerFailure::Broken("it is not asked any more".to_owned()))?;
        // What was asked before may have failed meanwhile.
        if !self.is_usable() {
            return Err(PeerFailure::Late);
        }
        let mut permit = Some(permit);
        loop {
            let idle = self.idle().pop();
            let is_fresh = idle.is_none();
            let link = match idle {
                Some(link) => link,
                None => self.open(connect, patience).await?,
            };
            let peer = Arc::clone(self);
            let reading = AnswerReader::new(length);
            let begun = Instant::now();
            let first = None;
            let received = 0;
            let sending = None;
            let permit_of = permit.take();
            let mut answer = PeerAnswer {
                peer,
                link,
                reading,
                first,
                patience,
                begun,
                received,
                sending,
                permit: permit_of,
            };
            match answer.begin(request).await {
                // The other end has closed an idle connection.
                Err(PeerFailure::Broken(_)) if !is_fresh => permit = answer.permit,
                begun => return begun.map(|()| answer),
            }
        }
    }

    async fn open(
        &self,
        connect: &dyn Connect,
        patience: Patience,
    ) -> Result<Box<dyn PeerLink>, PeerFailure> {
        let opened = timeout(patience.silence, connect.connect(&self.host)).await;
        opened
            .map_err(|_| PeerFailure::Late)?
            .map_err(|error| PeerFailure::Broken(error.to_string()))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn meter(&self) -> MutexGuard<'_, Meter> {
        self.meter.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Box<dyn PeerLink>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PeerAnswer {
    /// Returns the next bytes. After the last ones a later request reuses the connection.
    pub async fn next(&mut self) -> Result<Bytes, PeerFailure> {
        if let Some(first) = self.first.take() {
            return Ok(first);
        }
        let took = self.begun.elapsed();
        let least = self.patience.rate.saturating_mul(took.as_secs());
        // Not from the start: the parent may have had to wait for its own parent first.
        if took > self.patience.work && self.received < least {
            return Err(PeerFailure::Slow);
        }
        self.receive(self.patience.work).await
    }

    /// Returns whether all bytes were returned.
    pub fn is_over(&self) -> bool {
        self.first.is_none() && self.reading.left == 0
    }

    /// Keeps the connection of a whole answer for the next request.
    pub fn keep(self) {
        let Self { peer, link, reading, .. } = self;
        let mut idle = peer.idle();
        // A connection in the middle of an answer would give its rest to the next request.
        if reading.left == 0 && idle.len() < REQUESTS {
            idle.push(link);
        }
    }

    async fn begin(&mut self, request: &RangeRequest) -> Result<(), PeerFailure> {
        let silence = self.patience.silence.min(request.within);
        let written = timeout(silence, request.write(&mut *self.link)).await;
        written
            .map_err(|_| PeerFailure::Late)?
            .map_err(|error| PeerFailure::Broken(error.to_string()))?;
        self.first = Some(self.receive(self.patience.work.min(request.within + MARGIN)).await?);
        Ok(())
    }

    /// Returns the next bytes. The host may be at work for up to `work`.
    async fn receive(&mut self, work: Duration) -> Result<Bytes, PeerFailure> {
        let asked = Instant::now();
        while asked.elapsed() < work {
            let part = timeout(self.patience.silence, self.reading.next(&mut *self.link)).await;
            match part.map_err(|_| PeerFailure::Late)? {
                Ok(AnswerPart::Begins) => self.sending = Some(PieceTimer::begin(&self.peer)),
                Ok(AnswerPart::Bytes(bytes)) => {
                    let count = bytes.len() as u64;
                    self.received += count;
                    self.peer.meter().add(count, Instant::now());
                    if !self.reading.is_in_piece() {
                        // The piece is over: while the host waits for its own next one, its rate is
                        // not measured.
                        self.sending = None;
                    }
                    return Ok(bytes);
                }
                Ok(AnswerPart::AtWork) => {}
                Ok(AnswerPart::Refusal(refusal)) => return Err(PeerFailure::Refused(refusal)),
                Err(error) => return Err(PeerFailure::of(&error)),
            }
        }
        Err(PeerFailure::Late)
    }
}

impl PieceTimer {
    fn begin(peer: &Arc<PeerState>) -> Self {
        peer.meter().begin(Instant::now());
        Self(Arc::clone(peer))
    }
}

impl Drop for PieceTimer {
    fn drop(&mut self) {
        self.0.meter().end(Instant::now());
    }
}

impl fmt::Display for PeerFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(PeerRefusal::Missing) => f.write_str("it does not have the blob"),
            Self::Refused(PeerRefusal::Range) => f.write_str("the range is refused"),
            Self::Refused(PeerRefusal::Absent) => f.write_str("it does not have the range yet"),
            Self::Refused(PeerRefusal::Unavailable(why)) | Self::Broken(why) => f.write_str(why),
            Self::Damaged => f.write_str("what it sends arrives damaged"),
            Self::Late => f.write_str("it does not answer in time"),
            Self::Slow => f.write_str("it sends too slowly"),
        }
    }
}

impl fmt::Display for PeerHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.address)
    }
}
