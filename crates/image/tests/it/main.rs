//! Tests with real archives, made by the system's `tar`, and real mounts by the kernel.

mod blocks;
mod build;
mod cache;
mod compare;
mod convert;
mod faults;
mod full;
mod hostile;
mod killed;
mod lazy;
mod mounts;
mod peer_hosts;
mod peers;
mod prefetch;
mod profiles;
mod raw;
mod registry;
mod replay;
mod server;
mod sources;
mod stripes;
mod takeover;
mod tree;
mod unpacked;
