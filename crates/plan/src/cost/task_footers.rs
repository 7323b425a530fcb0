//! The requests that a task sends for footers: of each file that it opens once.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use object_store::path::Path;
use parquet::file::metadata::ParquetMetaData;
use snowmelt_execute::scan::{Footer, decode_sent, is_http};
use snowmelt_wire::{ObjectFooter, S3Access};

use super::reads::Reads;

/// The footers of the files that a task has opened.
pub(super) struct TaskFooters<'t> {
    buckets: &'t BTreeMap<String, S3Access>,
    files: HashMap<(String, Path), Arc<ParquetMetaData>>,
}

impl<'t> TaskFooters<'t> {
    /// Creates an empty set of opened files. `buckets` have the footers that the task is sent.
    pub(super) fn new(buckets: &'t BTreeMap<String, S3Access>) -> Self {
        Self { buckets, files: HashMap::new() }
    }

    /// Opens a file: returns the metadata that the task then has, and the requests and bytes that
    /// it reads for this metadata.
    pub(super) fn open(
        &mut self,
        url: &str,
        file: &Path,
        footer: &Footer,
    ) -> (Arc<ParquetMetaData>, Reads) {
        let key = (url.to_owned(), file.clone());
        if let Some(metadata) = self.files.get(&key) {
            return (Arc::clone(metadata), Reads::default());
        }
        let sent = self.sent(url, file);
        let decoded = sent.and_then(decode_sent);
        let reads = |requests| Reads { requests, bytes: footer.length, rows: 0 };
        let (metadata, reads) = match (decoded, sent) {
            (Some(metadata), _) => (Arc::new(metadata), Reads::default()),
            (None, Some(_)) => (Arc::clone(&footer.metadata), reads(1)),
            (None, None) => (Arc::clone(&footer.metadata), reads(2)),
        };
        self.files.insert(key, Arc::clone(&metadata));
        (metadata, reads)
    }

    fn sent(&self, url: &str, file: &Path) -> Option<&'t ObjectFooter> {
        let bucket = if is_http(url) { url } else { url.strip_prefix("s3://")? };
        let bucket = bucket.trim_end_matches('/');
        self.buckets.get(bucket)?.footers.get(file.as_ref())
    }
}
