//! Calls of functions, one or many, and what they wrote.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use snowmelt_types::{ErrorReport, FunctionName, HostName, InvocationId};
use utoipa::ToSchema;

use crate::Answer;

/// A call of a function.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct InvokeRequest {
    /// The event.
    #[schema(value_type = serde_json::Value)]
    pub event: Box<RawValue>,
    /// True to get an id at once and ask for the answer later.
    #[serde(default)]
    pub asynchronous: bool,
}

/// Calls of a function, all at once.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BatchRequest {
    /// The events.
    #[schema(value_type = Vec<serde_json::Value>)]
    pub events: Vec<Box<RawValue>>,
}

/// A call with what is known of it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Invocation {
    /// Its id.
    pub id: InvocationId,
    /// The function.
    pub function: FunctionName,
    /// Where it stands.
    pub state: InvocationState,
    /// The answer, once it succeeded.
    #[serde(default)]
    #[schema(value_type = Option<serde_json::Value>)]
    pub result: Option<Answer>,
    /// The error, once it failed.
    #[serde(default)]
    pub error: Option<ErrorReport>,
    /// What the user should know although it is not a failure (its log was cut).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<ErrorReport>,
    /// The beginning of what it wrote to stdout and stderr, for its caller; the log has all that is
    /// kept. Empty for calls whose answers are asked for later.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub printed: String,
    /// When it was accepted, in milliseconds since 1970.
    pub accepted_ms: u64,
    /// From its acceptance to its end, in microseconds.
    #[serde(default)]
    pub wall_us: Option<u64>,
    /// True if an instance was started for it.
    #[serde(default)]
    pub cold: bool,
    /// Why one had to be started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cold_because: Option<ColdReason>,
    /// The host that ran it, on a platform of several hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostName>,
}

/// Where an invocation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum InvocationState {
    /// It waits or runs.
    Running,
    /// It has a result.
    Succeeded,
    /// It has an error.
    Failed,
}

/// A call that failed, as the problem that its caller is told.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct FailedCall {
    /// What it failed with.
    #[serde(flatten)]
    pub report: ErrorReport,
    /// The rest of what is known of it.
    pub invocation: Invocation,
}

/// Why no instance was there for a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ColdReason {
    /// Which reason.
    pub kind: ColdKind,
    /// In words, with the limit behind it.
    pub text: String,
    /// The setting that would have kept one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// The reasons for a cold start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ColdKind {
    /// There was none since the function was deployed or the platform started.
    First,
    /// All that there are had calls.
    Busy,
    /// It was ended because its idle time was over.
    IdleTime,
    /// It was ended because the memory of idle instances was used up.
    Room,
    /// It ended with the call before.
    Ended,
}

/// What one invocation wrote to stdout and stderr.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct LogEntry {
    /// The invocation.
    pub invocation: InvocationId,
    /// When it was accepted, in milliseconds since 1970.
    pub accepted_ms: u64,
    /// Why an instance was started for it, if one was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cold_because: Option<String>,
    /// What it wrote, as much as is kept.
    pub text: String,
    /// Bytes beyond that, which were dropped.
    pub dropped_bytes: u64,
}
