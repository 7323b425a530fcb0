//! The terms of the controls that lead a cluster, one after the other.
//!
//! Invariant: once a process has seen the term of a leader, no request and no answer of an earlier
//! leader is taken.

use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::{HeaderMap, HeaderName};
use snowmelt_types::{Code, ErrorReport};

/// The header with the term of the control that leads a cluster.
pub(crate) const TERM: HeaderName = HeaderName::from_static("snowmelt-term");

/// The terms that a process knows: numbers that grow with each leader. 0 is none.
#[derive(Debug, Default)]
pub struct Terms {
    own: AtomicU64,
    highest: AtomicU64,
}

impl Terms {
    /// Leads the cluster with a term, which is sent with all requests and answers from now on.
    pub fn lead(&self, term: u64) {
        self.own.store(term, Ordering::Relaxed);
    }

    /// Returns the term of this process, if it leads.
    pub(crate) fn own(&self) -> Option<u64> {
        Some(self.own.load(Ordering::Relaxed)).filter(|term| *term > 0)
    }

    /// Learns a term from the headers of a request or an answer.
    ///
    /// # Errors
    /// `SM-0529` for the term of an earlier leader; a term of a process that may not lead.
    pub(crate) fn learn(&self, headers: &HeaderMap, may_lead: bool) -> Result<(), ErrorReport> {
        let Some(term) = headers.get(TERM).and_then(|value| value.to_str().ok()) else {
            return Ok(());
        };
        if !may_lead {
            let message = "a host that is not control sends the term of a leader";
            return Err(ErrorReport::new(Code::HOST_REFUSED, message));
        }
        let term = term.parse().map_err(|_| {
            ErrorReport::new(Code::PROTOCOL, format!("`{term}` is not the term of a control"))
        })?;
        if self.highest.fetch_max(term, Ordering::Relaxed) > term {
            let message = "another control leads this cluster now";
            return Err(ErrorReport::new(Code::LEADER_OTHER, message));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_term_of_an_earlier_leader_is_refused() {
        let terms = Terms::default();
        let of = |term: u64| HeaderMap::from_iter([(TERM, term.into())]);
        terms.learn(&HeaderMap::new(), true).unwrap();
        terms.learn(&of(7), true).unwrap();
        terms.learn(&of(7), true).unwrap();
        let refused = terms.learn(&of(6), true).unwrap_err();
        assert_eq!(refused.code, Code::LEADER_OTHER.code);
        terms.learn(&of(9), true).unwrap();
        terms.learn(&of(7), true).unwrap_err();
        assert_eq!(terms.own(), None, "a host does not lead");
        terms.lead(9);
        assert_eq!(terms.own(), Some(9));
    }

    #[test]
    fn a_host_cannot_invent_a_term() {
        let terms = Terms::default();
        let invented = HeaderMap::from_iter([(TERM, u64::MAX.into())]);
        let refused = terms.learn(&invented, false).unwrap_err();
        assert_eq!(refused.code, Code::HOST_REFUSED.code);
        terms.learn(&HeaderMap::from_iter([(TERM, 7.into())]), true).unwrap();
    }
}
