//! One call of a function on an instance, from its lease to its end.

use std::time::Duration;

use snowmelt_api::Answer;
use snowmelt_types::{ErrorReport, Report};
use snowmelt_wire::{Call, Load};

use super::lease::InstanceLease;
use crate::Error;
use crate::log::LogText;

/// How a call ended.
#[derive(Debug)]
pub struct CallEnd {
    /// Its answer, or why there is none.
    pub answer: Result<Answer, ErrorReport>,
    /// What it wrote.
    pub log: LogText,
    /// True if its instance ended with it.
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
