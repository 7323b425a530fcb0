//! The folders of the store, and files in them for several tasks and processes.
//!
//! | member | job |
//! |---|---|
//! | `store` | the folders of the store, and which of them can be relied on |
//! | `files` | modes, atomic writes, sizes |
//! | `file_lock` | exclusion between processes |
//! | `creation` | one creation of a resource that several request |
//! | `workspace` | temporary folders that are removed after their process has exited |
//! | `threads` | file operations outside of the async runtime's threads |
//!
//! Boundary: nothing here knows what a package is.

mod creation;
mod file_lock;
pub(crate) mod files;
mod store;
mod threads;
mod workspace;

pub(crate) use creation::{Once, once};
pub(crate) use file_lock::{FileLock, LockMode};
pub(crate) use files::{count_files, make_folder, remove_tree, write_atomically, write_synced};
pub(crate) use store::PackageStore;
pub use store::interrupted;
pub(crate) use threads::blocking;
pub(crate) use workspace::Workspace;
