//! The code of a function, read from the files that the user names.
//!
//! | member | job |
//! |---|---|
//! | `files` | one file or the files of a folder, as they are sent |
//! | `python` | Python code with the modules and requirements beside it |
//! | `shell` | a shell script, sent beside a function that runs it |
//! | `program` | the runtime, the command and the place of the image of a deployment |
//!
//! Boundary: nothing here talks to a platform.

pub mod files;
pub mod program;
pub mod python;
pub mod shell;
