//! Wheels of users' own: how much of them a tenant may send.
//!
//! Wheels are a part of the package cache, whose size is bounded; what one tenant sends would take
//! the place of what others have. A wheel that is sent again counts once.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use snowmelt_types::{ByteSize, Code, Digest, ErrorReport, Tenant};

/// The most bytes of different wheels that a tenant sends within the time.
const MAX_SENT: ByteSize = ByteSize::mib(1024);
const LIMITED_TIME: Duration = Duration::from_secs(3600);

/// The wheels that each tenant has sent lately, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct SentWheels {
    sent: Mutex<HashMap<Tenant, VecDeque<SentWheel>>>,
}

#[derive(Debug)]
struct SentWheel {
    at: Instant,
    digest: Digest,
    bytes: u64,
}

impl SentWheels {
    /// Counts a wheel of a tenant.
    pub fn add(
        &self,
        tenant: &Tenant,
        digest: Digest,
        bytes: u64,
        now: Instant,
    ) -> Result<(), ErrorReport> {
        let mut all = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, sent| {
            sent.retain(|wheel| now.saturating_duration_since(wheel.at) < LIMITED_TIME);
            !sent.is_empty()
        });
        let sent = all.entry(tenant.clone()).or_default();
        if sent.iter().any(|wheel| wheel.digest == digest) {
            return Ok(());
        }
        let sum: u64 = sent.iter().map(|wheel| wheel.bytes).sum();
        if sum.saturating_add(bytes) > MAX_SENT.bytes() {
            let message = format!("tenant `{tenant}` has sent {MAX_SENT} of wheels within an hour");
            return Err(ErrorReport::new(Code::NO_ROOM, message)
                .hint("put packages on an index that the platform reaches, or try again later"));
        }
        sent.push_back(SentWheel { at: now, digest, bytes });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_sends_no_more_than_its_part_within_the_time() {
        let sent = SentWheels::default();
        let now = Instant::now();
        let (one, two): (Tenant, Tenant) = ("one".parse().unwrap(), "two".parse().unwrap());
        let half = MAX_SENT.bytes() / 2;
        let add = |tenant, name: &str, bytes, after| {
            sent.add(tenant, Digest::of(name), bytes, now + after)
        };
        add(&one, "a", half, Duration::ZERO).unwrap();
        add(&one, "b", half, Duration::from_secs(60)).unwrap();
        add(&one, "a", half, Duration::from_secs(60)).unwrap();
        let refused = add(&one, "c", 1, Duration::from_secs(60)).unwrap_err();
        assert_eq!(refused.code, Code::NO_ROOM.code);
        add(&two, "c", half, Duration::from_secs(60)).unwrap();
        add(&one, "c", half, LIMITED_TIME).unwrap();
        assert!(add(&one, "d", 1, LIMITED_TIME).is_err(), "the second one counts still");
    }
}
