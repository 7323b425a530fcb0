//! Turns to compute, in which sources of connections alternate.
//!
//! Invariant: however many connections of one source wait, the next connection of another source
//! waits for at most one of each source. A connection that is gone meanwhile gets no turn, and
//! takes no room.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::sync::oneshot;

/// The number of waiting connections of one source from which on those that are gone are looked
/// for.
const MANY: usize = 128;

/// The turns to compute, a limited number at one time.
pub(crate) struct Turns {
    state: Mutex<State>,
}

struct State {
    free: usize,
    /// The waiting connections by source; no list is empty.
    waiting: HashMap<IpAddr, VecDeque<oneshot::Sender<Turn>>>,
    /// The sources that wait, the next one first.
    order: VecDeque<IpAddr>,
}

impl Turns {
    /// Makes turns, `free` of them at one time.
    pub fn new(free: usize) -> Arc<Self> {
        let state = State { free, waiting: HashMap::new(), order: VecDeque::new() };
        Arc::new(Self { state: Mutex::new(state) })
    }

    /// Takes a turn, or returns the receiver on which it will come.
    fn take(self: &Arc<Self>, source: IpAddr) -> Result<Turn, oneshot::Receiver<Turn>> {
        let mut state = self.lock();
        if state.free > 0 {
            state.free -= 1;
            return Ok(Turn { turns: Some(Arc::clone(self)) });
        }
        let (sender, receiver) = oneshot::channel();
        let own = state.waiting.entry(source).or_default();
        let is_first = own.is_empty();
        if own.len() >= MANY {
            own.retain(|waiting| !waiting.is_closed());
        }
        own.push_back(sender);
        if is_first {
            state.order.push_back(source);
        }
        Err(receiver)
    }

    /// Passes a turn that is over to the next connection.
    fn pass_on(self: &Arc<Self>) {
        loop {
            let mut state = self.lock();
            let Some(next) = state.next() else {
                state.free += 1;
                return;
            };
            drop(state);
            match next.send(Turn { turns: Some(Arc::clone(self)) }) {
                Ok(()) => return,
                // It has gone; the turn is still ours.
                Err(mut turn) => turn.turns = None,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn next(&mut self) -> Option<oneshot::Sender<Turn>> {
        let source = self.order.pop_front()?;
        let own = self.waiting.get_mut(&source)?;
        let next = own.pop_front();
        match own.is_empty() {
            true => drop(self.waiting.remove(&source)),
            false => self.order.push_back(source),
        }
        next
    }
}

/// A turn until it is dropped.
pub(crate) struct Turn {
    /// The place to which the turn goes back; `None` if it was not taken.
    turns: Option<Arc<Turns>>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(turns) = self.turns.take() {
            turns.pass_on();
        }
    }
}

/// A connection that takes turns.
pub(crate) struct TurnWaiter {
    turns: Arc<Turns>,
    source: IpAddr,
    waits: Option<oneshot::Receiver<Turn>>,
}

impl TurnWaiter {
    pub fn new(turns: Arc<Turns>, source: IpAddr) -> Self {
        Self { turns, source, waits: None }
    }

    /// Waits for the next turn.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<Turn> {
        loop {
            let Some(waits) = &mut self.waits else {
                match self.turns.take(self.source) {
                    Ok(turn) => return Poll::Ready(turn),
                    Err(waits) => self.waits = Some(waits),
                }
                continue;
            };
            let turn = ready!(Pin::new(waits).poll(context));
            self.waits = None;
            if let Ok(turn) = turn {
                return Poll::Ready(turn);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUSY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    fn waits(turns: &Arc<Turns>, source: IpAddr) -> oneshot::Receiver<Turn> {
        turns.take(source).err().unwrap()
    }

    #[test]
    fn a_source_with_many_does_not_keep_another_one_from_its_turn() {
        let turns = Turns::new(1);
        let first = turns.take(BUSY).ok().unwrap();
        let mut many: Vec<_> = (0..1000).map(|_| waits(&turns, BUSY)).collect();
        let mut distant = waits(&turns, OTHER);
        assert!(distant.try_recv().is_err());
        drop(first);
        let second = many[0].try_recv().unwrap();
        drop(second);
        let own = distant.try_recv().unwrap();
        drop(own);
        let served = |many: &mut Vec<oneshot::Receiver<Turn>>| {
            many.iter_mut().filter_map(|one| one.try_recv().ok()).count()
        };
        assert_eq!(served(&mut many), 999, "each turn that ends gives the next one");
        assert!(turns.take(OTHER).is_ok(), "and the last one leaves it free");
    }

    #[test]
    fn who_has_gone_gets_no_turn_and_takes_no_room() {
        let turns = Turns::new(1);
        let first = turns.take(BUSY).ok().unwrap();
        for _ in 0..10 * MANY {
            drop(waits(&turns, BUSY));
        }
        assert!(turns.lock().waiting[&BUSY].len() <= MANY);
        let mut last = waits(&turns, OTHER);
        drop(first);
        let turn = last.try_recv().unwrap();
        // One that has its turn, and goes before it knows of it.
        let gone = waits(&turns, OTHER);
        drop(turn);
        let mut next = waits(&turns, BUSY);
        drop(gone);
        assert!(next.try_recv().is_ok());
    }
}
