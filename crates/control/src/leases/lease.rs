//! A leased instance, on control's own host or on another one.
//!
//! Invariant: the instance counts on its host until it is closed or dropped. An instance that is
//! not returned is destroyed.

use std::future::pending;
use std::os::unix::net::UnixStream as BlockingStream;
use std::sync::OnceLock;
use std::time::Duration;

use snowmelt_api::Leased;
use snowmelt_node::InstanceLease;
use snowmelt_tasks::remote::leases::FarInstance;
use snowmelt_types::{Code, ErrorReport, Report};

use crate::cluster::placements::{CallPlacement, Callee, Placements};

/// Longer than any lease: it is over when its client or its instance ends.
const FOR_EVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// How long the end of an instance may take to be known after its connection has ended.
const END_NOTICE_TIMEOUT: Duration = Duration::from_secs(3);

/// An instance that is leased, and the server's own end of its connection.
pub(super) struct Out<'a> {
    pub held: LeasedInstance<'a>,
    pub connection: BlockingStream,
    pub leased: Leased,
}

/// A leased instance.
pub(super) struct LeasedInstance<'a> {
    pub at: LeasePlace,
    pub placed: CallPlacement,
    pub placements: &'a Placements,
    pub callee: Callee<'a>,
    /// The instance's last output, if that was read to tell why the instance has ended.
    pub output: OnceLock<String>,
}

/// The place of a leased instance.
pub(super) enum LeasePlace {
    Here(InstanceLease),
    There(FarInstance),
}

impl LeasedInstance<'_> {
    /// Waits for the end of the instance, and returns the reason.
    pub async fn ended(&self) -> ErrorReport {
        match &self.at {
            LeasePlace::Here(lease) => match lease.ended(self.name(), FOR_EVER).await {
                Some(ended) => self.told(ended.report(), ended.last_output()),
                None => pending().await,
            },
            LeasePlace::There(far) => self.far_end(far, FOR_EVER).await,
        }
    }

    /// Returns the reason why the instance's connection has ended.
    pub async fn why_ended(&self) -> ErrorReport {
        match &self.at {
            LeasePlace::Here(lease) => {
                let (report, output) = lease.why_ended(self.name()).await;
                self.told(report, output)
            }
            LeasePlace::There(far) => self.far_end(far, END_NOTICE_TIMEOUT).await,
        }
    }

    /// Returns the instance for the next lease, or gives it up. Returns the output of the instance.
    pub async fn close(self, is_returned: bool) -> String {
        let Self { at, mut placed, placements, callee, output } = self;
        match at {
            LeasePlace::Here(lease) => {
                let text = output.into_inner().unwrap_or_default() + &lease.take_log().text;
                match is_returned {
                    true => lease.give_back(),
                    false => drop(lease),
                }
                if !placed.is_alone() {
                    placed.has_instances(placements.instances_here(callee));
                }
                text
            }
            LeasePlace::There(far) => {
                let end = far.close(is_returned).await.unwrap_or_default();
                match end.instances {
                    Some(count) => placed.has_instances(count),
                    // What it has not said it has is not counted on.
                    None => placed.has_one_less(),
                }
                end.log
            }
        }
    }

    async fn far_end(&self, far: &FarInstance, within: Duration) -> ErrorReport {
        let error = far.ended(within).await.and_then(|end| end.error);
        error.unwrap_or_else(|| {
            let message = format!("the instance of `{}` closed its connection", self.name());
            ErrorReport::new(Code::PROTOCOL, message)
        })
    }

    fn told(&self, report: ErrorReport, output: String) -> ErrorReport {
        // An instance has one end.
        let _ = self.output.set(output);
        report
    }

    fn name(&self) -> &str {
        &self.callee.load.function
    }
}
