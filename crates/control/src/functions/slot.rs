//! What a call has before it runs.

use snowmelt_types::ErrorReport;

use crate::placements::Acquired;

/// What a call has already.
pub(crate) enum Slot {
    /// Nothing: it waits for a permit of its function, and then for a host.
    Wanted,
    /// Its caller holds a permit, and has acquired a host for it.
    Acquired(Box<Result<Acquired, ErrorReport>>),
}
