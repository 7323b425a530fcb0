//! Exchanges by streams: the sending side (`target`) and the receiving side (`source`) run at the same
//! time.

pub(super) mod source;
pub(super) mod target;
