//! Calls of functions, one or many, and the output of functions.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use snowmelt_types::{ErrorReport, FunctionName, HostName, InvocationId};
use utoipa::ToSchema;

use crate::Answer;

/// A call of a function.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct InvokeRequest {
    /// The event, the argument of the function.
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
    /// The events, one for each call.
    #[schema(value_type = Vec<serde_json::Value>)]
    pub events: Vec<Box<RawValue>>,
}

/// A call of a deployed function, with what is known of it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Invocation {
    /// The identifier of the call.
    pub id: InvocationId,
    /// The function.
    pub function: FunctionName,
    /// The state of the call.
    pub state: InvocationState,
    /// The answer of the function, once the call succeeded.
    #[serde(default)]
    #[schema(value_type = Option<serde_json::Value>)]
    pub result: Option<Answer>,
    /// The error of the call, once it failed.
    #[serde(default)]
    pub error: Option<ErrorReport>,
    /// Problems that the user should know of although the call did not fail, such as a log that was
    /// cut.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<ErrorReport>,
    /// The beginning of the call's output to stdout and stderr, for its caller; the log has all
    /// that is kept. Empty for calls whose answers are asked for later.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub printed: String,
    /// When the call was accepted, in milliseconds since 1970.
    pub accepted_ms: u64,
    /// Time from the call's acceptance to its end, in microseconds; absent until it has ended.
    #[serde(default)]
    pub wall_us: Option<u64>,
    /// True if an instance was started for the call.
    #[serde(default)]
    pub cold: bool,
    /// The reason why an instance had to be started for the call; absent if none was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cold_because: Option<ColdReason>,
    /// The host that ran the call, on a platform of several hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostName>,
}

/// The state of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum InvocationState {
    /// The call waits or runs.
    Running,
    /// The call has a result.
    Succeeded,
    /// The call has an error.
    Failed,
}

/// A failed call, in the form of the problem that its caller is told.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct FailedCall {
    /// The error of the call.
    #[serde(flatten)]
    pub report: ErrorReport,
    /// The rest of what is known of the call.
    pub invocation: Invocation,
}

/// The reason why no idle instance was there for a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ColdReason {
    /// The kind of the reason.
    pub kind: ColdKind,
    /// The reason in words, with the limit behind it.
    pub text: String,
    /// The setting that would have kept an instance; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// The reasons for a cold start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ColdKind {
    /// The function had no instance since it was deployed or the platform started, or none is kept
    /// idle.
    First,
    /// All instances of the function had calls.
    Busy,
    /// The idle instance was ended because its idle time was over.
    IdleTime,
    /// The idle instance was ended because the memory of idle instances was used up.
    Room,
    /// The instance before ended with its call.
    Ended,
}

/// The output of one invocation to stdout and stderr.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct LogEntry {
    /// The invocation.
    pub invocation: InvocationId,
    /// When the invocation was accepted, in milliseconds since 1970.
    pub accepted_ms: u64,
    /// The reason why an instance was started for the invocation; absent if none was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cold_because: Option<String>,
    /// The output, as much of it as is kept.
    pub text: String,
    /// Bytes of the output that were dropped, because they are beyond the limit of the log.
    pub dropped_bytes: u64,
}
