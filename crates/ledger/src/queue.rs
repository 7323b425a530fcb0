//! The requests that wait for room. Each tenant has two lines, one of calls and one of everything
//! else, each in the order in which requests came. In a single line, a call would wait for all
//! queries that its tenant has asked for before.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use snowmelt_types::Tenant;

use crate::{RoomRequest, Use};

/// Hands over what was booked for a request; called once, without the lock of the account.
pub(crate) type Deliver = Box<dyn FnOnce(RoomRequest) + Send>;

/// A request that waits.
pub(crate) struct RoomWaiter {
    pub number: u64,
    pub ask: RoomRequest,
    pub deliver: Deliver,
}

impl fmt::Debug for RoomWaiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, ask, .. } = self;
        f.debug_struct("Waiter").field("number", number).field("ask", ask).finish_non_exhaustive()
    }
}

/// The line of its tenant in which a request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Line {
    /// Instances of deployed functions.
    Calls,
    /// Queries with everything that they use, bursts and zygotes.
    Rest,
}

impl Line {
    /// The line of a use.
    pub fn of(use_: Use) -> Self {
        if use_ == Use::Function { Self::Calls } else { Self::Rest }
    }
}

/// Orders two requests: the smaller share goes first, then the older request.
fn before(a: &(f64, &RoomWaiter), b: &(f64, &RoomWaiter)) -> std::cmp::Ordering {
    a.0.total_cmp(&b.0).then(a.1.number.cmp(&b.1.number))
}

/// All requests that wait.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    tenants: BTreeMap<Tenant, BTreeMap<Line, VecDeque<RoomWaiter>>>,
    length: usize,
    last: u64,
}

impl Queue {
    /// Adds a request. Returns its number.
    pub fn push(&mut self, ask: RoomRequest, deliver: Deliver) -> u64 {
        self.last += 1;
        self.length += 1;
        let number = self.last;
        let tenant = ask.tenant.clone();
        let line = Line::of(ask.use_);
        let lines = self.tenants.entry(tenant).or_default();
        lines.entry(line).or_default().push_back(RoomWaiter { number, ask, deliver });
        number
    }

    /// Returns the request that goes next: of the tenant with the smallest share, the oldest
    /// request of the line with the smaller share. Among equal shares, the older request goes
    /// first.
    pub fn next(
        &self,
        share: impl Fn(&Tenant) -> f64,
        share_of_line: impl Fn(&Tenant, Line) -> f64,
    ) -> Option<&RoomRequest> {
        let heads = self.tenants.iter().filter_map(|(tenant, lines)| {
            let heads = lines.iter().filter_map(|(line, all)| Some((line, all.front()?)));
            let shared = heads.map(|(line, head)| (share_of_line(tenant, *line), head));
            Some((share(tenant), shared.min_by(before)?.1))
        });
        heads.min_by(before).map(|(_, waiter)| &waiter.ask)
    }

    /// Removes the oldest request in the line of this request.
    pub fn pop(&mut self, next: &RoomRequest) -> Option<RoomWaiter> {
        let waiter = self.line(next)?.pop_front();
        self.removed(next, waiter.is_some());
        waiter
    }

    /// Removes a request that is given up. Returns false if it does not wait any more.
    pub fn remove(&mut self, ask: &RoomRequest, number: u64) -> bool {
        let Some(waiters) = self.line(ask) else { return false };
        // Numbers grow from the front to the back.
        let found = waiters.binary_search_by_key(&number, |waiter| waiter.number);
        let is_removed = found.is_ok_and(|index| waiters.remove(index).is_some());
        self.removed(ask, is_removed);
        is_removed
    }

    pub fn len(&self) -> usize {
        self.length
    }

    fn line(&mut self, ask: &RoomRequest) -> Option<&mut VecDeque<RoomWaiter>> {
        self.tenants.get_mut(&ask.tenant)?.get_mut(&Line::of(ask.use_))
    }

    fn removed(&mut self, ask: &RoomRequest, is_removed: bool) {
        self.length -= usize::from(is_removed);
        let Some(lines) = self.tenants.get_mut(&ask.tenant) else { return };
        lines.retain(|_, waiters| !waiters.is_empty());
        if lines.is_empty() {
            self.tenants.remove(&ask.tenant);
        }
    }
}
