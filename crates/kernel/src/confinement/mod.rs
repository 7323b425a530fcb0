//! Restrictions of a process on itself and on the programs that it executes.
//!
//! | part | file |
//! |---|---|
//! | Landlock: files and scopes | `landlock` |
//! | filters of system calls | `seccomp` |
//! | system calls that another process answers | `notify` |

pub mod landlock;
pub mod notify;
pub mod seccomp;
