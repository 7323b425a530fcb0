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

/// The plan's name for a file on a server of HTTP. The query of its URL is the first part of the
/// name, in digits behind a `?`, with which no path of a URL begins: so the last part is the name of
/// the file, and errors, which show the path, do not show the secrets of a query.
///
/// # Errors
/// The path has an empty part, or one with other characters than a URL has.
pub fn web_path(url: &Url) -> std::result::Result<StorePath, object_store::path::Error> {
    let path = url.path().trim_start_matches('/');
    match url.query() {
        Some(query) => {
            let digits: String = query.bytes().map(|byte| format!("{byte:02x}")).collect();
            StorePath::parse(format!("?{digits}/{path}"))
        }
        None => StorePath::parse(path),
    }
}

/// The path of a file on a server of HTTP, and the query of its URL.
pub(crate) fn path_and_query(path: &StorePath) -> (&str, Option<String>) {
    let parts = path.as_ref().strip_prefix('?').and_then(|rest| rest.split_once('/'));
    let Some((digits, path)) = parts else { return (path.as_ref(), None) };
    let byte = |place| u8::from_str_radix(digits.get(place..place + 2)?, 16).ok();
    let bytes: Option<Vec<u8>> = (0..digits.len()).step_by(2).map(byte).collect();
    (path, bytes.and_then(|bytes| String::from_utf8(bytes).ok()))
}

/// The absolute path of a plan's name.
pub fn file_path(path: &StorePath) -> PathBuf {
    let named = Url::parse("file:///").ok().and_then(|mut url| {
        url.path_segments_mut().ok()?.pop_if_empty().extend(path.parts());
        url.to_file_path().ok()
    });
    named.unwrap_or_else(|| PathBuf::from(format!("/{path}")))
}

/// The name of a file for the user: its absolute path, or its URL without a query.
pub fn shown(url: &str, path: &StorePath) -> String {
    match url.split_once(':') {
        Some(("file", _)) => file_path(path).display().to_string(),
        Some(("http" | "https", _)) => format!("{url}{}", path_and_query(path).0),
        _ => format!("{url}{path}"),
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
    fn a_query_is_kept_and_not_shown() {
        for (text, plain, query) in [
            ("https://x/a%20b/f.csv?token=a%2Fb&c", "https://x/a%20b/f.csv", Some("token=a%2Fb&c")),
            ("https://x/f.csv?", "https://x/f.csv", Some("")),
            ("https://x/%3F61/f.csv", "https://x/%3F61/f.csv", None),
        ] {
            let path = web_path(&Url::parse(text).unwrap()).unwrap();
            assert_eq!(path_and_query(&path).1.as_deref(), query, "{text}");
            assert_eq!(shown("https://x/", &path), plain);
            assert!(!path.as_ref().contains("token") && path.as_ref().ends_with("/f.csv"));
        }
        assert_eq!(shown("s3://b/", &object_path("?61/f.csv")), "s3://b/?61/f.csv");
    }

    #[test]
    fn conversions_are_inverse() {
        for text in ["/a/b.parquet", "/a b/c%20d#?.parquet", "/ü/ß.parquet", "/a=1/x,y.parquet"] {
            let path = Path::new(text);
            assert_eq!(file_path(&local_path(path).unwrap()), path);
        }
    }
}
