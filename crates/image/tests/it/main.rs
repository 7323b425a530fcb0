//! Images made and read for real: archives by the system's `tar`, mounts by the kernel.

mod ahead;
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
mod profiles;
mod raw;
mod registry;
mod replay;
mod server;
mod sources;
mod takeover;
mod tree;
mod unpacked;
