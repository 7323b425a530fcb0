//! The cost of a query: after it ran, from what was counted, and before, from its plan.
//!
//! Two models give the money (Lambada 4.3.1 and 4.4.4): functions that are billed for memory and
//! time, as on AWS Lambda, and the used share of a machine that is rented by the hour. Requests to
//! object storage cost the same in both.
//!
//! | file | owns |
//! |---|---|
//! | `bill` | money from what was used |
//! | `scan`, `task_footers`, `reads` | the requests of a scan of Parquet files |
//! | `work` | processor time of operators |
//! | `estimate` | the cost of a plan, by stage |
//! | `cost_rows` | the answer of EXPLAIN COST |
//!
//! Boundary: nothing here reads a file or sends a request.

mod bill;
mod cost_rows;
mod estimate;
mod reads;
mod scan;
mod task_footers;
mod work;

pub use bill::{Used, cost};
pub(crate) use cost_rows::as_rows;
pub(crate) use estimate::{Circumstances, Estimate, estimate};
