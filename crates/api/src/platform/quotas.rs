//! Quotas of tenants: what each kind counts, the limits, and what is used.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use snowmelt_types::{ByteSize, CpuMillis, Tenant};
use utoipa::ToSchema;

/// A kind of quota. Memory, bodies and disk are in bytes, cores in thousandths, the rest in ones.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum QuotaKind {
    /// Sandboxes that work for the tenant at one time.
    Instances,
    /// The sum of their memory limits.
    Memory,
    /// The sum of their shares of processor.
    Cores,
    /// Deployed functions.
    Functions,
    /// Calls and leases at one time.
    Calls,
    /// Calls and leases that begin within a second.
    CallsPerSecond,
    /// Queries at one time.
    Queries,
    /// Queries that begin within a second.
    QueriesPerSecond,
    /// Bodies of requests that the server holds at one time.
    RequestMemory,
    /// GiB of memory limits times the seconds that they were held, within a day of UTC.
    GibSecondsPerDay,
    /// Bytes on the disk of control's host that are of the tenant alone.
    Disk,
}

impl QuotaKind {
    /// All kinds.
    pub const ALL: [Self; 11] = [
        Self::Instances,
        Self::Memory,
        Self::Cores,
        Self::Functions,
        Self::Calls,
        Self::CallsPerSecond,
        Self::Queries,
        Self::QueriesPerSecond,
        Self::RequestMemory,
        Self::GibSecondsPerDay,
        Self::Disk,
    ];

    /// The name of the kind, in settings and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Instances => "instances",
            Self::Memory => "memory",
            Self::Cores => "cores",
            Self::Functions => "functions",
            Self::Calls => "calls",
            Self::CallsPerSecond => "calls_per_second",
            Self::Queries => "queries",
            Self::QueriesPerSecond => "queries_per_second",
            Self::RequestMemory => "request_memory",
            Self::GibSecondsPerDay => "gib_seconds_per_day",
            Self::Disk => "disk",
        }
    }

    /// An amount of this kind, for a user.
    pub fn shown(self, amount: u64) -> String {
        match self {
            Self::Memory | Self::RequestMemory | Self::Disk => ByteSize(amount).to_string(),
            Self::Cores if amount.is_multiple_of(1000) => (amount / 1000).to_string(),
            Self::Cores => format!("{:.2}", amount as f64 / 1000.0),
            _ => amount.to_string(),
        }
    }

    fn amount(self, text: &str) -> Result<u64, String> {
        match self {
            Self::Memory | Self::RequestMemory | Self::Disk => {
                text.parse().map(ByteSize::bytes).map_err(|error| error.to_string())
            }
            Self::Cores => {
                let cores = text.parse::<CpuMillis>().map_err(|error| error.to_string())?;
                Ok(cores.0.into())
            }
            _ => text.parse().map_err(|_| format!("`{text}` is not a whole number")),
        }
    }
}

impl fmt::Display for QuotaKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The limit of a kind: an amount, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum QuotaLimit {
    /// No more than this.
    AtMost(u64),
    /// No limit, whatever the default is.
    Unlimited,
    /// The default of the platform.
    Default,
}

impl QuotaLimit {
    /// The limit over a default.
    pub fn over(self, default: Option<u64>) -> Option<u64> {
        match self {
            Self::AtMost(amount) => Some(amount),
            Self::Unlimited => None,
            Self::Default => default,
        }
    }
}

/// A kind with its limit, as `instances=8`, `memory=16GiB`, `calls=none` or `calls=default`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedLimit {
    /// The kind.
    pub kind: QuotaKind,
    /// The limit.
    pub limit: QuotaLimit,
}

impl FromStr for NamedLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = text.split_once('=');
        let (name, amount) =
            named.ok_or_else(|| format!("`{text}` is not of the form instances=8"))?;
        let kind = QuotaKind::ALL.into_iter().find(|kind| kind.name() == name.trim());
        let kind = kind.ok_or_else(|| {
            let names = QuotaKind::ALL.map(QuotaKind::name);
            format!("`{}` is no quota; there are {}", name.trim(), names.join(", "))
        })?;
        let limit = match amount.trim() {
            "none" => QuotaLimit::Unlimited,
            "default" => QuotaLimit::Default,
            amount => QuotaLimit::AtMost(
                kind.amount(amount).map_err(|problem| format!("{kind}: {problem}"))?,
            ),
        };
        Ok(Self { kind, limit })
    }
}

/// Quotas to set for the tenant of the request. What is not named stays.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct QuotaRequest {
    /// The limits, by kind.
    #[schema(value_type = std::collections::HashMap<String, QuotaLimit>)]
    pub limits: BTreeMap<QuotaKind, QuotaLimit>,
}

/// The quotas of a tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QuotaSummary {
    /// The tenant.
    pub tenant: Tenant,
    /// The use of each kind.
    pub quotas: Vec<QuotaUse>,
}

/// The use of one quota.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QuotaUse {
    /// The kind.
    pub kind: QuotaKind,
    /// The amount that is used now.
    pub used: u64,
    /// The most that may be used; absent: there is no limit.
    pub limit: Option<u64>,
    /// True if the limit was set for this tenant.
    pub own: bool,
    /// The users of it, the most first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by: Vec<QuotaHolder>,
}

/// Somebody who uses a part of a quota.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QuotaHolder {
    /// The function, query or burst.
    pub name: String,
    /// The amount that it uses.
    pub used: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_has_a_kind_and_an_amount() {
        let limit = |text: &str| text.parse::<NamedLimit>().map(|named| (named.kind, named.limit));
        assert_eq!(limit("instances=8"), Ok((QuotaKind::Instances, QuotaLimit::AtMost(8))));
        assert_eq!(limit("memory=2GiB"), Ok((QuotaKind::Memory, QuotaLimit::AtMost(2 << 30))));
        assert_eq!(limit(" cores = 2.5"), Ok((QuotaKind::Cores, QuotaLimit::AtMost(2500))));
        assert_eq!(limit("calls=none"), Ok((QuotaKind::Calls, QuotaLimit::Unlimited)));
        assert_eq!(limit("calls=default"), Ok((QuotaKind::Calls, QuotaLimit::Default)));
        for (wrong, said) in [
            ("instances", "form instances=8"),
            ("disc=8", "`disc` is no quota; there are instances"),
            ("calls=-1", "calls: `-1` is not a whole number"),
            ("memory=much", "memory: `much` is not"),
        ] {
            let refused = limit(wrong).unwrap_err();
            assert!(refused.contains(said), "{refused}");
        }
    }

    #[test]
    fn kinds_have_the_same_name_in_json_and_in_settings() {
        for kind in QuotaKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
        assert_eq!(QuotaKind::Cores.shown(2500), "2.50");
    }
}
