//! Amounts that are taken of a quota, until they are dropped.

use std::sync::Arc;

use snowmelt_rpc::body::BodyCount;
use snowmelt_types::{ErrorReport, FunctionName};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::rooms::RoomHolder;
use super::tenant::TenantQuotas;

/// Calls that have begun, and their places.
#[derive(Debug)]
pub(crate) struct BegunCalls {
    of: Arc<TenantQuotas>,
    who: Arc<str>,
    places: u64,
    /// The places in which the calls of a batch take turns.
    turns: Semaphore,
}

impl BegunCalls {
    pub(super) fn begin(
        of: Arc<TenantQuotas>,
        function: &str,
        count: u64,
    ) -> Result<Self, ErrorReport> {
        let who = function_holder(function);
        let places = of.begin_calls(&who, count)?;
        Ok(Self::new(of, who, places))
    }

    pub(super) async fn in_turn(of: Arc<TenantQuotas>, function: &str) -> Self {
        let who = function_holder(function);
        of.call_in_turn(&who).await;
        Self::new(of, who, 1)
    }

    fn new(of: Arc<TenantQuotas>, who: Arc<str>, places: u64) -> Self {
        let turns = usize::try_from(places).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        Self { of, who, places, turns: Semaphore::new(turns) }
    }

    /// Waits for one of the places, for one call of several.
    pub async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        self.turns.acquire().await.ok()
    }

    /// Returns the number of places.
    pub fn places(&self) -> usize {
        usize::try_from(self.places).unwrap_or(usize::MAX)
    }
}

impl Drop for BegunCalls {
    fn drop(&mut self) {
        self.of.calls_ended(&self.who, self.places);
    }
}

/// A query that has begun.
#[derive(Debug)]
pub(crate) struct BegunQuery {
    of: Arc<TenantQuotas>,
    who: Arc<str>,
}

impl BegunQuery {
    pub(super) fn begin(of: Arc<TenantQuotas>, id: &str) -> Result<Self, ErrorReport> {
        let who = Arc::from(format!("query {id}"));
        of.begin_query(&who)?;
        Ok(Self { of, who })
    }
}

impl Drop for BegunQuery {
    fn drop(&mut self) {
        self.of.query_ended(&self.who);
    }
}

/// Room for sandboxes.
#[derive(Debug)]
pub(crate) struct HeldRoom {
    of: Arc<TenantQuotas>,
    holder: RoomHolder,
}

impl HeldRoom {
    pub(super) fn take(of: Arc<TenantQuotas>, holder: RoomHolder) -> Result<Self, ErrorReport> {
        of.take_room(&holder)?;
        Ok(Self { of, holder })
    }

    pub(super) async fn in_turn(
        of: Arc<TenantQuotas>,
        holder: RoomHolder,
    ) -> Result<Self, ErrorReport> {
        of.room_in_turn(&holder).await?;
        Ok(Self { of, holder })
    }

    pub(super) fn more(of: Arc<TenantQuotas>, holder: RoomHolder) -> Option<Self> {
        of.more_room(&holder).then(|| Self { of, holder })
    }

    pub(super) fn of_running(of: Arc<TenantQuotas>, holder: RoomHolder) -> Self {
        of.runs(&holder);
        Self { of, holder }
    }
}

impl Drop for HeldRoom {
    fn drop(&mut self) {
        self.of.room_is_free(&self.holder);
    }
}

/// The place of the name of a function that is being deployed. A new name gives it back unless the
/// function is kept.
#[derive(Debug)]
pub(crate) struct FunctionPlace {
    of: Arc<TenantQuotas>,
    new: Option<FunctionName>,
}

impl FunctionPlace {
    pub(super) fn take(of: Arc<TenantQuotas>, name: &FunctionName) -> Result<Self, ErrorReport> {
        let is_new = of.take_function(name)?;
        Ok(Self { of, new: is_new.then(|| name.clone()) })
    }

    /// Keeps the place: the function is deployed.
    pub fn keep(mut self) {
        self.new = None;
    }
}

impl Drop for FunctionPlace {
    fn drop(&mut self) {
        if let Some(name) = &self.new {
            self.of.function_is_gone(name);
        }
    }
}

/// Bytes of the body of a request.
#[derive(Debug)]
pub(crate) struct HeldBytes {
    of: Arc<TenantQuotas>,
    bytes: u64,
}

impl HeldBytes {
    pub(super) fn none(of: Arc<TenantQuotas>) -> Self {
        Self { of, bytes: 0 }
    }
}

impl BodyCount for HeldBytes {
    fn grow_to(&mut self, bytes: u64) -> Result<(), ErrorReport> {
        let more = bytes.saturating_sub(self.bytes);
        if more > 0 {
            self.of.take_bytes(more)?;
            self.bytes += more;
        }
        Ok(())
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.of.give_bytes(self.bytes);
        }
    }
}

fn function_holder(function: &str) -> Arc<str> {
    Arc::from(format!("function {function}"))
}
