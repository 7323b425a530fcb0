//! Operators that call functions of the user: fewer calls, and several of them at the same time.
//!
//! | file | owns |
//! |---|---|
//! | `calls_together` | projections whose functions compute at the same time |
//! | `cheapest_first` | filters in the order of what their conditions cost |
//! | `conditions` | the conditions of such filters |
//! | `condition_order` | the evaluation of conditions in the measured order |
//! | `table_calls` | calls of table functions |

pub(super) mod calls_together;
pub(super) mod cheapest_first;
mod condition_order;
mod conditions;
pub(super) mod table_calls;
