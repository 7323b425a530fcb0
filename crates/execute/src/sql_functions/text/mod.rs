//! Functions of text: lengths, digits, distances, regular expressions, paths, UUIDs.

pub(super) mod digits;
pub(super) mod distance;
pub(super) mod length;
pub(super) mod paths;
pub(super) mod regexp_extract;
pub(super) mod regexps;
pub(super) mod uuids;
