//! Safe wrappers of the system calls that Snowmelt needs and `std` and `rustix` lack: one file
//! per family. This is the only crate with unsafe code.
//!
//! | room or file | owns |
//! |---|---|
//! | `processes` | how processes begin, what they inherit, how they end |
//! | `confinement` | restrictions of a process: Landlock, filters of system calls |
//! | `descriptors` | descriptors, packets with descriptors, sockets |
//! | `files` | room on a disk, locks, files as memory |
//! | `memory` | memory of this process |
//! | `mount` | mounts |
//! | `bpf` | BPF programs |
//! | `layout` | structures that C code shares |
//!
//! Invariant: each wrapper takes and returns safe types, does one thing, and reports the kernel's
//! own error; the caller explains a failed step to the user.

#![allow(unsafe_code)]

pub mod bpf;
mod confinement;
mod descriptors;
mod files;
pub mod layout;
pub mod memory;
pub mod mount;
mod processes;

pub use confinement::{landlock, notify, seccomp};
pub use descriptors::{fds, packet, socket};
pub use files::{disk, lock, mapping};
pub use processes::{clone, execute, file_user, keyring, namespace, process, rootless, vfork};
