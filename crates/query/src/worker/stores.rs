//! The stores that a task reads files and exchanges from.

use std::sync::Arc;

use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::execution::runtime_env::RuntimeEnv;
use snowmelt_wire::Task;

use crate::Error;
use crate::exchange::Stores;
use crate::scan::{
    Counters, CountingStore, Footers, GrantedFiles, StoreFooters, Versions, open_bucket,
};

/// Registers the granted files and the buckets of a task. Gives the versions of the objects of each
/// bucket, and the footers that were sent.
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
    for (bucket, access) in &task.s3 {
        let location = format!("s3://{bucket}");
        let anonymous = !access.settings.contains_key("AWS_ACCESS_KEY_ID");
        let store = open_bucket(bucket, access).map_err(|source| Error::Storage {
            location: location.clone(),
            source,
            anonymous,
        })?;
        let versions = Arc::new(Versions::new(bucket, &access.versions));
        let store = CountingStore::new(store, Arc::clone(counters), Arc::clone(&versions));
        let url = ObjectStoreUrl::parse(&location)?;
        runtime.register_object_store(url.as_ref(), Arc::new(store));
        let of_bucket = Footers::new(&access.footers, Arc::clone(counters));
        footers.insert(url.as_str().to_owned(), Arc::new(of_bucket));
        all.push(versions);
    }
    Ok((all, footers))
}

/// The buckets that a task reads other tasks' objects from, and writes its own to.
pub(super) fn exchange_stores(task: &Task) -> Result<Stores, Error> {
    let read = task.reads.iter().filter_map(|read| read.objects.as_ref());
    Stores::open(read.chain(task.objects.iter().map(|output| &output.at)), &task.s3)
}
