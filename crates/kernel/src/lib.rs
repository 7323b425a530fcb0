//! Safe wrappers of the system calls that Snowmelt needs and `std` and `rustix` lack: one file
//! per family. This is the only crate with unsafe code.
//!
//! Invariant: each wrapper takes and returns safe types, does one thing, and reports the kernel's
//! own error; the caller explains a failed step to the user.

#![allow(unsafe_code)]

pub mod bpf;
pub mod clone;
pub mod disk;
pub mod execute;
pub mod fds;
pub mod keyring;
pub mod landlock;
pub mod layout;
pub mod lock;
pub mod mapping;
pub mod memory;
pub mod mount;
pub mod namespace;
pub mod notify;
pub mod packet;
pub mod process;
pub mod seccomp;
pub mod socket;
pub mod vfork;
