//! Removes the objects of exchanges: of a query when it ends, and of queries that have left theirs
//! because their driver and platform died.
//!
//! A query's objects are below one folder in each location, whose name begins with the time when
//! the query was accepted. A query that uses the location removes folders that are older than
//! [`LEASE`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore};
use snowmelt_wire::{EXCHANGES, ExchangeOptions, ObjectsAt, bucket_and_key};

use crate::scan::paths::object_path;
use crate::scan::{S3Settings, with_retries};
use crate::{Error, Result};

/// How long a query may use its objects. Longer than any query should run, because a running one
/// would lose its rows.
const LEASE: Duration = Duration::from_secs(48 * 3600);

/// The most objects that one LIST request returns.
const LISTED: usize = 1000;

/// The pause before the objects are listed again, for objects that were on their way.
const AGAIN: Duration = Duration::from_secs(1);

/// The folder of one query in the locations of its exchange.
#[derive(Clone, Debug)]
pub struct Cleaner {
    places: Vec<ExchangeFolder>,
    folder: String,
    anonymous: bool,
}

#[derive(Clone, Debug)]
struct ExchangeFolder {
    location: String,
    store: Arc<dyn ObjectStore>,
    /// The folder of all exchanges.
    exchanges: Path,
}

impl Cleaner {
    /// Creates a cleaner for the folder of a query. Sends no request.
    ///
    /// # Errors
    /// The settings for S3 are wrong.
    pub fn new(locations: &[String], folder: &str, aws: &BTreeMap<String, String>) -> Result<Self> {
        Self::with(locations, folder, &S3Settings::new(aws))
    }

    /// Creates a cleaner with settings for S3 that exist already.
    ///
    /// # Errors
    /// The settings are wrong, or a location is none.
    pub fn with(locations: &[String], folder: &str, s3: &S3Settings) -> Result<Self> {
        s3.check().map_err(|why| Error::S3Setting { why })?;
        let mut places: Vec<ExchangeFolder> = Vec::new();
        for location in locations {
            let (bucket, key) = bucket_and_key(location).unwrap_or_default();
            let exchanges = object_path(&joined(key, EXCHANGES));
            let location = location.clone();
            let anonymous = s3.anonymous();
            let store = s3.open(bucket).map_err(|source| Error::Storage {
                location: location.clone(),
                source,
                anonymous,
            })?;
            places.push(ExchangeFolder { location, store, exchanges });
        }
        Ok(Self { places, folder: folder.to_owned(), anonymous: s3.anonymous() })
    }

    /// Checks that the locations exist, and removes objects that are left of queries which began
    /// long ago. Returns the number of LIST requests.
    ///
    /// # Errors
    /// A location cannot be listed.
    pub async fn begin(&self) -> Result<u64> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut lists = 0;
        for place in &self.places {
            let list = || place.store.list_with_delimiter(Some(&place.exchanges));
            let found = with_retries(list).await.map_err(|source| self.failed(place, source))?;
            lists += requests(found.common_prefixes.len() + found.objects.len());
            // Their own driver and platform are gone, so any query that uses the location removes
            // them.
            for folder in found.common_prefixes {
                if folder.filename().is_some_and(|name| is_left(name, now.as_secs())) {
                    tracing::info!(%folder, "an exchange is removed whose query has ended long ago");
                    lists += self.remove(place, &folder).await?;
                }
            }
        }
        Ok(lists)
    }

    /// Removes the query's objects. Gives the number of LIST requests.
    ///
    /// # Errors
    /// An object cannot be removed.
    pub async fn clean(&self) -> Result<u64> {
        let mut lists = 0;
        for place in &self.places {
            let folder = place.exchanges.clone().join(self.folder.as_str());
            lists += self.remove(place, &folder).await?;
        }
        Ok(lists)
    }

    /// Removes the query's objects, also objects that were on their way when their workers ended.
    ///
    /// # Errors
    /// An object cannot be removed.
    pub async fn clean_twice(&self) -> Result<u64> {
        let lists = self.clean().await?;
        tokio::time::sleep(AGAIN).await;
        Ok(lists + self.clean().await?)
    }

    async fn remove(&self, place: &ExchangeFolder, folder: &Path) -> Result<u64> {
        let failed = |source| self.failed(place, source);
        let list = || place.store.list(Some(folder)).try_collect::<Vec<ObjectMeta>>();
        let found = with_retries(list).await.map_err(failed)?;
        let paths: Vec<Path> = found.into_iter().map(|meta| meta.location).collect();
        let lists = requests(paths.len());
        if !paths.is_empty() {
            let paths = futures::stream::iter(paths.into_iter().map(Ok));
            let removed = place.store.delete_stream(Box::pin(paths));
            removed.try_for_each(|_| std::future::ready(Ok(()))).await.or_else(|error| {
                match error {
                    // Another query has removed it.
                    object_store::Error::NotFound { .. } => Ok(()),
                    error => Err(failed(error)),
                }
            })?;
        }
        Ok(lists)
    }

    fn failed(&self, place: &ExchangeFolder, source: object_store::Error) -> Error {
        Error::Storage { location: place.location.clone(), source, anonymous: self.anonymous }
    }
}

/// The objects of a stage.
pub fn objects_at(options: &ExchangeOptions, folder: &str, stage: u32) -> ObjectsAt {
    let of = |location: &String| {
        let (bucket, key) = bucket_and_key(location).unwrap_or_default();
        format!("s3://{bucket}/{}", joined(key, &format!("{EXCHANGES}/{folder}/{stage}")))
    };
    ObjectsAt { folders: options.locations.iter().map(of).collect(), combined: options.combining }
}

fn joined(key: &str, name: &str) -> String {
    match key.trim_matches('/') {
        "" => name.to_owned(),
        key => format!("{key}/{name}"),
    }
}

/// Returns the number of LIST requests for a number of entries.
fn requests(entries: usize) -> u64 {
    entries.div_ceil(LISTED).max(1) as u64
}

/// True for the folder of a query that began longer than [`LEASE`] ago.
fn is_left(name: &str, now_s: u64) -> bool {
    let began = name.split_once('-').and_then(|(began, _)| began.parse::<u64>().ok());
    began.is_some_and(|began| began.saturating_add(LEASE.as_secs()) < now_s)
}

#[cfg(test)]
mod tests {
    use object_store::ObjectStoreExt;
    use object_store::memory::InMemory;

    use super::*;

    /// Two places: a bucket, and a prefix in it.
    fn cleaner(store: &Arc<InMemory>, folder: &str) -> Cleaner {
        let place = |exchanges: &str| ExchangeFolder {
            location: "s3://b/".to_owned(),
            store: Arc::clone(store) as _,
            exchanges: exchanges.into(),
        };
        let places = vec![place("snowmelt-exchange"), place("x/snowmelt-exchange")];
        Cleaner { places, folder: folder.to_owned(), anonymous: false }
    }

    async fn keys(store: &InMemory) -> Vec<String> {
        let mut keys: Vec<String> =
            store.list(None).map_ok(|meta| meta.location.to_string()).try_collect().await.unwrap();
        keys.sort();
        keys
    }

    async fn with(objects: &[&str]) -> Arc<InMemory> {
        let store = Arc::new(InMemory::new());
        for object in objects {
            store.put(&(*object).into(), "x".into()).await.unwrap();
        }
        store
    }

    #[tokio::test]
    async fn a_query_removes_its_own_objects_only() {
        let store = with(&[
            "snowmelt-exchange/9-q-1/0/1.0/0",
            "snowmelt-exchange/9-q-12/0/1.0/0",
            "x/snowmelt-exchange/9-q-1/3/1.0/0",
            "other",
        ])
        .await;
        assert_eq!(cleaner(&store, "9-q-1").clean().await.unwrap(), 2);
        assert_eq!(keys(&store).await, ["other", "snowmelt-exchange/9-q-12/0/1.0/0"]);
    }

    #[tokio::test]
    async fn folders_of_queries_that_began_long_ago_are_removed() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let recent = format!("snowmelt-exchange/{}-q-2/0/1.0/0", now - 3600);
        let left = format!("x/snowmelt-exchange/{}-q-1/0/1.0/0", now - 49 * 3600);
        let store = with(&[&recent, &left, "snowmelt-exchange/mine/0", "1-q-3/0"]).await;
        cleaner(&store, "9-q-1").begin().await.unwrap();
        assert_eq!(
            keys(&store).await,
            ["1-q-3/0".to_owned(), recent, "snowmelt-exchange/mine/0".to_owned()]
        );
    }

    #[test]
    fn a_stage_has_a_folder_in_each_location() {
        let locations = vec!["s3://a".to_owned(), "s3a://b/x//".to_owned()];
        let options = ExchangeOptions { locations, ..ExchangeOptions::default() };
        let at = objects_at(&options, "9-q-1", 2);
        let expected = ["s3://a/snowmelt-exchange/9-q-1/2", "s3://b/x/snowmelt-exchange/9-q-1/2"];
        assert_eq!(at.folders, expected);
    }
}
