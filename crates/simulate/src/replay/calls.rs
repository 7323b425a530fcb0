//! What became of each call so far.
//!
//! Invariant: a call goes forward, from one state to the next; calls of one function are placed in
//! the order in which they arrived.

use crate::trace::Arrival;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It has not arrived.
    Ahead,
    Waits,
    /// A host has it, which may still start an instance for it.
    Placed,
    Runs,
    Ended,
    /// No host had room for it in time.
    Expired,
    /// No host can ever have room for it.
    Refused,
}

pub(crate) struct Calls<'a> {
    arrivals: &'a [Arrival],
    states: Vec<State>,
    /// The member that has a placed call.
    members: Vec<u32>,
    /// The call of each function that was placed last.
    last: Vec<Option<u32>>,
    /// Calls that are over.
    pub over: usize,
}

impl<'a> Calls<'a> {
    pub fn new(arrivals: &'a [Arrival], functions: usize) -> Self {
        Self {
            arrivals,
            states: vec![State::Ahead; arrivals.len()],
            members: vec![u32::MAX; arrivals.len()],
            last: vec![None; functions],
            over: 0,
        }
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

    pub fn arrives(&mut self, call: u32) -> Result<(), String> {
        self.goes(call, State::Ahead, State::Waits)
    }

    pub fn is_placed(&mut self, call: u32) -> Result<(), String> {
        self.goes(call, State::Waits, State::Placed)?;
        let function = self.arrival(call).function as usize;
        match self.last[function].replace(call) {
            Some(last) if last > call => {
                Err(format!("call {call} was overtaken by call {last} of the same function"))
            }
            _ => Ok(()),
        }
    }

    pub fn is_on(&mut self, call: u32, member: u32) {
        self.members[call as usize] = member;
    }

    /// It starts, after this time of waiting.
    pub fn starts(&mut self, call: u32, now: u64) -> Result<u64, String> {
        self.goes(call, State::Placed, State::Runs)?;
        let arrived = self.arrival(call).at;
        now.checked_sub(arrived).ok_or_else(|| format!("call {call} starts before it arrives"))
    }

    pub fn ends(&mut self, call: u32) -> Result<(), String> {
        self.over += 1;
        self.goes(call, State::Runs, State::Ended)
    }

    /// It will not run.
    pub fn is_given_up(&mut self, call: u32, state: State) -> Result<(), String> {
        self.over += 1;
        self.goes(call, State::Waits, state)
    }

    /// # Errors
    /// A call that is not over.
    pub fn check(&self) -> Result<(), String> {
        let is_over =
            |state: &State| matches!(state, State::Ended | State::Expired | State::Refused);
        match self.states.iter().position(|state| !is_over(state)) {
            Some(call) => Err(format!("call {call} is lost: it is {:?}", self.states[call])),
            None => Ok(()),
        }
    }

    fn goes(&mut self, call: u32, from: State, to: State) -> Result<(), String> {
        let state = self.states.get_mut(call as usize).ok_or(format!("there is no call {call}"))?;
        match std::mem::replace(state, to) {
            before if before == from => Ok(()),
            before => Err(format!("call {call} was {before:?} and is {to:?}, not after {from:?}")),
        }
    }
}
