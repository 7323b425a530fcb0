//! Images made and read for real: archives by the system's `tar`, mounts by the kernel.

mod compare;
mod convert;
mod lazy;
mod mounts;
mod registry;
mod sources;
mod unpacked;
