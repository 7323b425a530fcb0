//! The footers of the Parquet files that a task reads: footers that it was sent, and footers that
//! it has read itself.
//!
//! Invariant: a footer that was sent is of the version that the task reads. The platform's driver
//! sends it only with the entity tag of its object, on which every read of the object is conditional.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use datafusion::datasource::physical_plan::parquet::metadata::DFParquetMetadata;
use datafusion::error::DataFusionError;
use datafusion::execution::cache::cache_manager::FileMetadataCache;
use datafusion::execution::cache::default_cache::DefaultCache;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};
use snowmelt_wire::ObjectFooter;
use tokio::sync::Mutex;

use super::Counters;
use super::footer::with_all_rows;
use super::paths::object_path;
use crate::process::catch_panic;

/// The most bytes of decoded footers of a store that are kept for other parts of their files.
const KEPT_BYTES: usize = 32 << 20;

/// Number of locks for files whose footers are read.
const TURNS: usize = 16;

/// The footers of the files of one store.
pub struct Footers {
    sent: HashMap<Path, ObjectFooter>,
    // Those that were sent, decoded. None for one that cannot be decoded.
    decoded: Mutex<HashMap<Path, Option<Arc<ParquetMetaData>>>>,
    // Those that were read.
    known: Arc<FileMetadataCache>,
    // One is locked while the footer of a file is read, so that each is read once.
    turns: [Mutex<()>; TURNS],
    counters: Arc<Counters>,
}

impl std::fmt::Debug for Footers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Footers").field("sent", &self.sent.len()).finish_non_exhaustive()
    }
}

impl Footers {
    /// Collects the footers that the task was sent, by key.
    pub fn new<'f>(
        sent: impl IntoIterator<Item = (&'f String, &'f ObjectFooter)>,
        counters: Arc<Counters>,
    ) -> Self {
        let sent = sent.into_iter().map(|(key, footer)| (object_path(key), footer.clone()));
        Self {
            sent: sent.collect(),
            decoded: Mutex::default(),
            known: Arc::new(DefaultCache::new(KEPT_BYTES)),
            turns: std::array::from_fn(|_| Mutex::default()),
            counters,
        }
    }

    pub(super) fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// Returns the metadata of a file, without a request if it was sent or read before. Metadata
    /// that was sent has no page index, which a reader that needs it reads itself.
    pub(super) async fn get(
        &self,
        store: &dyn ObjectStore,
        meta: &ObjectMeta,
        pages: PageIndexPolicy,
    ) -> Result<Arc<ParquetMetaData>> {
        if let Some(metadata) = self.decoded(&meta.location).await {
            return Ok(metadata);
        }
        let _reading = self.turns[turn(&meta.location)].lock().await;
        let sent = self.sent.get(&meta.location);
        let read = DFParquetMetadata::new(store, meta)
            .with_metadata_size_hint(sent.map(|sent| sent.length as usize))
            .with_file_metadata_cache(Some(Arc::clone(&self.known)))
            .with_page_index_policy(Some(pages))
            .fetch_metadata()
            .await;
        let metadata = read.map_err(|error| match error {
            DataFusionError::ObjectStore(error) => ParquetError::External(error),
            other => {
                let file = &meta.location;
                ParquetError::General(format!("Failed to fetch metadata for file {file}: {other}"))
            }
        })?;
        Ok(with_all_rows(metadata))
    }

    /// The metadata that was sent for a file, decoded once.
    async fn decoded(&self, file: &Path) -> Option<Arc<ParquetMetaData>> {
        let sent = self.sent.get(file)?;
        let mut decoded = self.decoded.lock().await;
        if let Some(known) = decoded.get(file) {
            return known.clone();
        }
        let metadata = decode_sent(sent).map(Arc::new).map(with_all_rows);
        if metadata.is_some() {
            self.counters.count_footer_sent();
        }
        decoded.insert(file.clone(), metadata.clone());
        metadata
    }
}

/// Returns the lock of a file. Files that are read at the same time rarely have the same lock.
fn turn(file: &Path) -> usize {
    let mut hasher = DefaultHasher::new();
    file.hash(&mut hasher);
    hasher.finish() as usize % TURNS
}

/// The metadata that a task is sent. `None` if it cannot be decoded: then it is read from its object.
pub fn decode_sent(footer: &ObjectFooter) -> Option<ParquetMetaData> {
    let bytes = footer.metadata.as_ref()?;
    catch_panic(|| ParquetMetaDataReader::decode_metadata(bytes).ok()).ok().flatten()
}
