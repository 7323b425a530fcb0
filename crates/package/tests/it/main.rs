//! The install cache with a real `uv`, the real index and small real packages.

mod crash;
mod failure;
mod sharing;
mod support;
