//! Slots: keys that tell whether a transaction was done whose answer was lost.
//!
//! A transaction that changes something takes a slot for itself, expects the version that the slot
//! had, and writes its number to it. If its answer is lost, a second transaction expects the same
//! version and writes another number. Either it finds the number of the first one, which was done,
//! or it takes the version away on which the first one depends, which then is never done.
//!
//! Invariant: a slot is used by one transaction at a time, and not again before that one is
//! settled. All slots of a process are under one lease: none stays when the process is gone.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::channel::{EtcdChannel, in_time, pause};
use super::grpc::{CallFailure, NOT_FOUND};
use super::messages::{
    Compare, KeyValue, LeaseGrantRequest, LeaseGrantResponse, PutRequest, RangeQuery, TxnRequest,
    TxnResponse, revision,
};
use crate::{Error, Result};

/// The time to live of the lease of the slots.
const SLOTS_TTL: Duration = Duration::from_secs(600);
/// The age at which the lease is kept alive.
const REFRESH_AFTER: Duration = Duration::from_secs(200);
/// The most time for settling a transaction, which begins when that of the transaction may be over.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(6);

/// The slots of a process.
#[derive(Debug, Default)]
pub(super) struct Slots {
    numbers: AtomicU64,
    // Locked while the lease is made or kept alive.
    free: Mutex<FreeSlots>,
}

#[derive(Debug, Default)]
struct FreeSlots {
    slots: Vec<Slot>,
    made: u64,
    lease: Option<SlotLease>,
}

#[derive(Clone, Copy, Debug)]
struct SlotLease {
    id: i64,
    kept: Instant,
}

/// A slot in use.
#[derive(Debug)]
pub(super) struct Slot {
    pub key: Vec<u8>,
    /// The revision of its last write; 0 before the first.
    pub version: i64,
    pub lease: i64,
}

/// The end of a transaction whose answer was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settled {
    /// The transaction was done, with this revision.
    Done(i64),
    /// The transaction was not done, and never will be.
    Never,
}

impl Slot {
    /// The condition of a transaction in this slot.
    pub fn compare(&self) -> Compare {
        Compare::modified(self.key.clone(), self.version)
    }

    /// The write of a number to this slot.
    pub fn put(&self, number: u64) -> PutRequest {
        let value = number.to_be_bytes().to_vec().into();
        PutRequest { key: self.key.clone(), value, lease: self.lease, prev_kv: false }
    }

    /// Whether an entry of the slot has a number.
    fn has(entry: &KeyValue, number: u64) -> bool {
        entry.value[..] == number.to_be_bytes()
    }
}

impl Slots {
    /// A number that no transaction of this process has.
    pub fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Takes a slot that no transaction uses, within the time of the transaction: others may be making
    /// the lease.
    pub async fn take(&self, channel: &EtcdChannel, until: Instant) -> Result<Slot, CallFailure> {
        in_time(until, self.free(channel)).await
    }

    async fn free(&self, channel: &EtcdChannel) -> Result<Slot, CallFailure> {
        let mut free = self.free.lock().await;
        let old = free.lease.filter(|lease| lease.kept.elapsed() > REFRESH_AFTER);
        if let Some(lease) = old {
            let now = Instant::now();
            let is_kept = super::leases::keep_alive(channel, lease.id).await?;
            free.lease = is_kept.then_some(SlotLease { kept: now, ..lease });
        }
        let lease = match free.lease {
            Some(lease) => lease.id,
            None => {
                let kept = Instant::now();
                let request = LeaseGrantRequest { ttl: SLOTS_TTL.as_secs() as i64 };
                let granted = channel.repeat::<LeaseGrantResponse>("Lease/LeaseGrant", &request);
                let id = granted.await?.id;
                *free = FreeSlots { lease: Some(SlotLease { id, kept }), ..FreeSlots::default() };
                id
            }
        };
        if let Some(slot) = free.slots.pop() {
            return Ok(slot);
        }
        free.made += 1;
        let key = format!("{}/slots/{lease:016x}/{}", channel.settings().prefix, free.made);
        Ok(Slot { key: key.into_bytes(), version: 0, lease })
    }

    /// Gives back a slot whose version is known.
    pub async fn give_back(&self, slot: Slot) {
        let mut free = self.free.lock().await;
        if free.lease.is_some_and(|lease| lease.id == slot.lease) {
            free.slots.push(slot);
        }
    }

    /// Forgets a lease that has ended, with its slots.
    pub async fn forget(&self, slot: Slot) {
        let mut free = self.free.lock().await;
        if free.lease.is_some_and(|lease| lease.id == slot.lease) {
            *free = FreeSlots::default();
        }
    }

    /// Finds out whether the transaction with a number was done, and prevents it otherwise.
    ///
    /// # Errors
    /// [`Error::Unknown`] if etcd does not say so in time.
    pub async fn settle(
        &self,
        channel: &EtcdChannel,
        slot: &mut Slot,
        number: u64,
        lost: &CallFailure,
    ) -> Result<Settled> {
        let until = Instant::now() + SETTLE_TIMEOUT.min(channel.settings().timeout);
        let unknown = |what: &str| Error::Unknown {
            place: channel.settings().place(),
            what: what.to_owned(),
        };
        let taken = self.number();
        let range = RangeQuery { key: slot.key.clone(), ..RangeQuery::default() };
        let request = TxnRequest {
            compare: vec![slot.compare()],
            success: vec![slot.put(taken).into()],
            failure: vec![range.into()],
        };
        loop {
            match channel.once::<TxnResponse>("KV/Txn", &request, until).await {
                Ok(done) if done.succeeded => {
                    slot.version = revision(done.header.as_ref());
                    return Ok(Settled::Never);
                }
                Ok(done) => match done.responses.first().and_then(|answer| answer.entry()) {
                    Some(entry) if Slot::has(entry, number) => {
                        slot.version = entry.mod_revision;
                        return Ok(Settled::Done(entry.mod_revision));
                    }
                    // The answer to an earlier attempt at settling was lost.
                    Some(entry) if Slot::has(entry, taken) => {
                        slot.version = entry.mod_revision;
                        return Ok(Settled::Never);
                    }
                    _ => return Err(unknown("its slot was removed")),
                },
                Err(failure) if failure.passes() && Instant::now() < until => pause().await,
                Err(CallFailure::Refused(status)) if status.code == NOT_FOUND => {
                    return Err(unknown("the lease of its slot has ended"));
                }
                Err(_) => return Err(unknown(lost.reason())),
            }
        }
    }
}
