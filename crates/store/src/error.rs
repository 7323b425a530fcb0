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
    /// The servers of the store do not answer. If the operation was a write, it was not done.
    #[error("{place} cannot be reached: {what}")]
    Unreachable {
        /// The name of the store.
        place: String,
        /// The reason.
        what: String,
    },
    /// The answer to a write was lost, and the store does not say whether it was done.
    #[error("it is not known whether {place} has made a change: {what}")]
    Unknown {
        /// The name of the store.
        place: String,
        /// The reason.
        what: String,
    },
    /// A transaction exceeds what the store takes; nothing was changed.
    #[error("{what} is too large for the store, which takes {limit}")]
    TooLarge {
        /// The transaction.
        what: String,
        /// The limit.
        limit: String,
    },
    /// The space that the store may have is used; nothing was changed.
    #[error("{place} has used the space that it may have")]
    Quota {
        /// The name of the store.
        place: String,
    },
    /// The store does not accept a request of this user.
    #[error("{place} refuses a request: {what}")]
    Refused {
        /// The name of the store.
        place: String,
        /// The reason that it gives.
        what: String,
    },
    /// The settings of a connection to the store are wrong.
    #[error("the settings of the store are wrong: {what}")]
    Settings {
        /// The fault in the settings.
        what: String,
    },
    /// Another process leads; nothing was changed.
    #[error("another control leads")]
    Deposed,
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
            Self::Full { .. } | Self::Quota { .. } => Code::DISK_FULL,
            Self::Unreachable { .. } | Self::Refused { .. } => Code::STORE_AWAY,
            Self::Unknown { .. } => Code::STORE_UNKNOWN,
            Self::TooLarge { .. } => Code::STORE_LIMIT,
            Self::Deposed => Code::LEADER_OTHER,
            Self::Settings { .. } => Code::OPTION,
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
            Self::Quota { .. } => report.hint(
                "compact and defragment etcd, or give it more space, then `etcdctl alarm disarm`",
            ),
            Self::Unreachable { .. } => {
                report.hint("`snowmelt doctor` shows the store; nothing was changed")
            }
            Self::Unknown { .. } => report.hint("look whether it was done before you do it again"),
            Self::TooLarge { .. } => {
                report.hint("keep large values in files or objects and name them here")
            }
            Self::Deposed => report.hint("send the request to the control that leads"),
            _ => report,
        }
    }
}
