//! The state of each call of a replay.
//!
//! Invariant: a call goes forward, from one state to the next. It goes back only if it was on a
//! host that failed, or is asynchronous and found no host. Requests for hosts of one function are
//! placed in the order in which they were made, except for those that come back.

use std::collections::{HashMap, HashSet};

use snowmelt_schedule::Ticket;

use crate::trace::Arrival;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The call has not arrived.
    Ahead,
    Waits,
    /// The call is on a host, which may still start an instance for it.
    Placed,
    Runs,
    /// The call is on a host that has failed, which nobody has noticed yet.
    Lost,
    /// The call will be requested again.
    Pauses,
    Ended,
    /// The call expired: no host had room for it in time.
    Expired,
    /// The call was refused: no host can ever have room for it.
    Refused,
    /// The call failed: its host was lost, and it is not asynchronous.
    Failed,
}

pub(crate) struct ReplayCalls<'a> {
    arrivals: &'a [Arrival],
    /// For each call, whether it is asynchronous. Empty if none is.
    asynchronous: Vec<bool>,
    states: Vec<State>,
    /// For each call, the member (a function on a host) that it was placed on.
    members: Vec<u32>,
    /// The number of times that each call was lost with its host.
    losses: HashMap<u32, u32>,
    /// The number of times that each asynchronous call was requested again.
    tries: HashMap<u32, u32>,
    has_started: Vec<bool>,
    /// For each ticket, its call and the end of its patience, in nanoseconds.
    tickets: Vec<(u32, u64)>,
    /// The last ticket of each call.
    last_tickets: Vec<Ticket>,
    /// The tickets that wait a second time.
    back: HashSet<Ticket>,
    /// The ticket of the first call.
    first_ticket: Ticket,
    /// For each function, the ticket that was placed last.
    last: Vec<Option<Ticket>>,
    /// The number of calls that are over.
    pub over: usize,
}

impl<'a> ReplayCalls<'a> {
    pub fn new(arrivals: &'a [Arrival], functions: usize, asynchronous: Vec<bool>) -> Self {
        Self {
            arrivals,
            asynchronous,
            states: vec![State::Ahead; arrivals.len()],
            members: vec![u32::MAX; arrivals.len()],
            losses: HashMap::new(),
            tries: HashMap::new(),
            has_started: vec![false; arrivals.len()],
            tickets: Vec::with_capacity(arrivals.len()),
            last_tickets: vec![Ticket::MAX; arrivals.len()],
            back: HashSet::new(),
            first_ticket: 0,
            last: vec![None; functions],
            over: 0,
        }
    }

    /// Sets the first ticket of the calls.
    pub fn begin(&mut self, first: Ticket) {
        self.first_ticket = first;
    }

    pub fn arrival(&self, call: u32) -> Arrival {
        self.arrivals[call as usize]
    }

    pub fn member(&self, call: u32) -> u32 {
        self.members[call as usize]
    }

    pub fn state(&self, call: u32) -> State {
        self.states[call as usize]
    }

    pub fn is_asynchronous(&self, call: u32) -> bool {
        self.asynchronous.get(call as usize).copied().unwrap_or(false)
    }

    /// The number of times that a call was lost. Events that were planned with a smaller number are
    /// out of date.
    pub fn losses(&self, call: u32) -> u32 {
        self.losses.get(&call).copied().unwrap_or(0)
    }

    /// The call of a ticket.
    pub fn of(&self, ticket: Ticket) -> Result<u32, String> {
        self.asked(ticket).map(|(call, _)| call)
    }

    /// The ticket with which a call waits or runs.
    pub fn ticket(&self, call: u32) -> Ticket {
        self.last_tickets[call as usize]
    }

    /// The moment at which the patience of a call is over, in nanoseconds.
    pub fn deadline(&self, call: u32) -> Result<u64, String> {
        self.asked(self.ticket(call)).map(|(_, deadline)| deadline)
    }

    /// Notes that a call arrives or is requested again, with this ticket of the scheduler.
    pub fn is_asked(&mut self, call: u32, ticket: Ticket, deadline: u64) -> Result<(), String> {
        if ticket != self.first_ticket + self.tickets.len() as u64 {
            return Err(format!("call {call} has ticket {ticket}"));
        }
        self.tickets.push((call, deadline));
        self.last_tickets[call as usize] = ticket;
        match self.state(call) {
            State::Pauses => self.goes(call, State::Pauses, State::Waits),
            _ => self.goes(call, State::Ahead, State::Waits),
        }
    }

    pub fn is_placed(&mut self, call: u32) -> Result<(), String> {
        self.goes(call, State::Waits, State::Placed)?;
        let ticket = self.ticket(call);
        if self.back.remove(&ticket) {
            return Ok(());
        }
        let function = self.arrival(call).function as usize;
        match self.last[function].replace(ticket) {
            Some(last) if last > ticket => {
                Err(format!("call {call} was overtaken by another one of the same function"))
            }
            _ => Ok(()),
        }
    }

    pub fn is_on(&mut self, call: u32, member: u32) {
        self.members[call as usize] = member;
    }

    /// Notes that a call starts. Returns how long it waited, in nanoseconds, if it starts for the
    /// first time.
    pub fn starts(&mut self, call: u32, now: u64) -> Result<Option<u64>, String> {
        self.goes(call, State::Placed, State::Runs)?;
        let arrived = self.arrival(call).at;
        let waited = now
            .checked_sub(arrived)
            .ok_or_else(|| format!("call {call} starts before it arrives"))?;
        let is_first = !std::mem::replace(&mut self.has_started[call as usize], true);
        Ok(is_first.then_some(waited))
    }

    pub fn ends(&mut self, call: u32) -> Result<(), String> {
        self.over += 1;
        self.goes(call, State::Runs, State::Ended)
    }

    /// Notes that a call will not run, with its last state.
    pub fn is_given_up(&mut self, call: u32, state: State) -> Result<(), String> {
        self.over += 1;
        self.goes(call, State::Waits, state)
    }

    /// Returns the calls that are on these members, among those with numbers below `until`.
    pub fn on(&self, members: &HashSet<u32>, until: u32) -> Vec<u32> {
        let is_there = |call: &u32| {
            matches!(self.state(*call), State::Placed | State::Runs)
                && members.contains(&self.member(*call))
        };
        (0..until).filter(is_there).collect()
    }

    /// Notes that a call is on a host that has failed, or fails now.
    pub fn is_lost(&mut self, call: u32) -> Result<(), String> {
        *self.losses.entry(call).or_default() += 1;
        match self.state(call) {
            State::Runs => self.goes(call, State::Runs, State::Lost),
            _ => self.goes(call, State::Placed, State::Lost),
        }
    }

    /// Puts a call back in the queue where it stood before, because its failed host had not begun
    /// with it.
    pub fn is_back(&mut self, call: u32) -> Result<(), String> {
        self.back.insert(self.ticket(call));
        self.goes(call, State::Placed, State::Waits)
    }

    /// Fails a call whose host is now known to be lost.
    pub fn fails(&mut self, call: u32) -> Result<(), String> {
        self.over += 1;
        self.goes(call, State::Lost, State::Failed)
    }

    /// Makes an asynchronous call pause that was lost or found no host. Returns how often it has
    /// paused before.
    pub fn pauses(&mut self, call: u32, was: State) -> Result<u32, String> {
        let tries = self.tries.entry(call).or_default();
        *tries += 1;
        let before = *tries - 1;
        self.goes(call, was, State::Pauses).map(|()| before)
    }

    /// Checks that all calls are over.
    ///
    /// # Errors
    /// A call is not over: the message names the first one.
    pub fn check(&self) -> Result<(), String> {
        let is_over = |state: &State| {
            matches!(state, State::Ended | State::Expired | State::Refused | State::Failed)
        };
        match self.states.iter().position(|state| !is_over(state)) {
            Some(call) => Err(format!("call {call} is lost: it is {:?}", self.states[call])),
            None => Ok(()),
        }
    }

    fn asked(&self, ticket: Ticket) -> Result<(u32, u64), String> {
        let number = ticket.checked_sub(self.first_ticket).map(|number| number as usize);
        let asked = number.and_then(|number| self.tickets.get(number));
        asked.copied().ok_or_else(|| format!("there is no ticket {ticket}"))
    }

    fn goes(&mut self, call: u32, from: State, to: State) -> Result<(), String> {
        let state = self.states.get_mut(call as usize).ok_or(format!("there is no call {call}"))?;
        match std::mem::replace(state, to) {
            before if before == from => Ok(()),
            before => Err(format!("call {call} was {before:?} and is {to:?}, not after {from:?}")),
        }
    }
}
