//! Messages between the platform and the driver of a query.
//!
//! | member | job |
//! |---|---|
//! | `requests` | the first message, the driver's requests, the platform's replies |
//! | `csv_option` | options for CSV files |
//! | `parameters` | values of a statement's parameters |
//! | `prices` | a user's own prices |

mod csv_option;
mod parameters;
mod prices;
mod requests;

pub use csv_option::CsvOption;
pub use parameters::{Parameter, ParameterType, Parameters, TypedText};
pub use prices::PriceFile;
pub use requests::{
    Answered, Drive, DriverOperation, DriverRequest, MAX_ANSWER_BYTES, MAX_FURTHER_ATTEMPTS,
    MAX_PLANS, MAX_REQUEST_BYTES, Reply, RequestFailure, RunProgress, SandboxUse, TaskAsk,
};
