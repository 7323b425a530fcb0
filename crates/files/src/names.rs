//! The rules for names of local paths and of keys in buckets.
//!
//! Hidden files (a name that begins with `.` or `_`) are the metadata of other engines; a folder or
//! a glob never matches them.

use std::path::{Component, Path, PathBuf};

use glob::MatchOptions;

/// The rules by which a glob matches: `*` stops at a separator and skips hidden names.
pub const MATCHING: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: true,
};

/// The longest leading part of a path without a wildcard.
pub fn glob_base(path: &Path) -> PathBuf {
    let plain = |part: &Component<'_>| !has_glob(&part.as_os_str().to_string_lossy());
    path.components().take_while(plain).collect()
}

/// The functions of SQL whose first argument is a location, or a list of them.
pub const READERS: [&str; 9] = [
    "glob",
    "read_csv",
    "read_csv_auto",
    "read_json",
    "read_json_auto",
    "read_ndjson",
    "read_parquet",
    "parquet_scan",
    "read_xlsx",
];

/// True if the text has a wildcard.
pub fn has_glob(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

/// True for the name of a file or folder that is skipped unless the location names it.
pub fn is_hidden(name: &str) -> bool {
    name.starts_with('.') || name.starts_with('_')
}
