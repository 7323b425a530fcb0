//! Functions of lists, and of several values of a group as a list.

pub(super) mod functions;
pub(super) mod reduction;
pub(super) mod several_rows;
pub(super) mod sums;
