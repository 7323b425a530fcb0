//! Asynchronous calls: their events until they have ended, then their answers for a bounded time.
//!
//! Two keys: the record of each call, and an index entry for each call, written in one transaction
//! (`call_writes.rs`).
//! The index is in memory as well ([`CallIndex`]), so that no write reads the records of other
//! calls. Invariant: a call that has not ended is never removed; of the ended calls of a function,
//! the oldest are removed first.

use snowmelt_store::{Expect, Store, Transaction};
use snowmelt_types::{Code, ErrorReport, InvocationId, Report, Tenant};

use super::index::{self, CallIndex, Full, Of};
use super::{FunctionId, InvocationRecord, Records, collect, panicked, parse, written};

/// The prefix of the keys of records.
const RECORDS: &str = "calls/";
/// The prefix of the keys of index entries.
const ENTRIES: &str = "call-entries/";
/// The number of index entries that are read at once.
const ENTRIES_PAGE: usize = 4096;

/// Returns the key of a record.
pub(super) fn record_key(id: &str) -> String {
    format!("{RECORDS}{id}")
}

/// Returns the key of an index entry.
pub(super) fn entry_key(id: &str) -> String {
    format!("{ENTRIES}{id}")
}

/// The record and index entry of a call.
#[derive(Debug)]
pub(super) struct CallRow {
    pub id: InvocationId,
    pub record: Vec<u8>,
    pub entry: index::CallEntry,
}

impl CallRow {
    fn new(
        tenant: &Tenant,
        record: &InvocationRecord,
        until_ms: Option<u64>,
    ) -> Result<Self, ErrorReport> {
        let call = &record.invocation;
        let record = written(record)?;
        let function = FunctionId { tenant: tenant.clone(), name: call.function.clone() };
        let entry =
            index::CallEntry { until_ms, ..index::CallEntry::waiting(function, record.len()) };
        Ok(Self { id: call.id.clone(), record, entry })
    }
}

impl Records {
    /// Writes an accepted call of a tenant; on return it survives a crash.
    pub async fn accept(
        &self,
        tenant: &Tenant,
        record: &InvocationRecord,
    ) -> Result<(), ErrorReport> {
        self.write_call(CallRow::new(tenant, record, None)?).await
    }

    /// Writes how a call ended, to be kept until a time. Forgets calls that are too many, too old
    /// or too large together.
    pub async fn end(
        &self,
        tenant: &Tenant,
        record: &InvocationRecord,
        until_ms: u64,
    ) -> Result<(), ErrorReport> {
        self.write_call(CallRow::new(tenant, record, Some(until_ms))?).await
    }

    /// Returns a call, if it belongs to the tenant.
    pub async fn invocation(
        &self,
        tenant: &Tenant,
        id: &InvocationId,
    ) -> Result<Option<InvocationRecord>, ErrorReport> {
        let entry: Option<index::CallEntry> = self.get(&entry_key(id.as_str())).await?;
        match entry.filter(|entry| entry.function.tenant == *tenant) {
            Some(_) => self.get(&record_key(id.as_str())).await,
            None => Ok(None),
        }
    }

    /// Returns the calls that have not ended, the oldest first.
    pub async fn waiting(&self) -> Vec<(InvocationId, FunctionId)> {
        self.calls.lock().await.waiting()
    }

    /// Returns the length of the records of all asynchronous calls of a tenant.
    pub async fn call_bytes(&self, tenant: &Tenant) -> u64 {
        self.calls.lock().await.bytes_of(tenant)
    }

    /// Removes ended calls, of all tenants or of one: those whose answers have been kept for their
    /// time, or all. With `dry`, only counts them. Returns their number, and the bytes of their
    /// records.
    pub async fn prune_calls(
        &self,
        of: Option<&Tenant>,
        also_kept: bool,
        dry: bool,
    ) -> Result<(u64, u64), ErrorReport> {
        let mut index = self.calls.lock().await;
        if !self.is_held {
            // Other processes may have written since.
            *index = load(&*self.store).await?;
        }
        let gone = index.ended(of, also_kept);
        drop(index);
        let all = (gone.len() as u64, gone.iter().map(|(_, bytes)| bytes).sum());
        if !dry {
            for some in gone.chunks(index::MAX_REMOVED) {
                self.remove_calls(some.iter().map(|(id, _)| id.clone()).collect()).await?;
            }
        }
        Ok(all)
    }

    /// Removes ended calls, some at a time. Calls of others are accepted in between: an ended call
    /// does not wait again, so what was found before may be removed later, and may be gone by now.
    async fn remove_calls(&self, ids: Vec<InvocationId>) -> Result<(), ErrorReport> {
        self.to_the_end(async move |records| {
            let mut index = records.calls.lock().await;
            let removal = ids.iter().fold(Transaction::new(), deleting);
            records.store.transaction(removal).await.map_err(|error| error.report())?;
            index.forget_all(&ids);
            Ok(())
        })
        .await
    }

    /// Runs a step in a task of its own. If it were dropped with its caller between the write to
    /// the store and the write to the index, the two would differ.
    async fn to_the_end<F>(&self, work: impl FnOnce(Self) -> F) -> Result<(), ErrorReport>
    where
        F: Future<Output = Result<(), ErrorReport>> + Send + 'static,
    {
        tokio::spawn(work(self.clone())).await.unwrap_or_else(|error| Err(panicked(error)))
    }
}

/// Reads all index entries.
pub(super) async fn load(store: &dyn Store) -> Result<CallIndex, ErrorReport> {
    let mut index = CallIndex::default();
    let entries = collect(store, ENTRIES, ENTRIES_PAGE, |entry| {
        let id = entry.key.strip_prefix(ENTRIES).unwrap_or_default();
        Ok((InvocationId::from(id.to_owned()), parse::<index::CallEntry>(entry)?))
    });
    for (id, entry) in entries.await? {
        index.add(&id, entry);
    }
    Ok(index)
}

/// Encodes an index entry as the value in the store.
pub(super) fn encoded(entry: &index::CallEntry) -> Vec<u8> {
    // Numbers and names can always be written as JSON.
    serde_json::to_vec(entry).unwrap_or_default()
}

/// Adds the removal of a call to a transaction.
pub(super) fn deleting(all: Transaction, id: &InvocationId) -> Transaction {
    let all = all.delete(record_key(id.as_str()), Expect::Any);
    all.delete(entry_key(id.as_str()), Expect::Any)
}

/// Makes the error of a call that is not accepted.
pub(super) fn refused(FunctionId { tenant, name }: &FunctionId, full: Full) -> ErrorReport {
    let (Full::Calls(of, _) | Full::Bytes(of, _)) = full;
    let whose = match of {
        Of::Function => format!("of `{name}`"),
        Of::Tenant => format!("of all functions of `{tenant}`"),
        Of::All => "of all functions".to_owned(),
    };
    let share = if of == Of::Tenant { ", the share of one tenant now" } else { "" };
    let message = match full {
        Full::Calls(_, most) => format!("{most} asynchronous calls {whose} wait already{share}"),
        Full::Bytes(_, most) => {
            format!("the events of the asynchronous calls {whose} that wait have {most}{share}")
        }
    };
    ErrorReport::new(Code::CALLS_WAITING, message)
        .hint("call again when some have ended, or let more run at once with --instances")
}
