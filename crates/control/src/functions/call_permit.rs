//! The permit and host that a call may have before it runs.

use snowmelt_types::ErrorReport;

use crate::access::quotas::HeldRoom;
use crate::cluster::placements::Acquired;

/// The part of its needs that a call has before it runs.
pub(crate) enum CallSlot {
    /// Nothing: the call waits for a permit of its function, and then for a host.
    Wanted,
    /// Nothing, and the call waits for its share of the quotas of its tenant as well.
    Patient,
    /// A permit, which the caller holds, a share of the quotas, and the host that was acquired for
    /// the call, or the error of that.
    Acquired(Box<Result<Acquired, ErrorReport>>, HeldRoom),
}
