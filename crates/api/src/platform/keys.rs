//! Keys, with which clients on other hosts act for a tenant.

use std::fmt;

use serde::{Deserialize, Serialize};
use snowmelt_types::{NamePattern, Role, Tenant};
use utoipa::ToSchema;

/// A key to make, for the tenant of the request.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct KeyRequest {
    /// The role of the key. Nobody makes a key with more rights than their own.
    pub role: Role,
    /// The names of functions that the key is for; empty: all.
    #[serde(default)]
    pub grants: Vec<NamePattern>,
    /// The purpose of the key, for whoever reads the list.
    #[serde(default)]
    pub note: String,
    /// When the key ends, in milliseconds since 1970; absent: see `ttl_ms`.
    #[serde(default)]
    pub expires_ms: Option<u64>,
    /// How long the key lasts, in milliseconds; absent: it has no end, unless `expires_ms` has one.
    #[serde(default)]
    pub ttl_ms: Option<u64>,
}

/// A key to make in the place of another one, with the same limits.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct KeyRotation {
    /// How long the old key lasts still, in milliseconds.
    #[serde(default = "overlap")]
    pub overlap_ms: u64,
}

impl Default for KeyRotation {
    fn default() -> Self {
        Self { overlap_ms: overlap() }
    }
}

fn overlap() -> u64 {
    60 * 60 * 1000
}

/// A key in a list, without its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeySummary {
    /// The identifier, with which the text of the key begins after `snowmelt-`.
    pub id: String,
    /// The tenant that the key acts for.
    pub tenant: Tenant,
    /// The role of the key.
    pub role: Role,
    /// The names of functions that the key is for; empty: all.
    pub grants: Vec<NamePattern>,
    /// The purpose of the key.
    pub note: String,
    /// When the key was made, in milliseconds since 1970.
    pub created_ms: u64,
    /// The user or the key that made it.
    pub created_by: String,
    /// When the key ends, in milliseconds since 1970; absent if it has no end.
    pub expires_ms: Option<u64>,
    /// When the key was used last, in milliseconds since 1970, up to a minute less; absent if never.
    pub used_ms: Option<u64>,
}

/// A key that was made, with its text, which is shown this once.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
pub struct MadeKey {
    /// The text of the key, for the header `authorization: Bearer TEXT`.
    pub text: String,
    /// The key as it is listed.
    pub key: KeySummary,
}

impl fmt::Debug for MadeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MadeKey").field("key", &self.key).finish_non_exhaustive()
    }
}
