//! The division of a host's memory, as the agent reports it to control.
//!
//! Control counts the functions, ranks and tasks of queries that it has placed. What these have
//! reserved by now is reported apart from what other sandboxes have, so that control counts it
//! once.

use snowmelt_ledger::Use;

use super::Inner;

/// The division of a host's memory, in bytes.
pub(super) struct MemoryDivision {
    /// The sum of the limits that instances of functions may have together. An instance reserves
    /// only a part of its limit.
    pub functions: u64,
    /// The bytes by which `functions` would be larger without tasks of queries.
    pub of_tasks: u64,
    /// The memory of all sandboxes together.
    pub sandboxes: u64,
    /// The part of `sandboxes` that is reserved by others than functions, ranks and tasks, such as
    /// drivers and zygotes.
    pub others: u64,
    /// The memory that ranks have reserved.
    pub ranks: u64,
}

impl Inner {
    pub(super) fn room(&self) -> MemoryDivision {
        let account = self.node.account();
        let sandboxes = account.ledger.capacity().memory;
        let most = self.memory.unwrap_or(sandboxes).min(sandboxes).bytes();
        let mut tasks = 0;
        let mut others = 0;
        let mut ranks = 0;
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
        MemoryDivision { functions, of_tasks, sandboxes: sandboxes.bytes(), others, ranks }
    }
}
