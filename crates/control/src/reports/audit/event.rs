//! The events of which lines of the audit tell.

use std::collections::BTreeMap;

use chrono::{DateTime, SecondsFormat};
use serde::Serialize;

use crate::now_ms;

/// An event, without its place in the chain.
#[derive(Clone, Debug, Serialize)]
pub(super) struct AuditEvent {
    /// When it ended, in UTC with milliseconds.
    time: String,
    #[serde(flatten)]
    what: Happened,
}

#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Happened {
    Action(Box<ActionLine>),
    /// A request whose key was not accepted.
    Login {
        address: Option<String>,
        code: String,
    },
    /// Further ones from the same address.
    Logins {
        address: Option<String>,
        count: u64,
    },
    /// Lines that are not there.
    Gap {
        lost: u64,
        why: &'static str,
    },
    Start {
        version: String,
        pid: u32,
    },
    End,
}

/// An action of somebody.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct ActionLine {
    /// The user, the key or the token, as `key 0f1e2d3c4b5a6978`.
    pub principal: String,
    pub tenant: String,
    pub role: String,
    /// The address of the client; none on the socket.
    pub address: Option<String>,
    /// The method and the route.
    pub action: String,
    /// The function, key, burst or other thing that it is about.
    pub object: String,
    /// Facts that help an operator, such as the digest of SQL.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub detail: BTreeMap<&'static str, String>,
    /// The status of the answer; none if the client was gone before.
    pub status: Option<u16>,
    /// The code of the error; empty for none.
    pub code: String,
    pub took_ms: u64,
    /// The identifier of the request.
    pub request: String,
}

impl AuditEvent {
    fn now(what: Happened) -> Self {
        let ms = i64::try_from(now_ms()).unwrap_or(i64::MAX);
        let time = DateTime::from_timestamp_millis(ms).unwrap_or_default();
        Self { time: time.to_rfc3339_opts(SecondsFormat::Millis, true), what }
    }

    pub fn action(line: ActionLine) -> Self {
        Self::now(Happened::Action(Box::new(line)))
    }

    pub fn login(address: Option<String>, code: String) -> Self {
        Self::now(Happened::Login { address, code })
    }

    pub fn logins(address: Option<String>, count: u64) -> Self {
        Self::now(Happened::Logins { address, count })
    }

    pub fn gap(lost: u64, why: &'static str) -> Self {
        Self::now(Happened::Gap { lost, why })
    }

    pub fn start() -> Self {
        let version = snowmelt_rpc::version().to_owned();
        Self::now(Happened::Start { version, pid: std::process::id() })
    }

    pub fn end() -> Self {
        Self::now(Happened::End)
    }
}
