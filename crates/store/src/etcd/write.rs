//! Transactions: their conditions and operations in etcd's terms, and what became of them.
//!
//! Invariant: a transaction is done once or not at all, and is never reported as failed if it may
//! have been done: a lost answer is settled (`slots.rs`) or reported as unknown.

use std::collections::HashMap;

use prost::Message;
use tokio::time::Instant;

use super::channel::pause;
use super::grpc::CallFailure;
use super::leader::Fence;
use super::messages::{
    Compare, DeleteRangeRequest, PutRequest, RangeQuery, RequestOp, TxnRequest, TxnResponse,
    revision,
};
use super::slots::{Settled, Slot};
use super::{EtcdInner, leases, unsigned};
use crate::{
    Committed, Error, Expect, KeyOperation, KeyVersion, LeaseId, Result, Revision, Transaction,
};

/// The most operations of a transaction that etcd takes. One of them is the slot and one the fence.
pub const MAX_OPERATIONS: usize = 128;
/// The most bytes of a transaction: etcd takes 1.5 MiB, of which a part is its own.
pub const MAX_BYTES: usize = (3 << 19) - (4 << 10);

/// A transaction with all that an attempt needs.
#[derive(Clone, Copy)]
struct WriteAttempt<'a> {
    inner: &'a EtcdInner,
    transaction: &'a Transaction,
    fence: Option<&'a Fence>,
}

/// The reason for which etcd did not do a transaction.
enum Unmet {
    /// The slot has another version.
    Slot(i64),
    /// The error for the caller.
    Error(Error),
}

impl EtcdInner {
    /// Applies a transaction, under a fence if there is one.
    pub async fn transact(
        &self,
        transaction: Transaction,
        fence: Option<&Fence>,
    ) -> Result<Committed> {
        transaction.validated()?;
        let attempt = WriteAttempt { inner: self, transaction: &transaction, fence };
        attempt.fits()?;
        if transaction.operations.iter().all(|each| matches!(each, KeyOperation::Check { .. })) {
            return attempt.read().await;
        }
        if let Some(nothing) = unchanged(&transaction) {
            let nothing = WriteAttempt { transaction: &nothing, ..attempt };
            match nothing.read().await {
                Err(Error::Conflict { .. }) => {}
                done => return done,
            }
        }
        attempt.write().await
    }
}

/// The conditions under which a transaction changes nothing, if there are any: it deletes keys that
/// are absent. A transaction in a slot would change the slot.
fn unchanged(transaction: &Transaction) -> Option<Transaction> {
    let mut checks = Transaction::new();
    for operation in &transaction.operations {
        checks = match operation {
            KeyOperation::Put { .. } | KeyOperation::Delete { expect: Expect::Version(_), .. } => {
                return None;
            }
            KeyOperation::Delete { key, .. } => checks.check(key, Expect::Absent),
            KeyOperation::Check { key, expect } => checks.check(key, *expect),
        };
    }
    Some(checks)
}

impl WriteAttempt<'_> {
    /// Refuses a transaction that is longer than etcd takes, with the size of its largest value. Nothing
    /// is sent.
    fn fits(&self) -> Result<()> {
        let slot = Slot { key: Vec::new(), version: i64::MAX, lease: i64::MAX };
        let request = self.request(Some((&slot, 0)));
        let operations = request.success.len().max(request.failure.len());
        if operations > MAX_OPERATIONS {
            let what = format!("a transaction of {operations} operations");
            return Err(Error::TooLarge { what, limit: format!("{MAX_OPERATIONS} operations") });
        }
        if request.encoded_len() <= MAX_BYTES {
            return Ok(());
        }
        let size = |operation: &KeyOperation| match operation {
            KeyOperation::Put { value, .. } => value.len(),
            KeyOperation::Delete { .. } | KeyOperation::Check { .. } => 0,
        };
        let largest = self.transaction.operations.iter().max_by_key(|each| size(each));
        let (key, bytes) = largest.map_or(("", 0), |largest| (largest.key(), size(largest)));
        let what = format!("a transaction with `{key}` of {bytes} bytes");
        Err(Error::TooLarge { what, limit: format!("{MAX_BYTES} bytes") })
    }

    /// Does a transaction that changes nothing, which may be done twice.
    async fn read(&self) -> Result<Committed> {
        let done = self.inner.channel.repeat::<TxnResponse>("KV/Txn", &self.request(None)).await;
        let done = done.map_err(|failure| self.inner.channel.error(&failure))?;
        if done.succeeded {
            return Ok(self.committed(&done));
        }
        match self.unmet(&done, None) {
            Unmet::Error(error) => Err(error),
            Unmet::Slot(_) => Err(self.contradicts()),
        }
    }

    async fn write(&self) -> Result<Committed> {
        let channel = &self.inner.channel;
        let until = channel.deadline();
        loop {
            let slot = self.inner.slots.take(channel, until).await;
            let mut slot = slot.map_err(|failure| channel.error(&failure))?;
            let number = self.inner.slots.number();
            let request = self.request(Some((&slot, number)));
            let failure = match channel.once::<TxnResponse>("KV/Txn", &request, until).await {
                Ok(done) if done.succeeded => {
                    slot.version = revision(done.header.as_ref());
                    self.inner.slots.give_back(slot).await;
                    return Ok(self.committed(&done));
                }
                Ok(done) => match self.unmet(&done, Some(&slot)) {
                    Unmet::Slot(version) => {
                        slot.version = version;
                        self.inner.slots.give_back(slot).await;
                        continue;
                    }
                    Unmet::Error(error) => {
                        self.inner.slots.give_back(slot).await;
                        return Err(error);
                    }
                },
                Err(failure) => failure,
            };
            if failure.may_be_done() {
                match self.inner.slots.settle(channel, &mut slot, number, &failure).await? {
                    Settled::Done(at) => {
                        self.inner.slots.give_back(slot).await;
                        return self.recovered(at, &failure).await;
                    }
                    Settled::Never => self.inner.slots.give_back(slot).await,
                }
            } else if failure.says("lease not found") {
                self.inner.slots.forget(slot).await;
                self.lease_over().await?;
            } else {
                self.inner.slots.give_back(slot).await;
            }
            if !failure.passes() && !failure.says("lease not found") || Instant::now() >= until {
                return Err(channel.error(&failure));
            }
            pause().await;
        }
    }

    /// The request of the transaction, in a slot with a number.
    fn request(&self, slot: Option<(&Slot, u64)>) -> TxnRequest {
        let mut request = TxnRequest::default();
        if let Some(fence) = self.fence {
            request.compare.push(fence.compare());
            request.failure.push(RangeQuery::version_of(fence.key().to_vec()).into());
        }
        for operation in &self.transaction.operations {
            let key = self.inner.key(operation.key());
            request.compare.extend(condition(&key, operation.expect()));
            request.failure.push(RangeQuery::version_of(key).into());
            request.success.extend(self.operation(operation));
        }
        if let Some((slot, number)) = slot {
            request.compare.push(slot.compare());
            request.success.push(slot.put(number).into());
            request.failure.push(RangeQuery::version_of(slot.key.clone()).into());
        }
        request
    }

    /// An operation of etcd, which says what it found where nothing is expected. None for a check
    /// of what is expected.
    fn operation(&self, operation: &KeyOperation) -> Option<RequestOp> {
        let prev_kv = operation.expect() == Expect::Any;
        let key = self.inner.key(operation.key());
        match operation {
            KeyOperation::Put { value, lease, .. } => {
                let lease = lease.map_or(0, |lease| lease.0.cast_signed());
                Some(PutRequest { key, value: value.clone(), lease, prev_kv }.into())
            }
            KeyOperation::Delete { .. } => Some(DeleteRangeRequest { key, prev_kv }.into()),
            KeyOperation::Check { .. } => prev_kv.then(|| RangeQuery::version_of(key).into()),
        }
    }

    /// The result of a transaction that was done.
    fn committed(&self, done: &TxnResponse) -> Committed {
        let mut answers = done.responses.iter();
        let operations = self.transaction.operations.iter();
        let found = operations.map(|operation| {
            let is_check = matches!(operation, KeyOperation::Check { .. });
            match operation.expect() {
                Expect::Any => answers.next().and_then(|answer| answer.entry()).map(version),
                expected => {
                    // A check of what is expected is no operation of etcd.
                    let _ = (!is_check).then(|| answers.next());
                    match expected {
                        Expect::Version(version) => Some(version),
                        Expect::Any | Expect::Absent => None,
                    }
                }
            }
        });
        let found = found.collect();
        Committed { revision: Revision(unsigned(revision(done.header.as_ref()))), found }
    }

    /// The result of a transaction that was done with a revision, but whose answer was lost.
    async fn recovered(&self, at: i64, lost: &CallFailure) -> Result<Committed> {
        let mut found = HashMap::new();
        let any = |operation: &&KeyOperation| operation.expect() == Expect::Any;
        for operation in self.transaction.operations.iter().filter(any) {
            let before = RangeQuery {
                revision: at - 1,
                ..RangeQuery::version_of(self.inner.key(operation.key()))
            };
            let listed = self.inner.range(&before).await.map_err(|_| Error::Unknown {
                place: self.inner.channel.settings().place(),
                what: format!("it was done, but not what it found: {}", lost.reason()),
            })?;
            found.insert(operation.key(), listed.kvs.first().map(version));
        }
        let operations = self.transaction.operations.iter();
        let found = operations.map(|operation| match operation.expect() {
            Expect::Any => found.get(operation.key()).copied().flatten(),
            Expect::Absent => None,
            Expect::Version(version) => Some(version),
        });
        Ok(Committed { revision: Revision(unsigned(at)), found: found.collect() })
    }

    /// The first condition that was not met.
    fn unmet(&self, done: &TxnResponse, slot: Option<&Slot>) -> Unmet {
        let mut answers = done.responses.iter().map(|answer| answer.entry());
        if let Some(fence) = self.fence {
            let created = answers.next().flatten().map_or(0, |entry| entry.create_revision);
            if created != fence.created() {
                return Unmet::Error(Error::Deposed);
            }
        }
        for operation in &self.transaction.operations {
            let found = answers.next().flatten().map(version);
            if !operation.expect().is_met(found) {
                let key = operation.key().to_owned();
                return Unmet::Error(Error::Conflict { key, found });
            }
        }
        let found = answers.next().flatten().map_or(0, |entry| entry.mod_revision);
        match slot {
            Some(slot) if slot.version != found => Unmet::Slot(found),
            _ => Unmet::Error(self.contradicts()),
        }
    }

    fn contradicts(&self) -> Error {
        let what = "it refuses a transaction whose conditions are met".to_owned();
        Error::Refused { place: self.inner.channel.settings().place(), what }
    }

    /// Refuses a transaction one of whose own leases has ended.
    async fn lease_over(&self) -> Result<()> {
        for lease in self.transaction.leases() {
            let left = leases::time_to_live(&self.inner.channel, lease).await;
            if left.map_err(|failure| self.inner.channel.error(&failure))? <= 0 {
                return Err(Error::LeaseOver { lease: LeaseId(lease.0) });
            }
        }
        Ok(())
    }
}

fn condition(key: &[u8], expect: Expect) -> Option<Compare> {
    match expect {
        Expect::Any => None,
        Expect::Absent => Some(Compare::created(key.to_vec(), 0)),
        Expect::Version(version) => Some(Compare::modified(key.to_vec(), version.0.cast_signed())),
    }
}

fn version(entry: &super::messages::KeyValue) -> KeyVersion {
    KeyVersion(unsigned(entry.mod_revision))
}
