//! What is called or leased: a function as control's own host runs it, and as other hosts are sent it.

use std::sync::Arc;
use std::time::Duration;

use snowmelt_node::agent::api::FunctionCode;
use snowmelt_node::{InstanceLimits, Secrets, Unit};
use snowmelt_schedule::Call;
use snowmelt_wire::Load;

/// Whose call it is, for errors, and how long the call may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whose<'a> {
    pub function: &'a str,
    pub limit: Duration,
}

/// A function that is called or leased.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Callee<'a> {
    pub whose: Whose<'a>,
    /// What the scheduler needs to know.
    pub needs: &'a Arc<Call>,
    /// It as control's own host runs it.
    pub unit: &'a Unit,
    pub limits: &'a Arc<InstanceLimits>,
    pub load: &'a Load,
    /// It as other hosts run it; none if they cannot.
    pub sent: Option<Sent<'a>>,
}

/// What other hosts need to run a function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent<'a> {
    pub code: &'a FunctionCode,
    /// Values that its instances have.
    pub secrets: Option<&'a Secrets>,
    /// The tree of its image; none if that is in no registry, or it has none.
    pub tree: Option<&'a str>,
}
