//! Finds the objects of a bucket that match a location.

use std::path::Path;
use std::sync::Arc;

use datafusion::execution::object_store::ObjectStoreUrl;
use futures::TryStreamExt;
use glob::Pattern;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use snowmelt_execute::scan::paths::object_path;
use snowmelt_execute::scan::{S3Settings, with_retries};
use snowmelt_files::{
    Error as LocationError, MATCHING, glob_base, has_glob, is_hidden, retain_data,
};

use crate::{Error, Result};

/// Objects of a bucket, in any order.
pub(crate) struct BucketObjects {
    /// `s3://bucket`.
    pub(crate) url: ObjectStoreUrl,
    /// The bucket.
    pub(crate) store: Arc<dyn ObjectStore>,
    /// The objects; at least one.
    pub(crate) objects: Vec<ObjectMeta>,
}

/// Finds the objects of `rest`, a bucket and a key.
pub(crate) async fn locate(location: &str, rest: &str, s3: &S3Settings) -> Result<BucketObjects> {
    let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
    let invalid = |why: String| LocationError::invalid(location, why);
    let url = ObjectStoreUrl::parse(format!("s3://{bucket}"))
        .map_err(|error| invalid(error.to_string()))?;
    s3.check().map_err(|why| Error::S3Setting { why })?;
    let storage = |source| Error::Storage {
        location: location.to_owned(),
        source,
        anonymous: s3.anonymous(),
    };
    let store = s3.open(bucket).map_err(storage)?;
    let pattern = has_glob(key).then(|| Pattern::new(key)).transpose();
    let pattern = pattern.map_err(|error| invalid(error.to_string()))?;
    let mut files = match pattern {
        Some(pattern) => matching(&store, key, &pattern).await.map_err(storage)?,
        None => Vec::new(),
    };
    if files.is_empty() {
        // `?` and `[` may also be characters of a key.
        let found = one_or_all_below(&store, key).await.map_err(storage)?;
        files = match found {
            Some(files) => files,
            None if has_glob(key) => Vec::new(),
            None => return Err(LocationError::missing(location, Path::new(location)).into()),
        };
    }
    if files.is_empty() {
        return Err(LocationError::empty(location, Path::new(location)).into());
    }
    Ok(BucketObjects { url, store, objects: files })
}

async fn matching(
    store: &Arc<dyn ObjectStore>,
    key: &str,
    pattern: &Pattern,
) -> object_store::Result<Vec<ObjectMeta>> {
    let prefix = glob_base(Path::new(key));
    let mut files = list(store, &prefix.to_string_lossy()).await?;
    files.retain(|meta| {
        let hidden = meta.location.filename().is_some_and(is_hidden);
        pattern.matches_with(meta.location.as_ref(), MATCHING) && !hidden
    });
    Ok(files)
}

/// The object of a key, or the objects of known formats below it; `None` if no object exists.
async fn one_or_all_below(
    store: &Arc<dyn ObjectStore>,
    key: &str,
) -> object_store::Result<Option<Vec<ObjectMeta>>> {
    if !key.is_empty() && !key.ends_with('/') {
        let path = object_path(key);
        match with_retries(|| store.head(&path)).await {
            Ok(meta) => return Ok(Some(vec![meta])),
            Err(object_store::Error::NotFound { .. }) => (),
            Err(source) => return Err(source),
        }
    }
    let mut files = list(store, key).await?;
    if files.is_empty() {
        return Ok(None);
    }
    let visible = |part: &str| !is_hidden(part);
    files.retain(|meta| meta.location.as_ref().split('/').all(visible));
    retain_data(&mut files, |meta| Path::new(meta.location.as_ref()));
    Ok(Some(files))
}

async fn list(store: &Arc<dyn ObjectStore>, prefix: &str) -> object_store::Result<Vec<ObjectMeta>> {
    let prefix = object_path(prefix);
    with_retries(|| store.list(Some(&prefix)).try_collect()).await
}
