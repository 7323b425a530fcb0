//! The rules for names, which hold for local paths and for keys of buckets.
//!
//! Hidden files (a name that begins with `.` or `_`) are what other engines leave beside their
//! data; a folder or a glob never matches them.

use std::path::{Component, Path, PathBuf};

use glob::MatchOptions;

/// How a glob matches: `*` stops at a separator and skips hidden names.
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

/// True if the text has a wildcard.
pub fn has_glob(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

/// True for the name of a file or folder that is skipped unless it is named itself.
pub fn is_hidden(name: &str) -> bool {
    name.starts_with('.') || name.starts_with('_')
}

/// True if the name says that it is a Parquet file.
pub fn is_parquet(path: &Path) -> bool {
    path.extension().is_some_and(|end| end.eq_ignore_ascii_case("parquet"))
}
