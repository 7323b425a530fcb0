//! The footers of a table's files: those that earlier queries have kept, and the others from the
//! files, which are then kept (the central statistics of Lambada 5.3).
//!
//! Invariant: a kept footer is only used for the version of the file that was listed. A file without
//! a version is always read.

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt};
use object_store::ObjectMeta;
use snowmelt_execute::scan::{Footer, FooterError, decode_footer, fetch_footer};

use super::table_files::{display_name, store_of};
use crate::tables::locations::{Located, TableStorage};
use crate::{Error, Result};

/// Number of footers that are read concurrently.
const CONCURRENT_FOOTERS: usize = 32;

/// A file with its footer, and the bytes of the footer if they were read from the file.
type FooterRead = (ObjectMeta, Footer, Option<Bytes>);

/// The footers of all files, in order.
pub(crate) async fn footers(located: &Located) -> Result<Vec<(ObjectMeta, Footer)>> {
    let named = located.files.iter().map(|meta| name(located, meta));
    let names: Vec<Option<String>> = named.collect();
    let asked: Vec<String> = names.iter().flatten().cloned().collect();
    let mut recalled = match asked.is_empty() {
        true => Vec::new().into_iter(),
        false => located.known.recall_footers(asked).await.into_iter(),
    };
    let known = |name: &Option<String>| name.as_ref().and_then(|_| recalled.next().flatten());
    let known: Vec<Option<Bytes>> = names.iter().map(known).collect();
    // Boxed individually: a stream of unnamed futures is not `Send`.
    let files = located.files.iter().zip(known);
    let reads: Vec<BoxFuture<'_, Result<FooterRead>>> =
        files.map(|(meta, known)| footer_of(located, meta, known).boxed()).collect();
    let read: Vec<FooterRead> =
        futures::stream::iter(reads).buffered(CONCURRENT_FOOTERS).try_collect().await?;
    let mut new = Vec::new();
    let mut found = Vec::with_capacity(read.len());
    for ((meta, footer, bytes), name) in read.into_iter().zip(names) {
        new.extend(name.zip(bytes));
        found.push((meta, footer));
    }
    if !new.is_empty() {
        located.known.keep_footers(new);
    }
    Ok(found)
}

async fn footer_of(
    located: &Located,
    meta: &ObjectMeta,
    known: Option<Bytes>,
) -> Result<FooterRead> {
    if let Some(footer) = known.and_then(|bytes| decode_footer(&bytes, meta.size).ok()) {
        return Ok((meta.clone(), footer, None));
    }
    let file = || display_name(located, meta);
    let store = store_of(located, meta).await?;
    let read = async {
        let bytes = fetch_footer(store.as_ref(), meta).await?;
        let footer = decode_footer(&bytes, meta.size)?;
        Ok((footer, bytes))
    };
    match read.await {
        Ok((footer, bytes)) => Ok((meta.clone(), footer, Some(bytes))),
        Err(FooterError::Corrupt(why)) => Err(Error::FileCorrupt { file: file(), why }),
        Err(FooterError::Store(error)) => Err(located.store_error(&file(), error)),
    }
}

/// The name of a file with its version: none if it has no version.
fn name(located: &Located, meta: &ObjectMeta) -> Option<String> {
    let version = match &located.source {
        TableStorage::Bucket(_) => meta.e_tag.as_ref(),
        TableStorage::Local(_) => meta.version.as_ref(),
    };
    let url = located.url.as_str();
    let file = &meta.location;
    let size = meta.size;
    version.map(|version| format!("{url}{file}\n{size}\n{version}"))
}
