//! The install cache with a real `uv`, the real index and small real packages; where it matters
//! what a package holds, with wheels that the test makes.

mod crash;
mod damage;
mod failure;
mod kill;
mod local;
mod sharing;
mod space;
mod support;
mod wheels;
