//! Queries: requests, events, and where their time and money went.
//!
//! | member | shapes of |
//! |---|---|
//! | `query` | requests, and events until the answer is there |
//! | `profile` | the profile of a query |
//! | `cost` | the amounts of a query, and their prices |

mod cost;
mod profile;
mod query;

pub use cost::{Bill, Cost, PriceList, StoreRequests};
pub use profile::{
    DiscardedAttempt, Finding, Lane, LargestPartition, PhaseSpan, Profile, StageProfile, Totals,
};
pub use query::{Event, Phase, Progress, QueryOptions, QueryRequest, UdfSource};
