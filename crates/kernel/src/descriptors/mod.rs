//! Descriptors of this process, and sockets.
//!
//! | part | file |
//! |---|---|
//! | the table of descriptors | `fds` |
//! | packets with descriptors between processes | `packet` |
//! | socket options | `socket` |

pub mod fds;
pub mod packet;
pub mod socket;
