//! Requests to a lane of the spawner: how they are divided into packets, encoded, and refused.
//!
//! Invariant: no packet is longer than [`LONGEST_PACKET`].

use std::io;
use std::os::fd::BorrowedFd;

use serde::Serialize;
use snowmelt_types::SandboxId;

use crate::message::{LONGEST_PACKET, SpawnerRequest, StartFailure};
use crate::{Error, Result};

/// The way in which sandboxes of a network are held to their addresses.
#[derive(Clone, Copy)]
pub(super) enum Addresses<'a> {
    /// The spawner does not enforce addresses.
    Free,
    /// A seccomp notifier: calls that name an address wait for an answer.
    Notifier,
    /// Entries in this table of the kernel, by control group.
    Table(BorrowedFd<'a>),
}

impl<'a> Addresses<'a> {
    /// The descriptor that is sent with the request.
    pub fn table(self) -> Option<BorrowedFd<'a>> {
        match self {
            Self::Table(table) => Some(table),
            Self::Free | Self::Notifier => None,
        }
    }
}

/// Splits specs so that each batch fits into a packet with room to spare. A spec that is too long
/// by itself is refused when it is sent.
pub(super) fn batches<S: Serialize>(specs: Vec<S>) -> Vec<Vec<S>> {
    const MOST: usize = LONGEST_PACKET - 4096;
    let mut batches = Vec::new();
    let mut left = 0;
    for spec in specs {
        let length = serde_json::to_vec(&spec).map_or(MOST, |bytes| bytes.len() + 1);
        if length > left || batches.is_empty() {
            batches.push(Vec::new());
            left = MOST;
        }
        left = left.saturating_sub(length);
        if let Some(batch) = batches.last_mut() {
            batch.push(spec);
        }
    }
    batches
}

/// The empty id, for requests about no sandbox or about many.
pub(super) fn no_sandbox() -> SandboxId {
    SandboxId::from(String::new())
}

/// Encodes a request. A request that does not fit into a packet is refused.
pub(super) fn encode(id: &SandboxId, request: &SpawnerRequest) -> Result<Vec<u8>> {
    let refused = |reason: String| Error::Spec { id: id.clone(), reason };
    let bytes = serde_json::to_vec(request).map_err(|error| refused(error.to_string()))?;
    if bytes.len() > LONGEST_PACKET {
        return Err(refused(format!(
            "its arguments and environment take {} bytes of at most {LONGEST_PACKET}",
            bytes.len()
        )));
    }
    Ok(bytes)
}

/// The error of a start that failed in the spawner.
pub(super) fn failed(id: SandboxId, failure: StartFailure) -> Error {
    match failure {
        StartFailure::Step { step, errno } => {
            Error::Start { id, step, source: io::Error::from_raw_os_error(errno) }
        }
        StartFailure::Spec { reason } => Error::Spec { id, reason },
        StartFailure::ZygoteLost { zygote } => Error::ZygoteLost { id: zygote },
        StartFailure::ZygoteSlots => Error::ZygoteSlots { id },
    }
}
