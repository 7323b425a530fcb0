//! Deployed functions: their code and options, their calls, their bursts.
//!
//! | member | shapes of |
//! |---|---|
//! | `function` | functions, code packages and wheels |
//! | `answer` | the answer of a function |
//! | `invocations` | calls and their logs |
//! | `bursts` | functions run once for each event, all at once |

mod answer;
mod bursts;
mod function;
mod invocations;

pub use answer::{Answer, AnswerGuard};
pub use bursts::{
    BurstAnswer, BurstCalls, BurstPart, BurstRequest, BurstRoom, BurstState, BurstStatus,
    NetworkRequest,
};
pub use function::{
    CallMode, FunctionOptions, FunctionSpec, FunctionSummary, PackRequest, Packed, RESULT_KEPT_MS,
    Runtime, Wheel, no_code,
};
pub use invocations::{
    BatchRequest, ColdKind, ColdReason, FailedCall, Invocation, InvocationState, InvokeRequest,
    LogEntry,
};
