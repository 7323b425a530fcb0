//! Egress: the destinations outside a job that its functions may reach. The default is none.
//!
//! An outgoing packet is filtered in the job's own namespace, whose rules functions cannot change,
//! and gets the address of the job's end of its pair there; on the host it gets the host's address.
//! So two jobs with the same addresses do not conflict.

mod host;
mod job;
mod table;

use std::net::IpAddr;

pub(crate) use host::{AddressPair, Gate};
pub(crate) use job::{grant, rules};

/// The reason why a job may not reach an address of its host.
pub(crate) fn to_host(address: IpAddr) -> String {
    format!(
        "egress to {address}: it is an address of the host itself, which no policy can grant; what \
         functions need has to run on another host, or in a function of the job"
    )
}
