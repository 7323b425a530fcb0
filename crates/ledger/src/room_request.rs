//! Requests for room: by which tenant, for which use, and of which amount.

use std::fmt;

use snowmelt_types::Tenant;

use crate::Amount;

/// The use of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Use {
    /// An instance of a deployed function.
    Function,
    /// An instance of a function that SQL calls.
    Udf,
    /// A query worker.
    Worker,
    /// The driver of a query.
    Driver,
    /// The room for one task that a query keeps as long as it runs.
    Task,
    /// A rank of a burst.
    Burst,
    /// A zygote.
    Zygote,
}

impl Use {
    /// All uses.
    pub const ALL: [Self; 7] = [
        Self::Function,
        Self::Udf,
        Self::Worker,
        Self::Driver,
        Self::Task,
        Self::Burst,
        Self::Zygote,
    ];

    /// The name of the use in figures.
    pub fn name(self) -> &'static str {
        match self {
            Self::Function => "function",
            Self::Udf => "udf",
            Self::Worker => "worker",
            Self::Driver => "driver",
            Self::Task => "task",
            Self::Burst => "burst",
            Self::Zygote => "zygote",
        }
    }

    /// The name of several of this use, in messages.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Function => "functions",
            Self::Udf => "UDFs",
            Self::Worker => "query workers",
            Self::Driver => "query drivers",
            Self::Task => "tasks that queries may start",
            Self::Burst => "bursts",
            Self::Zygote => "zygotes",
        }
    }
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Function => "an instance of a function",
            Self::Udf => "an instance of a UDF",
            Self::Worker => "a query worker",
            Self::Driver => "a query",
            Self::Task => "a task of a query",
            Self::Burst => "a burst",
            Self::Zygote => "a zygote",
        })
    }
}

/// A request for room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoomRequest {
    /// The tenant that asks.
    pub tenant: Tenant,
    /// The use of the room.
    pub use_: Use,
    /// The amount of the room.
    pub amount: Amount,
}
