//! User code with everything that an instance of it needs (a *unit*), and the way to units.
//!
//! | part | file |
//! |---|---|
//! | code with all that an instance of it needs | `unit` |
//! | interpreters and their packages | `interpreters` |
//! | programs of other languages | `programs` |
//! | packages of code and wheels in a registry | `code_package` |
//! | from code and requirements to a unit | `preparation` |
//!
//! Invariant: the digest of a unit changes with everything that an instance of it sees.

pub(crate) mod code_package;
pub(crate) mod interpreters;
pub(crate) mod preparation;
pub(crate) mod programs;
pub(crate) mod unit;
