//! Finds the files of a location: a file, a folder or a glob, local or on S3; a file on a server of
//! HTTP.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use datafusion::execution::object_store::ObjectStoreUrl;
use object_store::{ObjectMeta, ObjectStore};
use snowmelt_execute::scan::S3Settings;
use snowmelt_execute::scan::paths::local_path;
use snowmelt_files::Kind;
use snowmelt_types::{Code, ErrorReport};
use snowmelt_wire::LocalFile;

use super::bucket;
use super::web::{self, WebFile};
use crate::spec::LocalFiles;
use crate::{Error, Result};

/// The files of a table and their store.
#[derive(Clone, Debug)]
pub(crate) struct Located {
    /// `file://`, `s3://bucket` or `https://host`.
    pub(crate) url: ObjectStoreUrl,
    /// The source of the footers and beginnings of the files.
    pub(crate) source: TableStorage,
    /// True if S3 is read without keys.
    pub(crate) anonymous: bool,
    /// The files, sorted by name.
    pub(crate) files: Vec<ObjectMeta>,
    /// The local files of the query, which also keep footers between queries.
    pub(crate) known: Arc<dyn LocalFiles>,
}

impl Located {
    /// The error of a store for one of the files.
    pub(crate) fn store_error(&self, file: &str, source: object_store::Error) -> Error {
        match source {
            object_store::Error::Precondition { .. } => {
                Error::FileChanged { file: file.to_owned() }
            }
            source => {
                Error::Storage { location: file.to_owned(), source, anonymous: self.anonymous }
            }
        }
    }
}

/// The storage of a table's files.
#[derive(Clone, Debug)]
pub(crate) enum TableStorage {
    /// Files on this machine.
    Local(Arc<dyn LocalFiles>),
    /// Files in a bucket, or on a server of HTTP.
    Bucket(Arc<dyn ObjectStore>),
}

/// True if a table name in the SQL can only be a location.
pub(crate) fn looks_like_location(name: &str) -> bool {
    Kind::of(Path::new(name)).is_some() || name.contains(['/', '*', '\\']) || name.starts_with('.')
}

/// Finds the files of a location.
pub(crate) async fn locate(
    location: &str,
    files: &Arc<dyn LocalFiles>,
    s3: &S3Settings,
) -> Result<Located> {
    let mut found = match location.split_once("://") {
        None => local(location, files).await?,
        Some(("file", path)) => local(path, files).await?,
        Some(("s3" | "s3a", rest)) => {
            let found = bucket::locate(location, rest, s3).await?;
            Located {
                url: found.url,
                source: TableStorage::Bucket(found.store),
                anonymous: s3.anonymous(),
                files: found.objects,
                known: Arc::clone(files),
            }
        }
        Some(("https" | "http", _)) => {
            let WebFile { url, server, meta } = Box::pin(web::locate(location, s3)).await?;
            let source = TableStorage::Bucket(server);
            let known = Arc::clone(files);
            Located { url, source, anonymous: true, files: vec![meta], known }
        }
        Some((scheme, _)) => {
            let why =
                format!("`{scheme}://` is not supported: use a local path, s3:// or https://");
            return Err(snowmelt_files::Error::invalid(location, why).into());
        }
    };
    found.files.sort_by(|a, b| a.location.cmp(&b.location));
    Ok(found)
}

/// Finds the files of all these locations, which are in one store.
pub(crate) async fn locate_all(
    locations: &[String],
    files: &Arc<dyn LocalFiles>,
    s3: &S3Settings,
) -> Result<Located> {
    let mut all: Option<Located> = None;
    for location in locations {
        let found = locate(location, files, s3).await?;
        match &mut all {
            None => all = Some(found),
            Some(all) if all.url == found.url => all.files.extend(found.files),
            Some(all) => {
                let one = all.url.as_str();
                let other = found.url.as_str();
                let message = format!("a table has files of `{one}` and of `{other}`");
                let report = ErrorReport::new(Code::OPTION, message)
                    .hint("read each with a call of its own, and join them by UNION ALL BY NAME");
                return Err(Error::File(Box::new(report)));
            }
        }
    }
    let none = || snowmelt_files::Error::invalid("", "there is no location");
    let mut all = all.ok_or_else(none)?;
    all.files.sort_by(|a, b| a.location.cmp(&b.location));
    Ok(all)
}

async fn local(location: &str, files: &Arc<dyn LocalFiles>) -> Result<Located> {
    let listed = files.list(location).await?;
    let found = listed.iter().map(object_meta).collect::<Result<_>>()?;
    let url = ObjectStoreUrl::local_filesystem();
    let source = TableStorage::Local(Arc::clone(files));
    Ok(Located { url, source, anonymous: false, files: found, known: Arc::clone(files) })
}

fn object_meta(file: &LocalFile) -> Result<ObjectMeta> {
    Ok(ObjectMeta {
        location: local_path(Path::new(&file.path))?,
        last_modified: modified(file.modified_nanos).into(),
        size: file.bytes,
        e_tag: None,
        version: Some(file.version.clone()),
    })
}

fn modified(nanos: i64) -> SystemTime {
    let distance = Duration::from_nanos(nanos.unsigned_abs());
    let moment = match nanos < 0 {
        true => UNIX_EPOCH.checked_sub(distance),
        false => UNIX_EPOCH.checked_add(distance),
    };
    moment.unwrap_or(UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_spaces_and_percent_signs_are_preserved() {
        let folder = tempfile::tempdir().unwrap();
        let odd = folder.path().join("a b%20c ü#.parquet");
        std::fs::write(&odd, "x").unwrap();
        let files = snowmelt_files::find("*.parquet", folder.path()).unwrap();
        let meta = object_meta(&files[0]).unwrap();
        let back = snowmelt_execute::scan::paths::file_path(&meta.location);
        assert_eq!(back, odd.canonicalize().unwrap());
    }

    #[test]
    fn only_paths_look_like_locations() {
        assert!(looks_like_location("data/x") && looks_like_location("s3://b/*.parquet"));
        assert!(looks_like_location("x.parquet") && looks_like_location("x.csv.gz"));
        assert!(!looks_like_location("lineitem"));
    }
}
