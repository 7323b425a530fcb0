//! How the memory of a host is divided, as control is told.
//!
//! Control counts what it has placed: functions, ranks and tasks of queries. What these have reserved
//! by now is said apart from what others have, so that control counts it once.

use snowmelt_ledger::Use;

use super::Inner;

/// Memory of a host, in bytes.
pub(super) struct Room {
    /// Limits that instances of functions may have together. An instance reserves a part of its limit.
    pub functions: u64,
    /// How much more these could be without tasks of queries.
    pub of_tasks: u64,
    /// All sandboxes together.
    pub sandboxes: u64,
    /// What of that others than functions, ranks and tasks have reserved.
    pub others: u64,
    /// What ranks have reserved.
    pub ranks: u64,
}

impl Inner {
    pub(super) fn room(&self) -> Room {
        let account = self.node.account();
        let sandboxes = account.ledger.capacity().memory;
        let most = self.memory.unwrap_or(sandboxes).min(sandboxes).bytes();
        let (mut tasks, mut others, mut ranks) = (0, 0, 0);
        for (use_, reserved) in account.ledger.figures().uses {
            let bytes = reserved.memory.bytes();
            match use_ {
                Use::Function => {}
                Use::Burst => ranks += bytes,
                // Also idle ones, which end when a start needs room.
                Use::Worker | Use::Udf => tasks += bytes,
                Use::Driver | Use::Task | Use::Zygote => others += bytes,
            }
        }
        let limits = |taken: u64| account.limits_in(most.saturating_sub(taken));
        let functions = limits(ranks + others + tasks);
        let of_tasks = limits(ranks + others).saturating_sub(functions);
        Room { functions, of_tasks, sandboxes: sandboxes.bytes(), others, ranks }
    }
}
