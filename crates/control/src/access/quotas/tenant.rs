//! The quotas of one tenant, under one lock.
//!
//! Invariant: the lock is held for a comparison and a sum only. Who waits looks again whenever
//! something is given back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use snowmelt_api::{QuotaKind, QuotaLimit, QuotaSummary, QuotaUse};
use snowmelt_types::{Code, ErrorReport, FunctionName, Tenant};
use tokio::sync::Notify;

use super::rate::Rate;
use super::rooms::{DAY_MS, RoomHolder, Rooms};
use super::usage::Usage;
use super::{DayUse, DiskPart, OwnLimits, QuotaLimits, seconds};
use crate::now_ms;

/// When somebody who found no place is told to come again, in seconds.
const AGAIN_AFTER_S: u64 = 1;

/// The bytes and milliseconds of a GiB-second.
const GIB_SECOND: u128 = (1 << 30) * 1000;

/// The most names of functions in a message.
const MAX_NAMES: usize = 5;

/// The quotas of a tenant.
#[derive(Debug)]
pub(super) struct TenantQuotas {
    tenant: Tenant,
    state: Mutex<TenantUse>,
    /// Wakes those who wait for a place.
    freed: Notify,
}

#[derive(Debug, Default)]
struct TenantUse {
    limits: QuotaLimits,
    own: OwnLimits,
    calls: Usage,
    queries: Usage,
    call_rate: Rate,
    query_rate: Rate,
    functions: BTreeSet<FunctionName>,
    rooms: Rooms,
    request_bytes: u64,
    disk: Usage,
}

/// A limit that a request would exceed.
struct Reached {
    kind: QuotaKind,
    used: u64,
    limit: u64,
    more: u64,
    by: String,
    /// After how many seconds it may succeed; `None` where waiting alone does not help.
    after_s: Option<u64>,
}

impl TenantUse {
    fn check(&self, kind: QuotaKind, usage: &Usage, more: u64) -> Result<(), Reached> {
        let Some(limit) = self.limits.get(&kind).copied() else { return Ok(()) };
        let used = usage.sum;
        if more == 0 || used.saturating_add(more) <= limit {
            return Ok(());
        }
        let after_s = (more <= limit).then_some(AGAIN_AFTER_S);
        Err(Reached { kind, used, limit, more, by: usage.shown(kind), after_s })
    }

    fn check_rate(&mut self, kind: QuotaKind, count: u64) -> Result<(), Reached> {
        let Some(limit) = self.limits.get(&kind).copied() else { return Ok(()) };
        let now = Instant::now();
        let rate = match kind {
            QuotaKind::QueriesPerSecond => &mut self.query_rate,
            _ => &mut self.call_rate,
        };
        let Err(wait) = rate.take(limit, count, now) else { return Ok(()) };
        let used = rate.used(limit, now);
        let after_s = (limit > 0).then(|| seconds(wait));
        Err(Reached { kind, used, limit, more: count, by: String::new(), after_s })
    }

    /// Refuses whatever holds memory once the day's GiB-seconds are used up. What runs goes on.
    fn check_day(&mut self, now_ms: u64) -> Result<(), Reached> {
        let kind = QuotaKind::GibSecondsPerDay;
        let Some(limit) = self.limits.get(&kind).copied() else { return Ok(()) };
        let used = gib_seconds(self.rooms.count(now_ms));
        if used < limit {
            return Ok(());
        }
        let left = Duration::from_millis(DAY_MS - now_ms % DAY_MS);
        let by = self.rooms.memory.shown(QuotaKind::Memory);
        let by = if by.is_empty() { by } else { format!("now running {by}") };
        let after_s = (limit > 0).then(|| seconds(left));
        Err(Reached { kind, used, limit, more: 0, by, after_s })
    }

    fn check_room(&mut self, holder: &RoomHolder, now_ms: u64) -> Result<(), Reached> {
        self.check_day(now_ms)?;
        self.check_amounts(holder)
    }

    fn check_amounts(&self, holder: &RoomHolder) -> Result<(), Reached> {
        let added = self.rooms.added(holder);
        let rooms = &self.rooms;
        self.check(QuotaKind::Instances, &rooms.instances, added.instances)?;
        self.check(QuotaKind::Memory, &rooms.memory, added.memory)?;
        self.check(QuotaKind::Cores, &rooms.cores, added.cpu_millis)
    }

    fn check_functions(&self) -> Result<(), Reached> {
        let kind = QuotaKind::Functions;
        let Some(limit) = self.limits.get(&kind).copied() else { return Ok(()) };
        let used = self.functions.len() as u64;
        if used < limit {
            return Ok(());
        }
        let some = self.functions.iter().take(MAX_NAMES);
        let mut names: Vec<_> = some.map(FunctionName::to_string).collect();
        if self.functions.len() > MAX_NAMES {
            names.push("others".to_owned());
        }
        Err(Reached { kind, used, limit, more: 1, by: names.join(", "), after_s: None })
    }
}

impl TenantQuotas {
    pub fn new(tenant: Tenant, defaults: &QuotaLimits) -> Self {
        let state = TenantUse { limits: defaults.clone(), ..TenantUse::default() };
        Self { tenant, state: Mutex::new(state), freed: Notify::new() }
    }

    pub fn set(&self, defaults: &QuotaLimits, own: &OwnLimits) {
        let of = |kind: QuotaKind| {
            let limit = own.get(&kind).copied().unwrap_or(QuotaLimit::Default);
            Some((kind, limit.over(defaults.get(&kind).copied())?))
        };
        let limits: BTreeMap<_, _> = QuotaKind::ALL.into_iter().filter_map(of).collect();
        {
            let mut state = self.lock();
            state.limits = limits;
            state.own.clone_from(own);
        }
        // A limit that was raised is as good as a place that was given back.
        self.wake();
    }

    /// Begins calls, and returns the number of their places.
    pub fn begin_calls(&self, who: &Arc<str>, count: u64) -> Result<u64, ErrorReport> {
        let mut state = self.lock();
        let most = state.limits.get(&QuotaKind::Calls).copied().unwrap_or(u64::MAX);
        let places = most.saturating_sub(state.calls.sum).min(count).max(1);
        let begun = state.check(QuotaKind::Calls, &state.calls, places);
        let begun = begun.and_then(|()| state.check_rate(QuotaKind::CallsPerSecond, count));
        begun.map_err(|reached| self.refusal(reached))?;
        state.calls.add(who, places);
        Ok(places)
    }

    /// Counts a call that runs later.
    pub fn call_later(&self) -> Result<(), ErrorReport> {
        let counted = self.lock().check_rate(QuotaKind::CallsPerSecond, 1);
        counted.map_err(|reached| self.refusal(reached))
    }

    /// Waits for a place for a call that was accepted.
    pub async fn call_in_turn(&self, who: &Arc<str>) {
        loop {
            let mut freed = std::pin::pin!(self.freed());
            freed.as_mut().enable();
            {
                let mut state = self.lock();
                if state.check(QuotaKind::Calls, &state.calls, 1).is_ok() {
                    return state.calls.add(who, 1);
                }
            }
            freed.await;
        }
    }

    pub fn begin_query(&self, who: &Arc<str>) -> Result<(), ErrorReport> {
        let mut state = self.lock();
        let begun = state.check(QuotaKind::Queries, &state.queries, 1);
        let begun = begun.and_then(|()| state.check_rate(QuotaKind::QueriesPerSecond, 1));
        begun.map_err(|reached| self.refusal(reached))?;
        state.queries.add(who, 1);
        Ok(())
    }

    pub fn take_room(&self, holder: &RoomHolder) -> Result<(), ErrorReport> {
        self.try_room(holder).map_err(|reached| self.refusal(reached))
    }

    /// Waits for room. What no wait helps is refused.
    pub async fn room_in_turn(&self, holder: &RoomHolder) -> Result<(), ErrorReport> {
        loop {
            let mut freed = std::pin::pin!(self.freed());
            freed.as_mut().enable();
            match self.try_room(holder) {
                Ok(()) => return Ok(()),
                // Nothing that is given back helps at the end of a day.
                Err(reached)
                    if reached.kind == QuotaKind::GibSecondsPerDay
                        || reached.after_s != Some(AGAIN_AFTER_S) =>
                {
                    return Err(self.refusal(reached));
                }
                Err(_) => freed.await,
            }
        }
    }

    /// Counts what runs already, whatever the limits are.
    pub fn runs(&self, holder: &RoomHolder) {
        self.lock().rooms.add(holder, now_ms());
    }

    /// Takes further room for something that has begun, if there is some now: the GiB-seconds of
    /// the day do not count.
    pub fn more_room(&self, holder: &RoomHolder) -> bool {
        let mut state = self.lock();
        let has_room = state.check_amounts(holder).is_ok();
        if has_room {
            state.rooms.add(holder, now_ms());
        }
        has_room
    }

    /// Wakes all who wait for something that is given back.
    pub fn wake(&self) {
        self.freed.notify_waiters();
    }

    /// Waits until something is given back after this call.
    pub fn freed(&self) -> tokio::sync::futures::Notified<'_> {
        self.freed.notified()
    }

    fn try_room(&self, holder: &RoomHolder) -> Result<(), Reached> {
        let now = now_ms();
        let mut state = self.lock();
        state.check_room(holder, now)?;
        state.rooms.add(holder, now);
        Ok(())
    }

    /// Takes a place for the name of a function; false if the name has one.
    pub fn take_function(&self, name: &FunctionName) -> Result<bool, ErrorReport> {
        let mut state = self.lock();
        if state.functions.contains(name) {
            return Ok(false);
        }
        state.check_functions().map_err(|reached| self.refusal(reached))?;
        Ok(state.functions.insert(name.clone()))
    }

    pub fn has_function(&self, name: &FunctionName) {
        self.lock().functions.insert(name.clone());
    }

    pub fn function_is_gone(&self, name: &FunctionName) {
        self.lock().functions.remove(name);
    }

    /// Takes bytes of bodies of requests.
    pub fn take_bytes(&self, bytes: u64) -> Result<(), ErrorReport> {
        let mut state = self.lock();
        let kind = QuotaKind::RequestMemory;
        let used = state.request_bytes;
        let limit = state.limits.get(&kind).copied().unwrap_or(u64::MAX);
        if used.saturating_add(bytes) > limit {
            let after_s = (bytes <= limit).then_some(AGAIN_AFTER_S);
            let by = String::new();
            return Err(self.refusal(Reached { kind, used, limit, more: bytes, by, after_s }));
        }
        state.request_bytes += bytes;
        Ok(())
    }

    pub fn give_bytes(&self, bytes: u64) {
        let mut state = self.lock();
        state.request_bytes = state.request_bytes.saturating_sub(bytes);
    }

    /// Notes what the tenant has on the disk, part by part.
    pub fn has_on_disk(&self, parts: &[DiskPart]) {
        let mut disk = Usage::default();
        parts.iter().for_each(|(part, bytes)| disk.add(&Arc::from(*part), *bytes));
        self.lock().disk = disk;
    }

    pub fn limits_disk(&self) -> bool {
        self.lock().limits.contains_key(&QuotaKind::Disk)
    }

    /// Refuses what adds bytes to a disk that is full. Waiting does not make it less so.
    pub fn check_disk(&self, more: u64) -> Result<(), ErrorReport> {
        let state = self.lock();
        let full = state.check(QuotaKind::Disk, &state.disk, more.max(1));
        full.map_err(|reached| self.refusal(Reached { after_s: None, ..reached }))
    }

    pub fn calls_ended(&self, who: &str, places: u64) {
        self.lock().calls.take(who, places);
        self.wake();
    }

    pub fn query_ended(&self, who: &str) {
        self.lock().queries.take(who, 1);
    }

    pub fn room_is_free(&self, holder: &RoomHolder) {
        self.lock().rooms.take(holder, now_ms());
        self.wake();
    }

    pub fn day(&self) -> DayUse {
        self.lock().rooms.count(now_ms())
    }

    pub fn had(&self, had: DayUse) {
        self.lock().rooms.had(had, now_ms());
    }

    pub fn summary(&self) -> QuotaSummary {
        let mut state = self.lock();
        let day = gib_seconds(state.rooms.count(now_ms()));
        let now = Instant::now();
        let state = &*state;
        let of = |kind: QuotaKind| {
            let limit = state.limits.get(&kind).copied();
            let of_rate = |rate: &Rate| limit.map_or(0, |limit| rate.used(limit, now));
            let usage = match kind {
                QuotaKind::Instances => Some(&state.rooms.instances),
                QuotaKind::Memory => Some(&state.rooms.memory),
                QuotaKind::Cores => Some(&state.rooms.cores),
                QuotaKind::Calls => Some(&state.calls),
                QuotaKind::Queries => Some(&state.queries),
                QuotaKind::Disk => Some(&state.disk),
                _ => None,
            };
            let used = match (kind, usage) {
                (_, Some(usage)) => usage.sum,
                (QuotaKind::Functions, _) => state.functions.len() as u64,
                (QuotaKind::CallsPerSecond, _) => of_rate(&state.call_rate),
                (QuotaKind::QueriesPerSecond, _) => of_rate(&state.query_rate),
                (QuotaKind::RequestMemory, _) => state.request_bytes,
                (_, None) => day,
            };
            let own = state.own.get(&kind).is_some_and(|own| *own != QuotaLimit::Default);
            let by = usage.map(Usage::holders).unwrap_or_default();
            QuotaUse { kind, used, limit, own, by }
        };
        let quotas = QuotaKind::ALL.into_iter().map(of).collect();
        QuotaSummary { tenant: self.tenant.clone(), quotas }
    }

    fn refusal(&self, Reached { kind, used, limit, more, by, after_s }: Reached) -> ErrorReport {
        let tenant = &self.tenant;
        let what = described(kind);
        let mut message =
            format!("tenant `{tenant}` uses {} of {} {what}", kind.shown(used), kind.shown(limit));
        if more > 1 {
            message = format!("{message}, and {} more are needed", kind.shown(more));
        }
        if !by.is_empty() {
            message = format!("{message}: {by}");
        }
        let report = ErrorReport::new(Code::QUOTA, message);
        let shown = "`snowmelt quota ls` shows what uses how much";
        match after_s {
            Some(seconds) => report
                .hint(format!("come again in {seconds} s, when some of it is over; {shown}"))
                .retry_after(seconds),
            None => report
                .hint(format!("ask the operator of the platform for more; {shown}"))
                .not_retryable(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, TenantUse> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn gib_seconds(day: DayUse) -> u64 {
    u64::try_from(day.byte_ms / GIB_SECOND).unwrap_or(u64::MAX)
}

/// Returns the thing that an amount of a kind counts, in a message.
fn described(kind: QuotaKind) -> &'static str {
    match kind {
        QuotaKind::Instances => "instances",
        QuotaKind::Memory => "of memory",
        QuotaKind::Cores => "cores",
        QuotaKind::Functions => "functions",
        QuotaKind::Calls => "calls at once",
        QuotaKind::CallsPerSecond => "calls a second",
        QuotaKind::Queries => "queries at once",
        QuotaKind::QueriesPerSecond => "queries a second",
        QuotaKind::RequestMemory => "of bodies of requests in flight",
        QuotaKind::GibSecondsPerDay => "GiB-seconds of this day",
        QuotaKind::Disk => "on the disk",
    }
}
