//! Networks of jobs: their addresses, the jobs that have one, and why hosts or ranks do not reach
//! each other.
//!
//! Boundary: control plans and explains; the hosts make the networks in their kernels.

pub(super) mod jobs;
pub(super) mod plan;
pub(super) mod reachability;
mod trace;
