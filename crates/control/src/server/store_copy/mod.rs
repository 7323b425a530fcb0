//! Records and files of a platform, copied from a state folder to etcd with its shared folder, or
//! back: `snowmelt store copy`.
//!
//! | part | file |
//! |---|---|
//! | the two stores, which no server uses meanwhile | `ends` |
//! | records | `entries` |
//! | files beside the records | `files` |
//!
//! Invariants: the source stays as it is. A copy that has begun is marked in its target, which no
//! server then serves, until all of it was read again and compared. So one that was interrupted is
//! run once more, and goes on.

mod ends;
mod entries;
mod files;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use snowmelt_store::{Expect, Page};
use snowmelt_types::{Code, Digest, ErrorReport, Report};

use super::ServerUser;
use crate::state::records::format::{self, COPYING_KEY, CopyMark};
use ends::OpenEnd;
pub use ends::StoreEnd;

/// The step of a copy, for the one who waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyStep {
    /// The number of files that were copied, and their bytes.
    Files(u64, u64),
    /// The number of records that were copied, and their bytes.
    Records(u64, u64),
    /// The number of records or files that were read again.
    Compared(u64),
}

/// The observer that is told of each step.
pub type StepWatch = Arc<dyn Fn(CopyStep) + Send + Sync>;

/// The result of a copy: all that both stores have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreCopied {
    /// The number of records.
    pub records: u64,
    /// The digest of all keys and values.
    pub digest: Digest,
    /// The number of files beside them.
    pub files: u64,
    /// The digest of their names and contents.
    pub files_digest: Digest,
}

/// Copies all records and the files beside them to a store that is empty, or has a part of this copy.
/// `user` is the one that servers become.
///
/// # Errors
/// `SM-0541` for a target that is not empty, `SM-0504` and `SM-0529` for a store that is in use,
/// `SM-0540` for records of a newer version, and the errors of the stores.
pub async fn copy_store(
    from: &StoreEnd,
    to: &StoreEnd,
    user: Option<&ServerUser>,
    watch: StepWatch,
) -> Result<StoreCopied, ErrorReport> {
    if from.is_etcd() == to.is_etcd() {
        let message = "a copy is from a state folder to etcd, or from etcd to a state folder";
        return Err(ErrorReport::new(Code::STORE_COPY, message).hint(
            "`snowmelt backup` and `etcdctl snapshot save` copy a store to one of its kind",
        ));
    }
    let source = OpenEnd::of_source(from).await?;
    let target = match OpenEnd::of_target(to, user).await {
        Ok(target) => target,
        Err(refused) => {
            source.close().await;
            return Err(refused);
        }
    };
    let done = copied(&source, &target, watch).await;
    target.close().await;
    source.close().await;
    done
}

async fn copied(
    source: &OpenEnd,
    target: &OpenEnd,
    watch: StepWatch,
) -> Result<StoreCopied, ErrorReport> {
    format::check(&*source.store).await?;
    begin(source, target).await?;
    files::copy(&source.folder, &target.folder, Arc::clone(&watch)).await?;
    let failed = |error: snowmelt_store::Error| error.report();
    entries::copy(&*source.store, &*target.store, &*watch).await.map_err(failed)?;
    let here = entries::sum(&*source.store, &*watch).await.map_err(failed)?;
    let there = entries::sum(&*target.store, &*watch).await.map_err(failed)?;
    if here != there {
        let message = format!(
            "the copy differs: {} records with digest {}, of {} with digest {}",
            there.records,
            there.digest.short(),
            here.records,
            here.digest.short()
        );
        return Err(ErrorReport::new(Code::STORE_COPY, message)
            .hint("run the same command again, and see that nothing else writes to the stores"));
    }
    let compared = files::compare(&source.folder, &target.folder, watch).await?;
    // Nobody else had the stores in all this time.
    source.sure().await?;
    target.sure().await?;
    target.store.delete(COPYING_KEY, Expect::Any).await.map_err(failed)?;
    Ok(StoreCopied {
        records: here.records,
        digest: here.digest,
        files: compared.files,
        files_digest: compared.digest,
    })
}

/// Marks the copy in the target, unless it has begun before.
async fn begin(source: &OpenEnd, target: &OpenEnd) -> Result<(), ErrorReport> {
    let failed = |error: snowmelt_store::Error| error.report();
    let mark = CopyMark { from: source.place.clone() };
    let internal = |error: serde_json::Error| ErrorReport::new(Code::INTERNAL, error.to_string());
    let text = serde_json::to_vec(&mark).map_err(internal)?;
    if let Some(begun) = target.store.get(COPYING_KEY).await.map_err(failed)? {
        let begun: CopyMark = serde_json::from_slice(&begun.value).map_err(internal)?;
        if begun == mark {
            return Ok(());
        }
        let message = format!("{} has a part of a copy of {}", target.place, begun.from);
        return Err(ErrorReport::new(Code::STORE_COPY, message)
            .hint("complete that copy, or empty the target: see docs/how-to/etcd.md"));
    }
    let mut listed = target.store.list("", Page::first(2)).await.map_err(failed)?;
    listed.entries.retain(|entry| !entries::is_apart(&entry.key));
    if let Some(entry) = listed.entries.first() {
        let message = format!("{} has records already, such as `{}`", target.place, entry.key);
        return Err(ErrorReport::new(Code::STORE_COPY, message)
            .hint("name another prefix of etcd or another state folder, or empty this one"));
    }
    files::refuse_others(&source.folder, &target.folder).await?;
    target.store.put(COPYING_KEY, text.into(), Expect::Absent).await.map_err(failed)?;
    Ok(())
}
