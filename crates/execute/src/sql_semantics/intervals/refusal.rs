//! The error of what is not supported with intervals.

use datafusion::error::DataFusionError;
use snowmelt_types::{Code, ErrorReport};

pub(super) fn unsupported(message: &str, hint: &str) -> DataFusionError {
    let report = ErrorReport::new(Code::PLAN_UNSUPPORTED, message).hint(hint);
    DataFusionError::External(Box::new(report))
}
