//! The run of one call of a function on an instance, from its lease to its end.

use std::time::Duration;

use snowmelt_api::Answer;
use snowmelt_types::{ErrorReport, Report};
use snowmelt_wire::{Call, Load};

use super::lease::InstanceLease;
use crate::Error;
use crate::process::log::LogText;

/// The result of a call of a function.
#[derive(Debug)]
pub struct CallEnd {
    /// The answer of the function, or the report that says why there is none.
    pub answer: Result<Answer, ErrorReport>,
    /// The output of the instance since the last read, as `InstanceLease::take_log` returns it.
    pub log: LogText,
    /// True if the instance ended with the call.
    pub instance_ended: bool,
}

impl InstanceLease {
    /// Runs a call and gives the slot back, unless the instance cannot be used again.
    pub async fn run(mut self, load: &Load, call: &Call, limit: Duration) -> CallEnd {
        let answer = self.call(load, call, limit).await;
        let log = self.take_log();
        // A function that raised an error is as good as new for the next call.
        let instance_ended = !matches!(answer, Ok(_) | Err(Error::Function(_)));
        if !instance_ended {
            self.give_back();
        }
        CallEnd { answer: answer.map_err(|error| error.report()), log, instance_ended }
    }
}
