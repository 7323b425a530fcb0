//! Asynchronous calls: their events until they have ended, then their answers for a bounded time.
//!
//! Two keys: the record of each call, and an index entry for each call, written in one transaction.
//! The index is in memory as well ([`Index`]), so that no write reads the records of other calls.
//! Invariant: a call that has not ended is never removed; of the ended calls of a function, the
//! oldest are removed first.

use snowmelt_store::{Expect, Store, Transaction};
use snowmelt_types::{Code, ErrorReport, FunctionName, InvocationId, Report};

use super::index::{self, Full, Index};
use super::{InvocationRecord, Records, collect, panicked, parse, written};

/// What the keys of records begin with.
const RECORDS: &str = "calls/";
/// What those of index entries begin with.
const ENTRIES: &str = "call-entries/";
/// Index entries that are read at once.
const ENTRIES_PAGE: usize = 4096;

/// The key of a record.
pub(super) fn record_key(id: &str) -> String {
    format!("{RECORDS}{id}")
}

/// The key of an index entry.
pub(super) fn entry_key(id: &str) -> String {
    format!("{ENTRIES}{id}")
}

/// A call as it is written.
struct Written {
    id: InvocationId,
    record: Vec<u8>,
    entry: index::Entry,
}

impl Written {
    fn new(record: &InvocationRecord, until_ms: Option<u64>) -> Result<Self, ErrorReport> {
        let (call, record) = (&record.invocation, written(record)?);
        let entry = index::Entry::waiting(&call.function, record.len());
        Ok(Self { id: call.id.clone(), record, entry: index::Entry { until_ms, ..entry } })
    }
}

impl Records {
    /// Writes a call that is accepted; on return it survives a crash.
    pub async fn accept(&self, record: &InvocationRecord) -> Result<(), ErrorReport> {
        let new = Written::new(record, None)?;
        self.to_the_end(async move |records| {
            let mut index = records.calls.lock().await;
            index.room_for(&new.entry).map_err(|full| refused(&new.entry.function, full))?;
            let removed = index.removed_for(None, new.entry.bytes);
            records.write(&mut index, new, removed).await
        })
        .await
    }

    /// Writes how a call ended, to be kept until then; forgets calls that are too many, too old or
    /// too large together.
    pub async fn end(&self, record: &InvocationRecord, until_ms: u64) -> Result<(), ErrorReport> {
        let ended = Written::new(record, Some(until_ms))?;
        self.to_the_end(async move |records| {
            let mut index = records.calls.lock().await;
            let removed = index.removed_for(Some(&ended.entry.function), ended.entry.bytes);
            records.write(&mut index, ended, removed).await
        })
        .await
    }

    /// A call.
    pub async fn invocation(
        &self,
        id: &InvocationId,
    ) -> Result<Option<InvocationRecord>, ErrorReport> {
        self.get(&record_key(id.as_str())).await
    }

    /// Calls that have not ended, the oldest first.
    pub async fn waiting(&self) -> Vec<(InvocationId, FunctionName)> {
        self.calls.lock().await.waiting()
    }

    async fn write(
        &self,
        index: &mut Index,
        written: Written,
        mut removed: Vec<InvocationId>,
    ) -> Result<(), ErrorReport> {
        let Written { id, record, entry } = written;
        removed.retain(|removed| *removed != id);
        let mut all = Transaction::new().put(record_key(id.as_str()), record, Expect::Any).put(
            entry_key(id.as_str()),
            encoded(&entry),
            Expect::Any,
        );
        for id in &removed {
            all = all.delete(record_key(id.as_str()), Expect::Any);
            all = all.delete(entry_key(id.as_str()), Expect::Any);
        }
        self.store.transaction(all).await.map_err(|error| error.report())?;
        index.apply(&id, entry, &removed);
        Ok(())
    }

    /// Does something to its end, also if the caller goes away: between the store and the index
    /// nothing may be left out.
    async fn to_the_end<F>(&self, work: impl FnOnce(Self) -> F) -> Result<(), ErrorReport>
    where
        F: Future<Output = Result<(), ErrorReport>> + Send + 'static,
    {
        tokio::spawn(work(self.clone())).await.unwrap_or_else(|error| Err(panicked(error)))
    }
}

/// Reads all index entries.
pub(super) async fn load(store: &dyn Store) -> Result<Index, ErrorReport> {
    let mut index = Index::default();
    let entries = collect(store, ENTRIES, ENTRIES_PAGE, |entry| {
        let id = entry.key.strip_prefix(ENTRIES).unwrap_or_default();
        Ok((InvocationId::from(id.to_owned()), parse::<index::Entry>(entry)?))
    });
    for (id, entry) in entries.await? {
        index.add(&id, entry);
    }
    Ok(index)
}

/// An index entry as it is written.
pub(super) fn encoded(entry: &index::Entry) -> Vec<u8> {
    // Numbers and a name can always be written as JSON.
    serde_json::to_vec(entry).unwrap_or_default()
}

fn refused(function: &FunctionName, full: Full) -> ErrorReport {
    let message = match full {
        Full::Calls(most) => format!("{most} asynchronous calls of `{function}` wait already"),
        Full::Bytes(most) => {
            format!("the events of the asynchronous calls of `{function}` that wait have {most}")
        }
        Full::All(most) => format!("the asynchronous calls of all functions have {most}"),
    };
    ErrorReport::new(Code::CALLS_WAITING, message)
        .hint("call again when some have ended, or let more run at once with --instances")
}
