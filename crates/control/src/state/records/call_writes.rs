//! Writes of asynchronous calls: those that wait at the same time are one transaction.
//!
//! A store takes about as long for many as for one, because each transaction waits for a disk, and with
//! etcd for those of other machines. Invariant: a write is acknowledged when its transaction is done;
//! one that fails fails all its writes, and changes nothing.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use snowmelt_store::{Expect, Transaction};
use snowmelt_types::{Code, ErrorReport, Report};
use tokio::sync::oneshot;

use super::Records;
use super::calls::{CallRow, deleting, encoded, entry_key, record_key, refused};
use super::index::Planned;

/// The most bytes of the records in a transaction with more than one: etcd takes 1.5 MiB.
const MAX_BYTES: usize = 512 << 10;

/// The writes that wait for a transaction, the oldest first.
#[derive(Debug, Default)]
pub(super) struct CallWrites(Mutex<VecDeque<CallWrite>>);

#[derive(Debug)]
struct CallWrite {
    row: CallRow,
    done: oneshot::Sender<Result<(), ErrorReport>>,
}

impl CallWrites {
    fn add(&self, write: CallWrite) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push_back(write);
    }

    /// Takes the next write that fits into a transaction.
    fn next(&self, planned: &Planned<'_>, bytes: usize) -> Option<CallWrite> {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let CallRow { id, record, .. } = &waiting.front()?.row;
        let fits = planned.takes(id) && (bytes == 0 || bytes + record.len() <= MAX_BYTES);
        fits.then(|| waiting.pop_front()).flatten()
    }
}

impl Records {
    /// Writes a call, with others that wait. Goes on if the caller is dropped: otherwise the store and
    /// the index could differ.
    pub(super) async fn write_call(&self, row: CallRow) -> Result<(), ErrorReport> {
        let (done, answer) = oneshot::channel();
        self.writes.add(CallWrite { row, done });
        let records = self.clone();
        // There is such a task for each write, and each takes one at least, as long as there are any.
        tokio::spawn(async move { records.write_waiting().await });
        answer.await.unwrap_or_else(|_| {
            Err(ErrorReport::new(Code::INTERNAL, "a transaction panicked".to_owned()))
        })
    }

    async fn write_waiting(&self) {
        let mut index = self.calls.lock().await;
        let mut planned = index.plan();
        let mut puts = Transaction::new();
        let mut bytes = 0;
        let mut answers = Vec::new();
        while let Some(CallWrite { row, done }) = self.writes.next(&planned, bytes) {
            let CallRow { id, record, entry } = row;
            let is_new = entry.until_ms.is_none();
            if is_new && let Err(full) = planned.index().room_for(&entry) {
                // Nobody may wait for it any more.
                let _ = done.send(Err(refused(&entry.function, full)));
                continue;
            }
            bytes += record.len();
            puts = puts.put(record_key(id.as_str()), record, Expect::Any);
            planned.write(id, entry);
            answers.push(done);
        }
        let written = self.write_planned(puts, planned).await;
        for done in answers {
            let _ = done.send(written.clone());
        }
    }

    async fn write_planned(
        &self,
        records: Transaction,
        planned: Planned<'_>,
    ) -> Result<(), ErrorReport> {
        let entries = planned.written().fold(records, |all, (id, entry)| {
            all.put(entry_key(id.as_str()), encoded(entry), Expect::Any)
        });
        let all = planned.removed().fold(entries, deleting);
        if !all.operations.is_empty() {
            self.store.transaction(all).await.map_err(|error| error.report())?;
        }
        planned.keep();
        Ok(())
    }
}
