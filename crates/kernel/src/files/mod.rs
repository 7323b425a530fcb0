//! Files and the disk.
//!
//! | part | file |
//! |---|---|
//! | room on a disk | `disk` |
//! | locks between processes on files and folders | `lock` |
//! | a part of a file as memory | `mapping` |

pub mod disk;
pub mod lock;
pub mod mapping;
