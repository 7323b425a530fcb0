//! The stores that a task reads files and exchanges from.

use std::sync::Arc;

use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::execution::runtime_env::RuntimeEnv;
use object_store::ObjectStore;
use snowmelt_wire::{S3Access, Task};

use crate::Error;
use crate::exchange::Stores;
use crate::scan::{
    Counters, CountingStore, Footers, GrantedFiles, HttpStore, StoreFooters, Versions, is_http,
    open_bucket,
};

/// Registers the granted files, the buckets and the servers of HTTP of a task. Returns the versions
/// of the objects of each, and the footers that were sent.
pub(super) fn register_stores(
    runtime: &RuntimeEnv,
    granted: &Arc<GrantedFiles>,
    task: &Task,
    counters: &Arc<Counters>,
) -> Result<(Vec<Arc<Versions>>, StoreFooters), Error> {
    let local = ObjectStoreUrl::local_filesystem();
    runtime.register_object_store(local.as_ref(), Arc::clone(granted) as _);
    let of_local = Footers::new([], Arc::clone(counters));
    let mut footers = StoreFooters::from([(local.as_str().to_owned(), Arc::new(of_local))]);
    let mut all = Vec::with_capacity(task.s3.len());
    for (place, access) in &task.s3 {
        let location = if is_http(place) { place.clone() } else { format!("s3://{place}") };
        let versions = Arc::new(Versions::new(&location, &access.versions));
        let store = open(place, access, counters, &versions);
        let store = store.map_err(|source| Error::Storage {
            location: location.clone(),
            source,
            anonymous: !access.settings.contains_key("AWS_ACCESS_KEY_ID"),
        })?;
        let url = ObjectStoreUrl::parse(&location)?;
        runtime.register_object_store(url.as_ref(), store);
        let of_place = Footers::new(&access.footers, Arc::clone(counters));
        footers.insert(url.as_str().to_owned(), Arc::new(of_place));
        all.push(versions);
    }
    Ok((all, footers))
}

/// Opens a bucket, or a server of HTTP.
fn open(
    place: &str,
    access: &S3Access,
    counters: &Arc<Counters>,
    versions: &Arc<Versions>,
) -> Result<Arc<dyn ObjectStore>, object_store::Error> {
    let counters = Arc::clone(counters);
    let versions = Arc::clone(versions);
    if is_http(place) {
        let store = HttpStore::open(place, &access.http)?;
        return Ok(Arc::new(CountingStore::new(store, counters, versions).without_price()));
    }
    Ok(Arc::new(CountingStore::new(open_bucket(place, access)?, counters, versions)))
}

/// The buckets that a task reads other tasks' objects from, and writes its own to.
pub(super) fn exchange_stores(task: &Task) -> Result<Stores, Error> {
    let read = task.reads.iter().filter_map(|read| read.objects.as_ref());
    Stores::open(read.chain(task.objects.iter().map(|output| &output.at)), &task.s3)
}
