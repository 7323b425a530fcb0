//! Functions of text: lengths, digits, regular expressions, UUIDs.

pub(super) mod digits;
pub(super) mod length;
pub(super) mod regexp_extract;
pub(super) mod regexps;
pub(super) mod uuids;
