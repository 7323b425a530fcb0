//! Finds a file on a server of HTTP.

use std::sync::Arc;

use datafusion::execution::object_store::ObjectStoreUrl;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use snowmelt_execute::scan::paths::web_path;
use snowmelt_execute::scan::{S3Settings, with_retries};
use snowmelt_files::Error as LocationError;
use url::Url;

use crate::{Error, Result};

/// A file and its server.
pub(crate) struct WebFile {
    pub(crate) url: ObjectStoreUrl,
    pub(crate) server: Arc<dyn ObjectStore>,
    pub(crate) meta: ObjectMeta,
}

/// A location as it is shown: the query of a URL may have secrets.
pub(crate) fn without_query(location: &str) -> &str {
    let begins = |scheme: &str| {
        location.get(..scheme.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(scheme))
    };
    match location.split_once('?') {
        Some((plain, _)) if begins("http://") || begins("https://") => plain,
        // In a glob, it stands for a character.
        _ => location,
    }
}

/// Finds the file of a URL.
pub(crate) async fn locate(location: &str, s3: &S3Settings) -> Result<WebFile> {
    let plain = without_query(location);
    let invalid = |why: &str| LocationError::invalid(plain, why);
    let url = Url::parse(location).map_err(|error| invalid(&error.to_string()))?;
    if let Some(why) = unusual(plain, &url) {
        return Err(invalid(why).into());
    }
    let origin = url.origin().ascii_serialization();
    let path = web_path(&url).map_err(|error| invalid(&error.to_string()))?;
    let storage = |source| Error::Storage { location: plain.to_owned(), source, anonymous: true };
    let server = s3.open_http(&origin).map_err(storage)?;
    let meta = with_retries(|| server.head(&path)).await.map_err(storage)?;
    let url = ObjectStoreUrl::parse(&origin).map_err(|error| invalid(&error.to_string()))?;
    Ok(WebFile { url, server, meta })
}

/// Why a URL is not one of a file that can be read. `location` is the URL without its query.
fn unusual(location: &str, url: &Url) -> Option<&'static str> {
    let path = location.split_once("://").map_or(location, |(_, rest)| rest);
    let path = path.split_once('/').map_or("", |(_, path)| path);
    Some(match () {
        () if !url.username().is_empty() || url.password().is_some() => {
            "it has a name or a password, and requests are sent without credentials"
        }
        () if path.contains(['*', '[', ']']) => {
            "a server of HTTP has no lists of its files, so a glob matches none: name each file in a \
             list, read_parquet(['https://…', 'https://…'])"
        }
        () if url.fragment().is_some() => {
            "it has a fragment (#), which is no part of a file: write this character of a name as %23"
        }
        () if path.is_empty() || path.ends_with('/') => {
            "it names no file: nothing is listed over HTTP"
        }
        () if url.path().contains("//") => "its path has an empty part",
        () => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_urls_have_queries() {
        for (location, shown) in [
            ("https://x/a.csv?sig=1?2", "https://x/a.csv"),
            ("HTTP://x/a.csv?sig=1", "HTTP://x/a.csv"),
            ("https://x/a.csv", "https://x/a.csv"),
            ("s3://x/a?.csv", "s3://x/a?.csv"),
            ("a?.csv", "a?.csv"),
        ] {
            assert_eq!(without_query(location), shown);
        }
    }

    #[test]
    fn urls_of_one_file_are_read() {
        for (location, part) in [
            ("https://x/a.parquet", None),
            ("https://x/a%20b/ü c%2A.parquet", None),
            ("https://x/a/*.parquet", Some("no lists")),
            ("https://x/a.parquet?sig=[1*]", None),
            ("https://x/?sig=1", Some("names no file")),
            ("https://x/a.parquet#1", Some("fragment")),
            ("https://x/a/", Some("names no file")),
            ("https://x", Some("names no file")),
            ("https://u:p@x/a", Some("password")),
            ("https://x/a//b", Some("empty part")),
        ] {
            let plain = location.split('?').next().unwrap();
            let why = unusual(plain, &Url::parse(location).unwrap());
            assert_eq!(why.is_some(), part.is_some(), "{location}: {why:?}");
            assert!(part.is_none_or(|part| why.unwrap().contains(part)), "{location}: {why:?}");
        }
    }
}
