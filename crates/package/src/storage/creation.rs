//! Creates a resource once, for concurrent tasks of one or several processes.

use std::path::Path;
use std::time::Duration;

use super::file_lock::{FileLock, LockMode};
use crate::Result;

/// An existing resource with its lease.
#[derive(Debug)]
pub(crate) struct Once<T> {
    pub(crate) found: T,
    /// The lease that prevents the removal of the resource.
    pub(crate) lease: FileLock,
    /// Whether this call created the resource.
    pub(crate) made: bool,
}

/// Returns the result of `find`, after `make` if it was `None`. Users of the resource hold `lock`
/// shared; creation and removal hold it exclusively. `waiting` is called when another holder has it
/// exclusively.
pub(crate) async fn once<T, Making>(
    lock: &Path,
    waiting: impl Fn(),
    find: impl Fn() -> Option<T>,
    make: impl Fn() -> Making,
) -> Result<Once<T>>
where
    Making: Future<Output = Result<()>>,
{
    let mut made = false;
    loop {
        let lease = FileLock::acquire(lock, LockMode::Shared, &waiting).await?;
        if let Some(found) = find() {
            lease.touch()?;
            return Ok(Once { found, lease, made });
        }
        drop(lease);
        let Some(alone) = FileLock::try_acquire(lock, LockMode::Exclusive)? else {
            // Other callers try too: without a pause, all might keep each other from getting the
            // lock.
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        };
        if find().is_some() {
            continue;
        }
        if let Err(error) = make().await {
            alone.remove()?;
            return Err(error);
        }
        made = true;
    }
}
