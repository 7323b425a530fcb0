//! Files that sandboxes see: the code of users, and the files of functions.
//!
//! | part | file |
//! |---|---|
//! | code, once by content | `code` |
//! | files of functions, by tenant and content | `function_files` |
//! | files of functions that hosts read from each other | `shared_files` |
//! | the opening of files whose paths others can write to | `regular_file` |
//!
//! Invariant: content is stored under its digest, and is whole once it has that name.

pub(crate) mod code;
pub(crate) mod function_files;
pub mod regular_file;
pub(crate) mod shared_files;
