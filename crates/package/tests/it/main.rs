//! The install cache with a real `uv`, the real index and small real packages; with wheels that the
//! test builds if the content matters.

mod crash;
mod damage;
mod failure;
mod installations;
mod kill;
mod local;
mod sharing;
mod space;
mod support;
mod wheels;
