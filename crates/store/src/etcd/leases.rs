//! Leases of etcd. Their clock is that of its leader; they live for whole seconds, and at least for
//! one and a half times the time in which etcd elects a leader.

use std::time::Duration;

use super::channel::EtcdChannel;
use super::grpc::{CallFailure, NOT_FOUND};
use super::messages::{
    LeaseGrantRequest, LeaseGrantResponse, LeaseIdRequest, LeaseRevokeResponse, LeaseTtlResponse,
};
use crate::{Error, LeaseId, Result};

/// Creates a lease. One whose answer is lost ends by itself.
pub(super) async fn grant(channel: &EtcdChannel, ttl: Duration) -> Result<LeaseId> {
    let whole = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
    let request = LeaseGrantRequest { ttl: i64::try_from(whole.max(1)).unwrap_or(i64::MAX) };
    let granted = channel.repeat::<LeaseGrantResponse>("Lease/LeaseGrant", &request).await;
    let granted = granted.map_err(|failure| channel.error(&failure))?;
    Ok(LeaseId(granted.id.cast_unsigned()))
}

/// Restarts the time to live of a lease. Returns false if the lease has ended.
pub(super) async fn keep_alive(channel: &EtcdChannel, id: i64) -> Result<bool, CallFailure> {
    let request = LeaseIdRequest { id };
    let kept = channel.repeat::<LeaseTtlResponse>("Lease/LeaseKeepAlive", &request).await?;
    Ok(kept.ttl > 0)
}

/// The seconds that a lease has left; none if it has ended.
pub(super) async fn time_to_live(
    channel: &EtcdChannel,
    lease: LeaseId,
) -> Result<i64, CallFailure> {
    let request = LeaseIdRequest { id: lease.0.cast_signed() };
    let left = channel.repeat::<LeaseTtlResponse>("Lease/LeaseTimeToLive", &request).await?;
    Ok(left.ttl)
}

/// Ends a lease.
pub(super) async fn revoke(channel: &EtcdChannel, lease: LeaseId) -> Result<()> {
    let request = LeaseIdRequest { id: lease.0.cast_signed() };
    let until = channel.deadline();
    let mut may_be_done = false;
    loop {
        let done = channel.once::<LeaseRevokeResponse>("Lease/LeaseRevoke", &request, until).await;
        let failure = match done {
            Ok(_) => return Ok(()),
            Err(failure) => failure,
        };
        match &failure {
            // An earlier attempt has ended it.
            CallFailure::Refused(status) if status.code == NOT_FOUND && may_be_done => {
                return Ok(());
            }
            CallFailure::Refused(status) if status.code == NOT_FOUND => {
                return Err(Error::LeaseOver { lease });
            }
            _ => may_be_done |= failure.may_be_done(),
        }
        if !failure.passes() || tokio::time::Instant::now() >= until {
            return Err(channel.error(&failure));
        }
        super::channel::pause().await;
    }
}
