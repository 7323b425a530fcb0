//! Registered UDFs: functions that the SQL of their tenant, and other engines, call by name.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use snowmelt_types::QueryId;
use snowmelt_wire::Signature;
use utoipa::ToSchema;

use crate::{FileRefs, UdfSource};

/// Registers all UDFs that a piece of code defines. A name that is registered already gets another
/// version; calls that have begun go on with the version that they began with.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RegisterRequest {
    /// The code.
    pub source: UdfSource,
}

/// A registered UDF.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct UdfSummary {
    /// Its name in SQL.
    pub name: String,
    /// The version that is called, from 1.
    pub version: u32,
    /// The versions that are kept, oldest first.
    pub versions: Vec<u32>,
    /// For people: `score(a DOUBLE, b DOUBLE NULL) DOUBLE`.
    pub text: String,
    /// For programs.
    pub signature: Signature,
    /// The block image in which it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Requirements that were given beside those of its code.
    pub packages: Vec<String>,
    /// Files that its instances see.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: FileRefs,
    /// Its secrets, as references.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, String>,
    /// When this version was registered, in milliseconds since 1970.
    pub registered_ms: u64,
}

/// What instances of a registered UDF wrote to stdout and stderr in one query or lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UdfLogEntry {
    /// When it was read, in milliseconds since 1970: at the end of the query or lease.
    pub at_ms: u64,
    /// The query; absent for a lease, as another engine has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<QueryId>,
    /// What they wrote, as much as is kept.
    pub text: String,
}
