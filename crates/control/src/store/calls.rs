//! Asynchronous calls: their events until they have ended, then their answers for a bounded time.
//!
//! Two tables: the record of each call, and an index entry for each call. The index is in memory as
//! well ([`Index`]), so that no write reads the records of other calls. Invariant: a call that has
//! not ended is never removed; of the ended calls of a function, the oldest are removed first.

use redb::{Database, ReadableTable, ReadableTableMetadata, TableDefinition};
use serde::{Deserialize, Serialize};
use snowmelt_api::InvocationState;
use snowmelt_types::{Code, ErrorReport, FunctionName, InvocationId};

use super::index::{Entry, Full, Index};
use super::{InvocationRecord, Store};

/// The records.
pub(super) const RECORDS: TableDefinition<&str, &[u8]> = TableDefinition::new("invocations");
/// An [`Entry`] for each record.
const ENTRIES: TableDefinition<&str, &[u8]> = TableDefinition::new("invocation-entries");

/// The part that is needed of a record of an older version, which has no entry yet.
#[derive(Deserialize)]
struct Head {
    invocation: HeadOfCall,
}

#[derive(Deserialize)]
struct HeadOfCall {
    function: FunctionName,
    state: InvocationState,
}

impl Store {
    /// Writes a call that is accepted; on return it survives a crash.
    pub fn accept(&self, record: &InvocationRecord) -> Result<(), ErrorReport> {
        let call = &record.invocation;
        let value = self.written(record)?;
        let entry = Entry::waiting(&call.function, value.len());
        self.with(|database, index| {
            if let Err(full) = index.room_for(&entry) {
                return Ok(Err(full));
            }
            let removed = index.removed_for(None, entry.bytes);
            write(database, (&call.id, &value, &entry), &removed)?;
            index.apply(&call.id, entry.clone(), &removed);
            Ok(Ok(()))
        })?
        .map_err(|full| refused(&call.function, full))
    }

    /// Writes how a call ended, to be kept until then; forgets calls that are too many, too old or
    /// too large together.
    pub fn end(&self, record: &InvocationRecord, until_ms: u64) -> Result<(), ErrorReport> {
        let call = &record.invocation;
        let value = self.written(record)?;
        let entry =
            Entry { until_ms: Some(until_ms), ..Entry::waiting(&call.function, value.len()) };
        self.with(|database, index| {
            let removed = index.removed_for(Some(&call.function), entry.bytes);
            write(database, (&call.id, &value, &entry), &removed)?;
            index.apply(&call.id, entry.clone(), &removed);
            Ok(())
        })
    }

    /// A call.
    pub fn invocation(&self, id: &InvocationId) -> Result<Option<InvocationRecord>, ErrorReport> {
        self.get(RECORDS, id.as_str())
    }

    /// Calls that have not ended, the oldest first.
    pub fn waiting(&self) -> Result<Vec<(InvocationId, FunctionName)>, ErrorReport> {
        self.with(|_, index| Ok(index.waiting()))
    }
}

/// Reads all entries; makes those that are missing, one record at a time.
pub(super) fn load(database: &Database) -> Result<Index, redb::Error> {
    let mut index = Index::default();
    let transaction = database.begin_write()?;
    {
        let mut entries = transaction.open_table(ENTRIES)?;
        let records = transaction.open_table(RECORDS)?;
        if entries.len()? != records.len()? {
            for row in records.iter()? {
                let (id, record) = row?;
                let is_known = entries.get(id.value())?.is_some();
                if let Some(entry) = from_record(record.value()).filter(|_| !is_known) {
                    entries.insert(id.value(), &*encoded(&entry))?;
                }
            }
        }
        for row in entries.iter()? {
            let (id, entry) = row?;
            if let Ok(entry) = serde_json::from_slice(entry.value()) {
                index.add(&InvocationId::from(id.value().to_owned()), entry);
            }
        }
    }
    transaction.commit()?;
    Ok(index)
}

fn from_record(record: &[u8]) -> Option<Entry> {
    let head: Head = serde_json::from_slice(record).ok()?;
    let ended = head.invocation.state != InvocationState::Running;
    let until_ms = ended.then(|| crate::now_ms() + snowmelt_api::RESULT_KEPT_MS);
    Some(Entry { until_ms, ..Entry::waiting(&head.invocation.function, record.len()) })
}

fn write(
    database: &Database,
    (id, value, entry): (&InvocationId, &[u8], &Entry),
    removed: &[InvocationId],
) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    {
        let mut records = transaction.open_table(RECORDS)?;
        let mut entries = transaction.open_table(ENTRIES)?;
        for id in removed {
            records.remove(id.as_str())?;
            entries.remove(id.as_str())?;
        }
        records.insert(id.as_str(), value)?;
        entries.insert(id.as_str(), &*encoded(entry))?;
    }
    transaction.commit()?;
    Ok(())
}

fn encoded(entry: &impl Serialize) -> Vec<u8> {
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
