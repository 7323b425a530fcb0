//! Registered UDFs: functions that the SQL of their tenant, and other engines, call by name.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use snowmelt_types::QueryId;
use snowmelt_wire::Signature;
use utoipa::ToSchema;

use crate::{FileRef, FileRefs, UdfSource};

/// Registers all UDFs that a piece of code defines. A name that is registered already gets another
/// version; calls that have begun go on with the version that they began with.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RegisterRequest {
    /// The code, with its packages, files and secrets.
    pub source: UdfSource,
}

/// A registered UDF.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct UdfSummary {
    /// The name of the UDF in SQL.
    pub name: String,
    /// The version that is called, from 1.
    pub version: u32,
    /// The versions that are kept, oldest first.
    pub versions: Vec<u32>,
    /// The signature as text for people: `score(a DOUBLE, b DOUBLE NULL) DOUBLE`.
    pub text: String,
    /// The signature as data for programs.
    pub signature: Signature,
    /// The block image in which the UDF runs; absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Requirements that were given beside those that the code names.
    pub packages: Vec<String>,
    /// Files that the UDF's instances see.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, FileRef>)]
    pub files: FileRefs,
    /// Secrets of the UDF by the names that the code uses, as references.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, String>,
    /// When this version was registered, in milliseconds since 1970.
    pub registered_ms: u64,
}

/// The output of a registered UDF's instances, to stdout and stderr, in one query or lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UdfLogEntry {
    /// When the output was read, in milliseconds since 1970: at the end of the query or lease.
    pub at_ms: u64,
    /// The query; absent for a lease, such as one of another engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<QueryId>,
    /// The output, as much of it as is kept.
    pub text: String,
}
