//! The credentials and certificates with which registries are used: those of this process, or those
//! that a client sends with its request.
//!
//! Invariant: with the client's access, no credentials of this process are used.

use std::collections::HashMap;
use std::fmt;

use super::authorities::Authorities;
use super::{Credentials, Reference, Registry};
use crate::Result;
use crate::read::RetryPolicy;

/// Credentials and certificates to access registries.
#[derive(Clone, Default)]
pub struct Access {
    /// Credentials by registry; `None` for those that `docker login` has stored for this process.
    logins: Option<HashMap<String, Credentials>>,
    authorities: Authorities,
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
        Self { logins: Some(logins.into_iter().collect()), authorities }
    }

    /// Opens the repository of an image.
    pub fn registry(&self, reference: &Reference) -> Result<Registry> {
        let login = match &self.logins {
            Some(logins) => logins.get(&reference.registry).cloned(),
            None => Credentials::find(&reference.registry)?,
        };
        Registry::connect(reference, login, RetryPolicy::default(), &self.authorities)
    }
}
