//! Messages between the platform and instances of a user's code.
//!
//! | member | job |
//! |---|---|
//! | `function` | the dialogue with an instance: code, calls, answers |
//! | `aggregate` | steps of aggregate functions |
//! | `failure` | the failure of a user's code |
//! | `definition` | statements that define functions |

mod aggregate;
mod definition;
mod failure;
mod function;

pub use aggregate::{AggregateCall, AggregateDone, AggregateStep};
pub use definition::{CreateFunction, Definition, Statement};
pub use failure::{FailureKind, FunctionFailure};
pub use function::{
    Call, CodeFile, Load, LoadReport, Mode, OnError, Signature, SourceCode, UdfKind,
};
