//! The process of a zygote in the tree, once it runs.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::OnceCell;

use super::running_zygote::ZygoteMember;

/// The place for the process of a zygote in the tree; empty until the zygote runs.
#[derive(Debug)]
pub(super) struct ZygoteSlot {
    pub(super) member: OnceCell<Arc<ZygoteMember>>,
    used: Mutex<Instant>,
}

impl ZygoteSlot {
    pub(super) fn new() -> Self {
        Self { member: OnceCell::new(), used: Mutex::new(Instant::now()) }
    }

    pub(super) fn of(member: Arc<ZygoteMember>) -> Self {
        Self { member: OnceCell::new_with(Some(member)), used: Mutex::new(Instant::now()) }
    }

    /// Returns whether the zygote's process has run and ended.
    pub(super) fn is_dead(&self) -> bool {
        self.member.get().is_some_and(|member| !member.is_alive())
    }

    pub(super) fn touch(&self) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    pub(super) fn used(&self) -> Instant {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn idle_for(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.used())
    }
}
