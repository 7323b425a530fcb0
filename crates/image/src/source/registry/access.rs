//! The credentials and certificates with which registries are used: those of this process, those
//! that a client sends with its request, or those of a file.
//!
//! Invariant: with the client's or a file's access, no credentials of this process are used.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

use super::authorities::Authorities;
use super::{Credentials, Reference, Registry};
use crate::Result;
use crate::read::RetryPolicy;

/// Credentials and certificates to access registries.
#[derive(Clone, Default)]
pub struct Access {
    logins: Logins,
    authorities: Authorities,
}

/// The place of the credentials.
#[derive(Clone, Default)]
enum Logins {
    /// Credentials that `docker login` has stored for this process.
    #[default]
    Own,
    /// Credentials that came with a request, by registry.
    Given(HashMap<String, Credentials>),
    /// Credentials in a file, which need not exist.
    Stored(PathBuf),
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").finish_non_exhaustive()
    }
}

impl Access {
    /// Returns the access of this process, with its own credentials and certificates.
    pub fn own() -> Self {
        Self::default()
    }

    /// Makes an access with only these credentials; other registries are accessed anonymously. The
    /// certificates are trusted in addition to those that this process trusts.
    pub fn given(
        logins: impl IntoIterator<Item = (String, Credentials)>,
        authorities: Authorities,
    ) -> Self {
        Self { logins: Logins::Given(logins.into_iter().collect()), authorities }
    }

    /// Makes an access with only the credentials in a file in the format of Docker's `config.json`.
    /// The file is read each time, and no helpers that it names are run.
    pub fn stored(path: &Path) -> Self {
        Self { logins: Logins::Stored(path.to_owned()), authorities: Authorities::default() }
    }

    /// Opens the repository of an image.
    pub fn registry(&self, reference: &Reference) -> Result<Registry> {
        let login = match &self.logins {
            Logins::Given(logins) => logins.get(&reference.registry).cloned(),
            Logins::Own => Credentials::find(&reference.registry)?,
            Logins::Stored(path) => Credentials::stored(path, &reference.registry)?,
        };
        Registry::connect(reference, login, RetryPolicy::default(), &self.authorities)
    }
}
