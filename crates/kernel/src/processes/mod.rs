//! Processes: how they begin, what they inherit, and how they end.
//!
//! | part | file |
//! |---|---|
//! | a new process that borrows the memory of this one | `vfork` |
//! | a new process in new namespaces, by a copy of this one | `clone` |
//! | a program that is executed without allocations | `execute` |
//! | namespaces of the calling process | `namespace` |
//! | keyrings that a process inherits | `keyring` |
//! | a thread with the rights of another user to files | `file_user` |
//! | the user namespace of a platform that is not root's | `rootless` |
//! | signals, priority, privileges and the end of a process | `process` |

pub mod clone;
pub mod execute;
pub mod file_user;
pub mod keyring;
pub mod namespace;
pub mod process;
pub mod rootless;
pub mod vfork;
