//! Errors of this crate.

use std::io;
use std::path::{Path, PathBuf};

use snowmelt_types::{Code, ErrorReport, Report};

/// Why an image, or a block of it, is not available.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The image or its source violates the format.
    #[error("{what} is refused: {reason}")]
    Refused {
        /// The layer, entry, manifest or blob.
        what: String,
        /// The rule that is broken.
        reason: String,
    },
    /// The image exceeds a limit, as a decompression bomb would.
    #[error("{what} is refused: more than {limit} {unit}")]
    Limit {
        /// The layer or image.
        what: String,
        /// How much is allowed.
        limit: u64,
        /// Unit of the limit.
        unit: &'static str,
    },
    /// The bytes do not have the expected digest.
    #[error("{what} is damaged: {reason}")]
    Damaged {
        /// The blob, block or table.
        what: String,
        /// The difference between the bytes and what is expected.
        reason: String,
    },
    /// The image, manifest or blob does not exist.
    #[error("{what} does not exist")]
    Missing {
        /// The name of the missing thing: an image, manifest, layer or blob.
        what: String,
    },
    /// A file or folder of an image does not exist.
    #[error("{location} does not exist")]
    NoFile {
        /// The image, as its user wrote it.
        location: String,
    },
    /// A file or folder of an image may not be read by this user.
    #[error("{location} cannot be read: {source}")]
    Unreadable {
        /// The image, as its user wrote it.
        location: String,
        /// The reason of the operating system.
        source: io::Error,
    },
    /// The registry denies this user the operation.
    #[error("the registry {registry} refuses {what}: {reason}")]
    Denied {
        /// Host and port of the registry.
        registry: String,
        /// The request that was refused.
        what: String,
        /// The registry's message, or its status.
        reason: String,
    },
    /// A source did not answer, or its answer was wrong. A retry may succeed.
    #[error("{what} cannot be fetched: {reason}")]
    Unreachable {
        /// The thing that was requested, and from where.
        what: String,
        /// The failure, or the wrong answer.
        reason: String,
        /// How long the source asks clients to wait.
        after: Option<std::time::Duration>,
    },
    /// The certificate of a registry is not trusted.
    #[error("{what} is not requested: the certificate of the registry is not trusted: {reason}")]
    Untrusted {
        /// The thing that was requested, and from where.
        what: String,
        /// The problem of the certificate.
        reason: String,
    },
    /// A Debian package does not exist, or cannot be installed on the base.
    #[error("the Debian packages cannot be resolved: {reason}")]
    NoPackage {
        /// The message of apt.
        reason: String,
    },
    /// The archive of Debian packages does not answer.
    #[error("the Debian packages cannot be fetched: {reason}")]
    NoArchive {
        /// The message of apt.
        reason: String,
    },
    /// A Debian program is missing or fails.
    #[error("the Debian packages cannot be unpacked: {reason}")]
    NoTool {
        /// The program, and its message.
        reason: String,
    },
    /// A file or folder cannot be used.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// The action that failed, as a verb phrase.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Another process owns the block cache; it has one owner at a time.
    #[error("the block cache {path} is in use by a running platform")]
    Held {
        /// The folder of the block cache.
        path: PathBuf,
    },
    /// The kernel cannot mount the image.
    #[error("the image cannot be mounted: {step}: {source}")]
    Mount {
        /// The step that failed.
        step: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }

    pub(crate) fn refused(what: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Refused { what: what.into(), reason: reason.into() }
    }

    pub(crate) fn damaged(what: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Damaged { what: what.into(), reason: reason.into() }
    }

    pub(crate) fn missing(what: impl Into<String>) -> Self {
        Self::Missing { what: what.into() }
    }

    pub(crate) fn unreachable(what: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Unreachable { what: what.into(), reason: reason.into(), after: None }
    }

    /// Returns whether a retry of the same request may succeed.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
    }

    /// Returns whether the disk is full.
    pub fn is_disk_full(&self) -> bool {
        matches!(self, Self::Io { source, .. } if is_full(source))
    }

    /// Returns whether a file or folder does not exist.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    fn code(&self) -> Code {
        match self {
            Self::Refused { .. } | Self::Limit { .. } => Code::IMAGE_REFUSED,
            Self::Damaged { .. } => Code::IMAGE_DAMAGED,
            Self::Missing { .. } | Self::NoFile { .. } | Self::Unreadable { .. } => {
                Code::IMAGE_MISSING
            }
            Self::Denied { .. } | Self::Unreachable { .. } => Code::IMAGE_SOURCE,
            Self::Untrusted { .. } => Code::IMAGE_AUTHORITY,
            Self::Io { source, .. } if is_full(source) => Code::DISK_FULL,
            Self::Io { .. } => Code::STATE,
            Self::Held { .. } => Code::SERVER_RUNNING,
            Self::NoPackage { .. } => Code::PACKAGE_RESOLVE,
            Self::NoArchive { .. } => Code::PACKAGE_INDEX,
            Self::NoTool { .. } => Code::PACKAGE_TOOL,
            Self::Mount { .. } => Code::IMAGE_MOUNT,
        }
    }

    fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Limit { .. } => Some("if the image has to be that large, raise the limit"),
            Self::Damaged { .. } => Some("build the image again, or fetch it from elsewhere"),
            Self::Missing { .. } => Some("`snowmelt image ls` shows the images of this machine"),
            Self::NoFile { .. } => Some("check the path: it is read from the working folder"),
            Self::Unreadable { .. } => Some("the user of the command must be able to read it"),
            Self::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                Some("run it as the platform's user, or set SNOWMELT_STATE to a folder of your own")
            }
            Self::NoPackage { .. } => {
                Some("check the name; `apt-get update` fetches the list of packages")
            }
            Self::NoArchive { .. } => Some("check the network and /etc/apt/sources.list.d"),
            Self::NoTool { .. } => {
                Some("packages need apt-get and dpkg-deb, which are part of Debian")
            }
            Self::Held { .. } => Some("stop the platform with `snowmelt down`, then try again"),
            Self::Mount { .. } => Some("`snowmelt doctor` shows what mounting images requires"),
            Self::Untrusted { .. } => Some(
                "name the file of its authority, or of the certificate if it signed itself, with \
                 --ca-file or images.ca_file (SNOWMELT_IMAGES_CA_FILE)",
            ),
            Self::Unreachable { .. } => {
                Some("check the registry's name and port, its log, and the network to it")
            }
            Self::Denied { .. } => Some("log in with `docker login`, or check the name"),
            _ => None,
        }
    }
}

pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

impl Report for Error {
    fn report(&self) -> ErrorReport {
        let mut report = ErrorReport::new(self.code(), self.to_string());
        report.hint = self.hint().map(str::to_owned);
        report
    }
}
