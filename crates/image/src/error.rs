//! What can go wrong between an image somewhere and its bytes in a sandbox.

use std::io;
use std::path::{Path, PathBuf};

use snowmelt_types::{Code, ErrorReport, Report};

/// Why there is no image, or no block of it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The image, or what it is made from, is not what its format allows.
    #[error("{what} is refused: {reason}")]
    Refused {
        /// The layer, entry, manifest or blob.
        what: String,
        /// Which rule it breaks.
        reason: String,
    },
    /// The image is larger than it may be: it may be a bomb.
    #[error("{what} is refused: more than {limit} {unit}")]
    Limit {
        /// The layer or image.
        what: String,
        /// How much is allowed.
        limit: u64,
        /// Of what.
        unit: &'static str,
    },
    /// Bytes are not those that their digest names.
    #[error("{what} is damaged: {reason}")]
    Damaged {
        /// The blob, block or table.
        what: String,
        /// How it differs.
        reason: String,
    },
    /// There is no such image, manifest or blob.
    #[error("{what} does not exist")]
    Missing {
        /// What was asked for.
        what: String,
    },
    /// There is no such file or folder of an image.
    #[error("{place} does not exist")]
    NoFile {
        /// The image, as its user wrote it.
        place: String,
    },
    /// A registry does not let this user do it.
    #[error("the registry {registry} refuses {what}: {reason}")]
    Denied {
        /// Host and port.
        registry: String,
        /// What was asked for.
        what: String,
        /// Its own words, or its status.
        reason: String,
    },
    /// A source did not answer, or not with what was asked for; it may next time.
    #[error("{what} cannot be fetched: {reason}")]
    Unreachable {
        /// What was asked for, and where.
        what: String,
        /// What came instead.
        reason: String,
        /// How long the source asks us to wait.
        after: Option<std::time::Duration>,
    },
    /// A registry is not known to be who it says.
    #[error("{what} is not asked for: the certificate of the registry is not trusted: {reason}")]
    Untrusted {
        /// What was asked for, and where.
        what: String,
        /// What is wrong with the certificate.
        reason: String,
    },
    /// There is no such package of Debian, or it cannot be installed on the base.
    #[error("the packages of Debian cannot be resolved: {reason}")]
    NoPackage {
        /// What apt said.
        reason: String,
    },
    /// The archive of Debian's packages does not answer.
    #[error("the packages of Debian cannot be fetched: {reason}")]
    NoArchive {
        /// What apt said.
        reason: String,
    },
    /// A program of Debian is not there or does not do its work.
    #[error("the packages of Debian cannot be unpacked: {reason}")]
    NoTool {
        /// The program, and what it said.
        reason: String,
    },
    /// A file or folder cannot be used.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// A verb phrase.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another process has the cache of blocks, which one process holds at a time.
    #[error("the cache of blocks {path} is held by a running platform")]
    Held {
        /// Its folder.
        path: PathBuf,
    },
    /// The kernel cannot mount it.
    #[error("the image cannot be mounted: {step}: {source}")]
    Mount {
        /// What was tried.
        step: &'static str,
        /// What the system said.
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

    /// Whether the same request may succeed if it is made again.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
    }

    /// Whether the disk has no room.
    pub fn is_disk_full(&self) -> bool {
        matches!(self, Self::Io { source, .. } if is_full(source))
    }

    /// Whether a file or folder was not there.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    fn code(&self) -> Code {
        match self {
            Self::Refused { .. } | Self::Limit { .. } => Code::IMAGE_REFUSED,
            Self::Damaged { .. } => Code::IMAGE_DAMAGED,
            Self::Missing { .. } | Self::NoFile { .. } => Code::IMAGE_MISSING,
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
            Self::Limit { .. } => Some("if the image is meant to be that large, raise the limit"),
            Self::Damaged { .. } => Some("build the image again, or fetch it from elsewhere"),
            Self::Missing { .. } => Some("`snowmelt image ls` shows the images of this machine"),
            Self::NoFile { .. } => Some("check the path: it is read from the working folder"),
            Self::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                Some("run it as the user of the platform, or name a folder with SNOWMELT_STATE")
            }
            Self::NoPackage { .. } => {
                Some("check the name; `apt-get update` fetches the list of packages")
            }
            Self::NoArchive { .. } => Some("check the network and /etc/apt/sources.list.d"),
            Self::NoTool { .. } => Some("packages need apt-get and dpkg-deb, which Debian has"),
            Self::Held { .. } => Some("`snowmelt down` ends the platform; then try again"),
            Self::Mount { .. } => Some("`snowmelt doctor` says what mounting images needs"),
            Self::Untrusted { .. } => Some(
                "name the file of its authority, or of the certificate if it signed itself, with \
                 --ca-file or images.ca_file (SNOWMELT_IMAGES_CA_FILE)",
            ),
            Self::Unreachable { .. } => {
                Some("look at the registry's name and port, its log, and the network between")
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
