//! The errors of a store, by the reaction of the caller.

use std::io;

use snowmelt_types::{Code, ErrorReport, Report};

use crate::{KeyVersion, LeaseId, Revision};

/// The result of an operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A store's error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A key does not meet the precondition of an operation; nothing was changed.
    #[error("`{key}` was changed by another client of the store")]
    Conflict {
        /// The first key that does not meet its precondition.
        key: String,
        /// The version of the key; `None` if the key is absent.
        found: Option<KeyVersion>,
    },
    /// The disk is full; nothing was changed.
    #[error("cannot use {place}: {source}")]
    Full {
        /// The name of the store.
        place: String,
        /// The error of the system.
        source: io::Error,
    },
    /// Another process holds the store.
    #[error("{place} is held by another process")]
    Busy {
        /// The name of the store.
        place: String,
    },
    /// The file is damaged, or is not the file of a store.
    #[error("cannot use {place}: {what}")]
    Corrupt {
        /// The name of the store.
        place: String,
        /// The fault in the file.
        what: String,
    },
    /// The store cannot be read or written.
    #[error("cannot use {place}: {source}")]
    Io {
        /// The name of the store.
        place: String,
        /// The system's error.
        source: io::Error,
    },
    /// The events that a watch needs are no longer retained.
    #[error("changes from revision {asked} on are no longer retained; the oldest is {oldest}")]
    Compacted {
        /// The next revision of the watch.
        asked: Revision,
        /// The oldest revision that is retained.
        oldest: Revision,
    },
    /// A lease was revoked or has expired.
    #[error("lease {lease} has ended")]
    LeaseOver {
        /// The lease.
        lease: LeaseId,
    },
    /// The request is not valid for any store.
    #[error("a request to the store is not valid: {what}")]
    Invalid {
        /// The fault in the request.
        what: String,
    },
    /// The operation is not supported in the mode in which the store was opened.
    #[error("the store does not support {what}")]
    Unsupported {
        /// The operation and the mode.
        what: &'static str,
    },
}

impl Report for Error {
    fn report(&self) -> ErrorReport {
        let code = match self {
            Self::Full { .. } => Code::DISK_FULL,
            Self::Busy { .. } | Self::Corrupt { .. } | Self::Io { .. } => Code::STATE,
            // Callers handle these errors.
            Self::Conflict { .. }
            | Self::Compacted { .. }
            | Self::LeaseOver { .. }
            | Self::Invalid { .. }
            | Self::Unsupported { .. } => Code::INTERNAL,
        };
        let report = ErrorReport::new(code, self.to_string());
        match self {
            Self::Busy { .. } => {
                report.hint("a server is running: omit --embedded, or stop it with `snowmelt down`")
            }
            Self::Full { .. } | Self::Corrupt { .. } | Self::Io { .. } => {
                report.hint("`snowmelt doctor` says what is wrong with the state folder")
            }
            _ => report,
        }
    }
}
