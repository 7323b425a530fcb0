//! The version of a file at planning: every byte of a query is read from that version.
//!
//! A file or object that is replaced while a query reads it would give rows of both versions, or
//! corrupt ones. Objects are read on the condition that they still have the entity tag of planning;
//! files are checked when they are opened and again after the last read.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::OnceLock;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{Error, GetOptions, ObjectMeta, ObjectStore, ObjectStoreExt};
use snowmelt_types::ErrorReport;

use super::paths::object_path;
use super::with_retries;
use crate::error::fault::changed;

/// The entity tags of a bucket's objects, and the first object that changed.
#[derive(Debug, Default)]
pub struct Versions {
    /// The store of the objects: `s3://bucket` or `https://host`.
    place: String,
    tags: HashMap<Path, String>,
    changed: OnceLock<Path>,
}

impl Versions {
    /// Creates the versions from the entity tags of objects by their keys.
    pub(crate) fn new<'a>(
        place: &str,
        tags: impl IntoIterator<Item = (&'a String, &'a String)>,
    ) -> Self {
        let tags = tags.into_iter().map(|(key, tag)| (object_path(key), tag.clone()));
        Self { place: place.to_owned(), tags: tags.collect(), changed: OnceLock::new() }
    }

    /// Adds the condition that the object is the version of planning.
    pub(crate) fn condition(&self, object: &Path, request: GetOptions) -> GetOptions {
        match self.tags.get(object) {
            Some(tag) => request.with_if_match(Some(tag.clone())),
            None => request,
        }
    }

    /// Records a changed object, because readers keep only the text of the error.
    pub(crate) fn note(&self, object: &Path, error: &Error) {
        if matches!(error, Error::Precondition { .. }) {
            _ = self.changed.set(object.clone());
        }
    }

    /// The report of the first object that changed.
    pub(crate) fn report(&self) -> Option<ErrorReport> {
        self.changed.get().map(|object| changed(&format!("{}/{object}", self.place)))
    }
}

/// Reads bytes of the listed version, if it has an entity tag.
pub async fn read_bytes(
    store: &dyn ObjectStore,
    meta: &ObjectMeta,
    range: Range<u64>,
) -> object_store::Result<Bytes> {
    if meta.e_tag.is_none() {
        return with_retries(|| store.get_range(&meta.location, range.clone())).await;
    }
    let request = GetOptions::new().with_range(Some(range)).with_if_match(meta.e_tag.clone());
    let got = with_retries(|| store.get_opts(&meta.location, request.clone())).await?;
    got.bytes().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_failed_precondition_is_a_change() {
        let tags = [("a b/c".to_owned(), "\"tag\"".to_owned())];
        let versions = Versions::new("x", tags.iter().map(|(key, tag)| (key, tag)));
        let path = Path::from("a b/c");
        let request = versions.condition(&path, GetOptions::default());
        assert_eq!(request.if_match.as_deref(), Some("\"tag\""));
        assert_eq!(versions.condition(&"other".into(), GetOptions::default()).if_match, None);
        let error = |path: &Path| (path.to_string(), "x".into());
        let (named, source) = error(&path);
        versions.note(&path, &Error::NotFound { path: named, source });
        assert!(versions.report().is_none());
        let (named, source) = error(&path);
        versions.note(&path, &Error::Precondition { path: named, source });
        assert!(versions.report().unwrap().to_string().contains("SM-0116"));
    }
}
