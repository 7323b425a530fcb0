//! The memory that answers take from when they are read until they are sent, which a client that
//! reads slowly can make long.
//!
//! Invariant: all answers together take at most [`MAX_UNDER_WAY`], and those of one tenant at most
//! a quarter of it, so no tenant can keep the others' answers from being read.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use snowmelt_types::{ByteSize, Tenant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use crate::{Error, Result};

/// The most memory that all answers take together.
const MAX_UNDER_WAY: ByteSize = ByteSize::mib(512);
/// The most memory that the answers of one tenant take together: one answer of the greatest length,
/// in all its copies.
const MAX_OF_TENANT: ByteSize = ByteSize::mib(128);
/// How many copies of an answer are in memory at the same time while it is passed on.
const COPIES: u64 = 2;
/// How long an answer waits for memory; the time-outs of the server free it.
const ROOM_TIMEOUT: Duration = Duration::from_secs(2);
/// The bytes that each permit of the semaphores stands for.
const UNIT: u64 = 1 << 10;

/// A part of the memory that answers may take, held until the value is dropped.
#[derive(Debug)]
pub(crate) struct AnswerSpace {
    _of_tenant: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

/// The memory that answers may take, in all and for each tenant.
#[derive(Debug)]
pub(crate) struct AnswerBudget {
    all: Arc<Semaphore>,
    // Each semaphore lives as long as answers of its tenant have or wait for memory.
    tenants: Mutex<HashMap<Tenant, Weak<Semaphore>>>,
}

impl Default for AnswerBudget {
    fn default() -> Self {
        Self { all: semaphore(MAX_UNDER_WAY), tenants: Mutex::default() }
    }
}

impl AnswerBudget {
    /// Waits for the memory of an answer of `length` bytes.
    ///
    /// # Errors
    /// [`Error::AnswersOfTenantFull`] or [`Error::AnswersFull`] when other answers keep the memory
    /// too long.
    pub async fn make(&self, tenant: &Tenant, length: u64) -> Result<AnswerSpace> {
        let count = units(length * COPIES);
        let until = Instant::now() + ROOM_TIMEOUT;
        // The tenant's own bound comes first: an answer that waits for it takes nothing from other
        // tenants.
        let Some(of_tenant) = acquire(self.of_tenant(tenant), count, until).await else {
            return Err(Error::AnswersOfTenantFull { tenant: tenant.clone(), most: MAX_OF_TENANT });
        };
        match acquire(Arc::clone(&self.all), count, until).await {
            Some(of_all) => Ok(AnswerSpace { _of_tenant: of_tenant, _of_all: of_all }),
            None => Err(Error::AnswersFull { most: MAX_UNDER_WAY }),
        }
    }

    fn of_tenant(&self, tenant: &Tenant) -> Arc<Semaphore> {
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = tenants.get(tenant).and_then(Weak::upgrade) {
            return known;
        }
        tenants.retain(|_, semaphore| semaphore.strong_count() > 0);
        let new = semaphore(MAX_OF_TENANT);
        tenants.insert(tenant.clone(), Arc::downgrade(&new));
        new
    }
}

async fn acquire(
    semaphore: Arc<Semaphore>,
    count: u32,
    until: Instant,
) -> Option<OwnedSemaphorePermit> {
    timeout_at(until, semaphore.acquire_many_owned(count)).await.ok()?.ok()
}

fn semaphore(size: ByteSize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(units(size.bytes()) as usize))
}

fn units(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MAX_ANSWER;

    fn tenant(number: u64) -> Tenant {
        format!("t{number}").parse().unwrap()
    }

    #[tokio::test]
    async fn a_tenant_whose_answers_are_not_read_leaves_memory_for_those_of_others() {
        let rooms = AnswerBudget::default();
        let longest = MAX_ANSWER.bytes();
        let held = rooms.make(&tenant(0), longest).await.unwrap();
        let refused = rooms.make(&tenant(0), 1).await;
        assert!(matches!(refused, Err(Error::AnswersOfTenantFull { .. })), "{refused:?}");
        rooms.make(&tenant(1), longest).await.unwrap();
        drop(held);
        rooms.make(&tenant(0), longest).await.unwrap();
    }

    #[tokio::test]
    async fn all_tenants_together_are_bounded_too() {
        let rooms = AnswerBudget::default();
        let longest = MAX_ANSWER.bytes();
        let mut held = Vec::new();
        for number in 0..MAX_UNDER_WAY.bytes() / (longest * COPIES) {
            held.push(rooms.make(&tenant(number), longest).await.unwrap());
        }
        let refused = rooms.make(&tenant(99), longest).await;
        assert!(matches!(refused, Err(Error::AnswersFull { .. })), "{refused:?}");
        held.pop();
        rooms.make(&tenant(99), longest).await.unwrap();
    }

    #[tokio::test]
    async fn a_tenant_without_answers_leaves_no_entry() {
        let rooms = AnswerBudget::default();
        for number in 0..100 {
            drop(rooms.make(&tenant(number), 1).await.unwrap());
        }
        assert!(rooms.tenants.lock().unwrap().len() <= 1);
    }
}
