//! The scheduler: its state, and the requests that change it.
//!
//! | member | job |
//! |---|---|
//! | here | the state; calls from their request to their end |
//! | `gangs`, `shares` | gangs, and the division of their ranks between hosts |
//! | `tasks` | tasks of queries |
//! | `host_choice` | the choice of a host, with its orders up to date |
//! | `reclamation` | when hosts give up functions and images |
//! | `pool` | how many hosts a provider is asked for |
//! | `knowledge` | read access |

mod gangs;
mod host_choice;
mod knowledge;
mod pool;
mod reclamation;
pub(crate) mod shares;
mod tasks;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use snowmelt_types::{Digest, HostName, Tenant};

use crate::hosts::{HostDirectory, HostOrders, HostRoom, HostUsage, OnHosts, Uses};
use crate::requests::{
    CallDemand, Decision, HeldGang, HeldTask, Queue, RoomReservations, SchedulerPolicy, State,
    Ticket,
};

pub use pool::{PoolHost, PoolPolicy, PoolScaler, PoolStep};

/// The greatest number of hosts that are compared one by one: for so few, that takes less time than
/// to keep their orders up to date.
const FEW: usize = 16;

/// The state of the scheduler: hosts, calls, gangs and tasks that wait or run. All times are from
/// the caller's clock.
#[derive(Debug)]
pub struct Scheduler {
    pub(crate) policy: SchedulerPolicy,
    pub(crate) hosts: HostDirectory,
    pub(crate) functions: HashMap<Digest, OnHosts>,
    /// The hosts in the order in which they are asked for new instances.
    pub(crate) rooms: HostOrders,
    /// The greatest number of hosts that are compared one by one.
    pub(crate) few: usize,
    pub(crate) uses: Uses,
    pub(crate) calls: HashMap<Ticket, ScheduledCall>,
    pub(crate) gangs: BTreeMap<Ticket, HeldGang>,
    pub(crate) tasks: BTreeMap<Ticket, HeldTask>,
    pub(crate) queue: Queue,
    /// The waiting requests by deadline.
    pub(crate) deadlines: BTreeSet<(Duration, Ticket)>,
    /// The memory that running calls, gangs and tasks of each tenant take, in bytes.
    pub(crate) taken: HashMap<Tenant, u64>,
    next: Ticket,
    /// Whether room may have become free since the queue was last looked through.
    pub(crate) is_changed: bool,
    /// Whether hosts may be added to the cluster.
    pub(crate) may_grow: bool,
    /// Whether room of some host is kept for a gang or a task.
    pub(crate) has_reserved: bool,
    /// The requests that were added since the queue was last looked through.
    pub(crate) new: Vec<Ticket>,
}

#[derive(Debug)]
pub(crate) struct ScheduledCall {
    pub call: Arc<CallDemand>,
    pub since: Duration,
    deadline: Duration,
    state: State,
}

impl ScheduledCall {
    pub fn is_waiting(&self) -> bool {
        matches!(self.state, State::Waits)
    }
}

impl Scheduler {
    /// Makes a scheduler without hosts.
    pub fn new(policy: SchedulerPolicy) -> Self {
        Self {
            policy,
            hosts: HostDirectory::default(),
            functions: HashMap::new(),
            rooms: HostOrders::default(),
            few: FEW,
            uses: Uses::default(),
            calls: HashMap::new(),
            gangs: BTreeMap::new(),
            tasks: BTreeMap::new(),
            queue: Queue::default(),
            deadlines: BTreeSet::new(),
            taken: HashMap::new(),
            next: 0,
            is_changed: false,
            may_grow: false,
            has_reserved: false,
            new: Vec::new(),
        }
    }

    /// Adds a host, or takes its next report.
    pub fn report(&mut self, host: &HostName, room: HostRoom) {
        if !self.hosts.report(host, room) {
            let mut new = HostUsage::new(room);
            // A host that comes back still has what was placed there before it was lost.
            self.gang_parts_on(host).for_each(|(gang, ranks)| new.add_ranks(gang, ranks));
            self.tasks_on(host).for_each(|held| new.add_task(&held.task, held.since));
            // The numbers of hosts have changed, by which the orders of instances are kept.
            if self.hosts.insert(host.clone(), new) {
                self.functions.values_mut().for_each(|on| on.order_anew(&self.hosts));
            }
        }
        self.is_changed = true;
    }

    /// Sets whether a host is drained: a drained host gets no new work.
    pub fn drain(&mut self, host: &HostName, is_drained: bool) {
        if let Some(host) = self.hosts.get_mut(host) {
            host.is_drained = is_drained;
            self.is_changed = true;
        }
    }

    /// Removes a host that was lost. For their clients, its calls are over. Ranks and tasks on it
    /// are counted again if it comes back before they are over.
    pub fn remove(&mut self, host: &HostName, now: Duration) {
        let runs_there =
            |held: &ScheduledCall| matches!(&held.state, State::RunsOn(on) if on == host);
        let calls: Vec<_> = self.calls.values_mut().filter(|held| runs_there(held)).collect();
        let mut lost = Vec::with_capacity(calls.len());
        for held in calls {
            // Kept until its caller reports the end, which must then change nothing on a host.
            held.state = State::Lost;
            lost.push(Arc::clone(&held.call));
        }
        lost.iter().for_each(|call| self.leave(call, host, None, now));
        self.uses.remove(host);
        if let Some(id) = self.hosts.remove(host) {
            self.functions.values_mut().for_each(|on| on.remove(id));
        }
        self.functions.retain(|_, on| !on.is_empty());
        self.is_changed = true;
    }

    /// Forgets idle instances and images that hosts may have given up meanwhile.
    pub fn sweep(&mut self, now: Duration) {
        self.hosts.change_all(|host| host.is_to_be_swept(now), |host| host.sweep(now));
        for on in self.functions.values_mut() {
            on.sweep(now);
        }
        self.functions.retain(|_, on| !on.is_empty());
        let Self { hosts, functions, .. } = self;
        hosts.retain_functions(|id, function| {
            functions.get(function).is_some_and(|on| on.get(id).is_some())
        });
    }

    /// Forgets the places of hosts in trees, because they are told anew.
    pub fn forget_trees(&mut self) {
        self.hosts.change_all(HostUsage::has_trees, HostUsage::forget_trees);
    }

    /// Notes that a host is in the tree of an image, with `depth` hosts above it.
    pub fn holds(&mut self, host: &HostName, image: &Digest, depth: u32) {
        if let Some(host) = self.hosts.get_mut(host) {
            host.is_in_tree(image, depth);
        }
    }

    /// Sets in how many trees a host sends to others.
    pub fn sends_in(&mut self, host: &HostName, trees: u32) {
        if let Some(host) = self.hosts.get_mut(host) {
            host.inner = trees;
        }
    }

    /// Adds a call, which waits until `deadline` at the longest.
    pub fn ask(&mut self, call: Arc<CallDemand>, now: Duration, deadline: Duration) -> Ticket {
        let ticket = self.ticket();
        self.queue.push(&call.tenant, &call.function, ticket);
        self.deadlines.insert((deadline, ticket));
        self.calls
            .insert(ticket, ScheduledCall { call, since: now, deadline, state: State::Waits });
        self.new.push(ticket);
        ticket
    }

    /// Returns the next decision. After each change, callers ask until there is none.
    pub fn next(&mut self, now: Duration) -> Option<Decision> {
        let Some(&(deadline, ticket)) = self.deadlines.first() else {
            // Those that were found by a look through the whole queue.
            self.new.clear();
            return None;
        };
        // First, so that no host is given to a call that nobody waits for any more.
        if deadline <= now {
            self.withdraw(ticket, now);
            return Some(Decision::Expired(ticket));
        }
        let decision = self.candidate(now)?;
        match &decision {
            Decision::Run(ticket, host) => self.begin(*ticket, host, now),
            Decision::Start(ticket, parts) => self.begin_gang(*ticket, parts.clone(), now),
            Decision::Refused(ticket) | Decision::Expired(ticket) => self.withdraw(*ticket, now),
        }
        Some(decision)
    }

    /// Returns a decision that is possible now. The whole queue is looked through only if room may
    /// have become free; otherwise only new requests may fit.
    fn candidate(&mut self, now: Duration) -> Option<Decision> {
        if !self.is_changed && self.new.is_empty() {
            return None;
        }
        // Once for all candidates: the room that is kept does not depend on the one that is looked
        // at.
        let kept = self.keep_room(now);
        if self.is_changed {
            let mut tenants: Vec<_> =
                self.queue.tenants().map(|tenant| (self.taken(tenant), tenant)).collect();
            // Whoever has least memory now is served first.
            tenants.sort_unstable();
            let first = tenants.iter().flat_map(|(_, tenant)| self.queue.first_of(tenant));
            let first: Vec<Ticket> = first.collect();
            let found = first.into_iter().find_map(|ticket| self.look(ticket, kept, now));
            // After a decision there may be another one; without one nothing fits until something
            // changes.
            self.is_changed = found.is_some();
            if found.is_some() {
                return found;
            }
            self.new.clear();
        }
        while let Some(ticket) = self.new.pop() {
            if let Some(found) = self.look(ticket, kept, now) {
                return Some(found);
            }
        }
        None
    }

    /// The call for which room is kept: among the calls that have waited for long and could have a
    /// new instance on some host, the one that has waited for the longest.
    pub(crate) fn starved(&self, now: Duration) -> Option<Ticket> {
        let has_waited = |held: &&ScheduledCall| {
            now.saturating_sub(held.since) >= self.policy.starved_after
                && self.could_ever_start(&held.call)
        };
        let first = self.queue.first();
        let starved = first.filter(|ticket| self.calls.get(ticket).filter(has_waited).is_some());
        starved.min()
    }

    fn look(&mut self, ticket: Ticket, kept: RoomReservations, now: Duration) -> Option<Decision> {
        let Some(held) = self.calls.get(&ticket) else {
            return self.look_at_task(ticket, kept).or_else(|| self.look_at_gang(ticket, kept));
        };
        if !held.is_waiting() {
            return None;
        }
        let call = Arc::clone(&held.call);
        if !self.may_ever_run(&call) {
            let may_come = self.may_grow && call.only.is_none();
            return (!may_come).then_some(Decision::Refused(ticket));
        }
        let kept = kept.ticket.filter(|kept| *kept != ticket);
        let kept = kept.and_then(|kept| self.calls.get(&kept));
        let kept = kept.map(|held| Arc::clone(&held.call));
        let host = self.host_for(&call, kept.as_deref(), now)?;
        Some(Decision::Run(ticket, host))
    }

    /// Takes the end of a call, gang or task. `instances` is how many instances of the call's
    /// function the host has now, by its answer.
    pub fn ended(&mut self, ticket: Ticket, instances: Option<u32>, now: Duration) {
        if self.end_gang(ticket) || self.end_task(ticket, now) {
            return;
        }
        let Some(held) = self.calls.remove(&ticket) else { return };
        match held.state {
            State::RunsOn(host) => {
                self.leave(&held.call, &host, instances, now);
                self.is_changed = true;
            }
            State::Waits => {
                self.queue.remove(&held.call.tenant, &held.call.function, ticket);
                self.deadlines.remove(&(held.deadline, ticket));
                // Room may have been kept for it.
                self.is_changed = true;
            }
            State::Lost => {}
        }
    }

    /// Takes the end of a call together with its instance, on a host that does not say how many
    /// instances it has now. The number of idle instances stays as it is known.
    pub fn ended_with_instance(&mut self, ticket: Ticket, now: Duration) {
        let instances = self.calls.get(&ticket).and_then(|held| {
            let State::RunsOn(host) = &held.state else { return None };
            let on = self.functions.get(&held.call.function)?.get(self.hosts.id(host)?)?;
            Some(on.without_one(held.call.concurrency, now))
        });
        self.ended(ticket, instances, now);
    }

    /// Removes a call, gang or task for which nobody waits any more, whether it runs or not.
    pub fn withdraw(&mut self, ticket: Ticket, now: Duration) {
        self.ended(ticket, None, now);
    }

    /// Takes the refusal of a call or task by its host. The request waits again where it stood
    /// before, and the host gets no new instance, or task, until its next report.
    pub fn refused(&mut self, ticket: Ticket, now: Duration) {
        let Some(held) = self.calls.get_mut(&ticket) else { return self.refuse_task(ticket, now) };
        if held.is_waiting() {
            return;
        }
        let was = std::mem::replace(&mut held.state, State::Waits);
        let call = Arc::clone(&held.call);
        let deadline = held.deadline;
        // A host that was removed meanwhile has nothing of it any more.
        if let State::RunsOn(host) = was {
            // A host that refuses a call has no instance of the function that could take it.
            self.leave(&call, &host, Some(0), now);
            if let Some(host) = self.hosts.get_mut(&host) {
                // Until its next report, which may say more: without this the same host would be
                // chosen again at once.
                host.is_full = true;
            }
        }
        // By its ticket, so in front of requests that came later.
        self.queue.push_again(&call.tenant, &call.function, ticket);
        self.deadlines.insert((deadline, ticket));
        self.is_changed = true;
    }

    /// The number of calls, gangs and tasks that wait.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn taken(&self, tenant: &Tenant) -> u64 {
        self.taken.get(tenant).copied().unwrap_or_default()
    }

    /// Subtracts memory from what the running requests of a tenant take, in bytes.
    pub(crate) fn gives_back(&mut self, tenant: &Tenant, bytes: u64) {
        if let Some(taken) = self.taken.get_mut(tenant) {
            *taken = taken.saturating_sub(bytes);
            if *taken == 0 {
                self.taken.remove(tenant);
            }
        }
    }

    pub(crate) fn ticket(&mut self) -> Ticket {
        let ticket = self.next;
        self.next += 1;
        ticket
    }

    fn begin(&mut self, ticket: Ticket, name: &HostName, now: Duration) {
        let Some(held) = self.calls.get_mut(&ticket) else {
            return self.begin_task(ticket, name, now);
        };
        held.state = State::RunsOn(name.clone());
        let call = Arc::clone(&held.call);
        self.deadlines.remove(&(held.deadline, ticket));
        self.queue.remove(&call.tenant, &call.function, ticket);
        let new = u64::from(self.has_begun(name, &call));
        self.uses.begin(name, &call, now);
        if let Some(host) = self.hosts.get_mut(name) {
            host.memory += new * call.memory;
            host.cpu_millis += new * u64::from(call.cpu_millis);
            if let Some(image) = &call.image {
                host.uses(image, now);
            }
        }
        *self.taken.entry(call.tenant.clone()).or_default() += new * call.memory;
    }

    /// Notes the begin of a call on a host, and returns how many new instances it needs there.
    fn has_begun(&mut self, name: &HostName, call: &CallDemand) -> u32 {
        let Some((id, order)) = self.hosts.number(name) else { return 0 };
        self.hosts.has_function(id, &call.function);
        let most = self.policy.instances_per_host;
        let on = self.functions.entry(call.function.clone());
        on.or_insert_with(|| OnHosts::new(call, most)).begin(id, order, call)
    }

    fn leave(&mut self, call: &CallDemand, name: &HostName, count: Option<u32>, now: Duration) {
        let Some((id, order)) = self.hosts.number(name) else { return };
        let Some(on) = self.functions.get_mut(&call.function) else { return };
        let Some(less) = on.end(id, order, call, count, now) else { return };
        self.uses.end(name, &call.function, now);
        let less = u64::from(less);
        if on.is_empty() {
            self.functions.remove(&call.function);
        }
        if let Some(host) = self.hosts.get_mut(name) {
            host.memory = host.memory.saturating_sub(less * call.memory);
            host.cpu_millis = host.cpu_millis.saturating_sub(less * u64::from(call.cpu_millis));
        }
        self.gives_back(&call.tenant, less * call.memory);
    }
}
