//! Failed logins: the first of each address within a minute are lines, the others one line with
//! their number.
//!
//! Invariant: whatever addresses send, a minute has a bounded number of lines, and all that failed
//! are in them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::event::AuditEvent;

/// The lines that an address gets within the time.
const MAX_LINES: u64 = 5;

/// The addresses that are told apart within the time; the others are counted together.
const MAX_ADDRESSES: usize = 256;

/// The time after which counts become lines.
const COUNTED_FOR: Duration = Duration::from_secs(60);

/// The failed logins of late.
#[derive(Debug, Default)]
pub(super) struct FailedLogins {
    of: Mutex<LoginCounts>,
}

#[derive(Debug, Default)]
struct LoginCounts {
    since: Option<Instant>,
    by: HashMap<Option<IpAddr>, u64>,
    others: u64,
}

impl FailedLogins {
    /// Counts one; returns its line if it has one of its own.
    pub fn note(&self, address: Option<IpAddr>, code: &str) -> Option<AuditEvent> {
        let mut counts = self.lock();
        counts.since.get_or_insert_with(Instant::now);
        if !counts.by.contains_key(&address) && counts.by.len() >= MAX_ADDRESSES {
            counts.others += 1;
            return None;
        }
        let count = counts.by.entry(address).or_insert(0);
        *count += 1;
        (*count <= MAX_LINES).then(|| AuditEvent::login(shown(address), code.to_owned()))
    }

    /// Returns the lines of those without one of their own, once the time is over, or `at_once`.
    pub fn due(&self, at_once: bool) -> Vec<AuditEvent> {
        let mut counts = self.lock();
        let is_over = counts.since.is_some_and(|since| since.elapsed() >= COUNTED_FOR);
        if !is_over && !at_once {
            return Vec::new();
        }
        let LoginCounts { by, others, .. } = std::mem::take(&mut *counts);
        let more = by.into_iter().filter(|(_, count)| *count > MAX_LINES);
        let more =
            more.map(|(address, count)| AuditEvent::logins(shown(address), count - MAX_LINES));
        let others = (others > 0).then(|| AuditEvent::logins(None, others));
        more.chain(others).collect()
    }

    fn lock(&self) -> MutexGuard<'_, LoginCounts> {
        self.of.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn shown(address: Option<IpAddr>) -> Option<String> {
    address.map(|address| address.to_string())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn many_failed_logins_are_few_lines_and_all_are_counted() {
        let logins = FailedLogins::default();
        let mut lines = 0;
        for number in 0..100_000_u32 {
            let address = IpAddr::from(Ipv4Addr::from(number % 1000));
            lines += u64::from(logins.note(Some(address), "SM-0515").is_some());
        }
        assert!(logins.due(false).is_empty());
        let due = logins.due(true);
        assert!(lines + due.len() as u64 <= 256 * 6 + 1, "{lines} {}", due.len());
        let text = serde_json::to_value(&due).unwrap();
        let counted = text.as_array().unwrap().iter().map(|line| line["count"].as_u64().unwrap());
        assert_eq!(lines + counted.sum::<u64>(), 100_000);
        assert!(logins.due(true).is_empty());
    }
}
