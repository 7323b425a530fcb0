//! Instances, memory and cores of what runs for a tenant, and its memory over time.
//!
//! Invariant: calls of a function that takes several at once share instances, so a function has as
//! many as its calls need at least. Memory over time is brought up to date before the memory
//! changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::DayUse;
use super::usage::Usage;

/// Milliseconds of a day.
pub(super) const DAY_MS: u64 = 24 * 3600 * 1000;

/// The amounts of sandboxes: their number, the sum of their memory limits in bytes, and the sum of their
/// shares of processor, in thousandths of a core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RoomAmount {
    pub instances: u64,
    pub memory: u64,
    pub cpu_millis: u64,
}

impl RoomAmount {
    pub fn times(self, count: u64) -> Self {
        Self {
            instances: self.instances.saturating_mul(count),
            memory: self.memory.saturating_mul(count),
            cpu_millis: self.cpu_millis.saturating_mul(count),
        }
    }
}

/// A holder of room: a call of a function, a query, a burst.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RoomHolder {
    /// The name for messages, as `function f`.
    pub who: Arc<str>,
    /// The amounts of one sandbox, or of all that are taken together.
    pub amount: RoomAmount,
    /// How many holders like this one share the amount.
    pub shared_by: u64,
}

/// The room that a tenant has.
#[derive(Debug, Default)]
pub(super) struct Rooms {
    pub instances: Usage,
    pub memory: Usage,
    pub cores: Usage,
    /// The holders that share amounts.
    sharing: BTreeMap<RoomHolder, u64>,
    day: DayUse,
    counted_ms: u64,
}

impl Rooms {
    /// Returns what a further holder would add.
    pub fn added(&self, holder: &RoomHolder) -> RoomAmount {
        let sharing = self.sharing.get(holder).copied().unwrap_or_default();
        // The first one that does not fit beside the others.
        let is_new = sharing % holder.shared_by.max(1) == 0;
        if is_new { holder.amount } else { RoomAmount::default() }
    }

    pub fn add(&mut self, holder: &RoomHolder, now_ms: u64) {
        self.count(now_ms);
        let added = self.added(holder);
        match self.sharing.get_mut(holder) {
            Some(sharing) => *sharing += 1,
            None => drop(self.sharing.insert(holder.clone(), 1)),
        }
        self.instances.add(&holder.who, added.instances);
        self.memory.add(&holder.who, added.memory);
        self.cores.add(&holder.who, added.cpu_millis);
    }

    pub fn take(&mut self, holder: &RoomHolder, now_ms: u64) {
        self.count(now_ms);
        let Some(sharing) = self.sharing.get_mut(holder) else { return };
        *sharing -= 1;
        if *sharing % holder.shared_by.max(1) == 0 {
            self.instances.take(&holder.who, holder.amount.instances);
            self.memory.take(&holder.who, holder.amount.memory);
            self.cores.take(&holder.who, holder.amount.cpu_millis);
        }
        if *sharing == 0 {
            self.sharing.remove(holder);
        }
    }

    /// Brings the memory over time up to date, and returns it. A day begins with nothing.
    pub fn count(&mut self, now_ms: u64) -> DayUse {
        let day = now_ms / DAY_MS;
        if day > self.day.day {
            self.day = DayUse { day, byte_ms: 0 };
            self.counted_ms = self.counted_ms.max(day * DAY_MS);
        }
        let held_ms = now_ms.saturating_sub(self.counted_ms);
        self.day.byte_ms += u128::from(self.memory.sum) * u128::from(held_ms);
        self.counted_ms = now_ms.max(self.counted_ms);
        self.day
    }

    /// Adds what was counted before the server was started.
    pub fn had(&mut self, had: DayUse, now_ms: u64) {
        self.count(now_ms);
        if had.day == self.day.day {
            self.day.byte_ms += had.byte_ms;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn holder(shared_by: u64) -> RoomHolder {
        let amount = RoomAmount { instances: 1, memory: GIB, cpu_millis: 500 };
        RoomHolder { who: Arc::from("function f"), amount, shared_by }
    }

    #[test]
    fn calls_share_instances() {
        let mut rooms = Rooms::default();
        let of = holder(3);
        let mut counts = Vec::new();
        for _ in 0..4 {
            rooms.add(&of, 0);
            counts.push(rooms.instances.sum);
        }
        for _ in 0..4 {
            rooms.take(&of, 0);
            counts.push(rooms.instances.sum);
        }
        assert_eq!(counts, [1, 1, 1, 2, 1, 1, 1, 0]);
        assert_eq!((rooms.memory.sum, rooms.cores.sum, rooms.sharing.len()), (0, 0, 0));
    }

    #[test]
    fn memory_over_time_begins_again_each_day() {
        let mut rooms = Rooms::default();
        let of = holder(1);
        let start = 20_000 * DAY_MS;
        rooms.add(&of, start + 1000);
        rooms.add(&of, start + 3000);
        let gib_ms = |day: DayUse| day.byte_ms / u128::from(GIB);
        assert_eq!(gib_ms(rooms.count(start + 4000)), 2000 + 2 * 1000);
        // A clock that goes back counts nothing twice.
        assert_eq!(gib_ms(rooms.count(start + 3500)), 4000);
        assert_eq!(gib_ms(rooms.count(start + 4000)), 4000);
        let next = rooms.count(start + DAY_MS + 500);
        assert_eq!((next.day, gib_ms(next)), (20_001, 1000));
        rooms.had(DayUse { day: 20_000, byte_ms: 1 << 40 }, start + DAY_MS + 500);
        assert_eq!(gib_ms(rooms.count(start + DAY_MS + 500)), 1000, "that was yesterday");
        rooms.had(DayUse { day: 20_001, byte_ms: u128::from(GIB) * 7 }, start + DAY_MS + 500);
        assert_eq!(gib_ms(rooms.count(start + DAY_MS + 500)), 1007);
    }
}
