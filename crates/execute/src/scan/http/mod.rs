//! Files on servers of HTTP, which the operator of the platform lists.
//!
//! A server of files is read as a bucket is: the size and the version of a file are asked for in
//! planning, then ranges of that version. No server is believed: every answer is checked against the
//! range that was asked for and the version of planning, and each address that a name resolves to or
//! a server refers to is checked against the list ([`addresses`]).

mod addresses;
mod answer;
mod request;
mod store;
mod version;

pub(crate) use store::HttpStore;
