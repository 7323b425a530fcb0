//! Made once, by whoever comes first, for everybody: tasks of one process and of several.

use std::path::Path;
use std::time::Duration;

use crate::Result;
use crate::flock::{FileLock, Share};

/// What is there now.
#[derive(Debug)]
pub(crate) struct Once<T> {
    pub(crate) found: T,
    /// Keeps it there.
    pub(crate) lease: FileLock,
    /// Whether this call made it.
    pub(crate) made: bool,
}

/// Gives what `find` finds, after `make` where it finds nothing. `lock` is held shared by whoever
/// uses it and alone by whoever makes or removes it; `waiting` is called when somebody does just
/// now.
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
        let lease = FileLock::acquire(lock, Share::Shared, &waiting).await?;
        if let Some(found) = find() {
            lease.touch()?;
            return Ok(Once { found, lease, made });
        }
        drop(lease);
        let Some(alone) = FileLock::try_acquire(lock, Share::Exclusive)? else {
            // Others are looking as well: without a pause all might keep each other from it.
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
