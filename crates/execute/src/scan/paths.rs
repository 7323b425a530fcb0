//! Converts between paths of local files and their names in a plan.
//!
//! The plan's paths are object-store paths: without the leading slash, and percent-encoded. Both
//! directions must agree, because a grant is found by its path.

use std::path::{Path, PathBuf};

use object_store::path::Path as StorePath;
use snowmelt_files::Error;
use url::Url;

use crate::Result;

/// The plan's name for an absolute path.
pub fn local_path(path: &Path) -> Result<StorePath> {
    let invalid = |why: &str| Error::invalid(&path.display().to_string(), why);
    if path.to_str().is_none() {
        return Err(invalid("its name is not UTF-8").into());
    }
    Ok(StorePath::from_absolute_path(path).map_err(|error| invalid(&error.to_string()))?)
}

/// The unmodified key of an object: `?`, `#` and `%` are ordinary characters.
pub fn object_path(key: &str) -> StorePath {
    StorePath::parse(key).unwrap_or_else(|_| StorePath::from(key))
}

/// The absolute path of a plan's name.
pub fn file_path(path: &StorePath) -> PathBuf {
    let named = Url::parse("file:///").ok().and_then(|mut url| {
        url.path_segments_mut().ok()?.pop_if_empty().extend(path.parts());
        url.to_file_path().ok()
    });
    named.unwrap_or_else(|| PathBuf::from(format!("/{path}")))
}

/// The name of a file for the user: its absolute path, or its URL.
pub fn shown(url: &str, path: &StorePath) -> String {
    match url.starts_with("file:") {
        true => file_path(path).display().to_string(),
        false => format!("{url}{path}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_not_modified() {
        assert_eq!(object_path("what?/a#b%20.parquet").as_ref(), "what?/a#b%20.parquet");
        assert_eq!(object_path("a/b/").as_ref(), "a/b");
    }

    #[test]
    fn conversions_are_inverse() {
        for text in ["/a/b.parquet", "/a b/c%20d#?.parquet", "/ü/ß.parquet", "/a=1/x,y.parquet"] {
            let path = Path::new(text);
            assert_eq!(file_path(&local_path(path).unwrap()), path);
        }
    }
}
