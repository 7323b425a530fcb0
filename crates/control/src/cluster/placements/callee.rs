//! Functions that are called or leased: as control's own host runs them, and as other hosts are
//! sent them.

use std::sync::Arc;
use std::time::Duration;

use snowmelt_node::{InstanceLimits, Secrets, Unit};
use snowmelt_schedule::CallDemand;
use snowmelt_tasks::agent::api::FunctionCode;
use snowmelt_wire::Load;

/// The name of the function, for errors, and how long the call may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whose<'a> {
    pub function: &'a str,
    pub limit: Duration,
}

/// A function that is called or leased.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Callee<'a> {
    pub whose: Whose<'a>,
    /// The facts by which the scheduler places the call.
    pub needs: &'a Arc<CallDemand>,
    /// The program that instances are started from on control's own host.
    pub unit: &'a Unit,
    pub limits: &'a Arc<InstanceLimits>,
    pub load: &'a Load,
    /// The function in the form in which other hosts are sent it; `None` if they cannot run it.
    pub sent: Option<FunctionTransfer<'a>>,
}

/// The form in which a function is sent to other hosts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FunctionTransfer<'a> {
    pub code: &'a FunctionCode,
    /// Values of the secrets that instances have.
    pub secrets: Option<&'a Secrets>,
    /// The tree of the function's image; `None` without an image, or if it is in no registry.
    pub tree: Option<&'a str>,
}
