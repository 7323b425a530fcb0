//! The settings of the address for clients of other hosts.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use snowmelt_types::ErrorReport;

use super::keys::{
    TLS_ACME_CA, TLS_ACME_CONTACT, TLS_ACME_DIRECTORY, TLS_ACME_NAMES, TLS_CERTIFICATE,
    TLS_ISSUERS, TLS_KEY, TLS_LISTEN, TLS_TOKENS,
};
use super::{ConfigSources, ConfigValue, ValueOrigin, address, list};
use crate::args::{Command, TlsArgs};
use crate::env;

/// The address for clients of other hosts, and the files by which server and clients are
/// recognised.
#[derive(Clone, Debug)]
pub struct Tls {
    /// The address; if absent, clients of other hosts are not served.
    pub listen: Option<ConfigValue<SocketAddr>>,
    /// PEM file with the certificate of the address.
    pub certificate: Option<ConfigValue<PathBuf>>,
    /// PEM file with the key of the certificate.
    pub key: Option<ConfigValue<PathBuf>>,
    /// File with the digests of tokens.
    pub tokens: ConfigValue<PathBuf>,
    /// File of issuers; if absent, only keys are accepted.
    pub issuers: Option<ConfigValue<PathBuf>>,
    /// The authority that is asked for certificates.
    pub acme: Acme,
}

/// The authority that is asked for certificates, in the place of files.
#[derive(Clone, Debug)]
pub struct Acme {
    /// URL of its directory; if absent, no authority is asked.
    pub directory: Option<ConfigValue<String>>,
    /// Names of the certificate.
    pub names: Option<ConfigValue<Vec<String>>>,
    /// Addresses to which it writes.
    pub contact: Option<ConfigValue<Vec<String>>>,
    /// PEM file with authorities of its own certificate; those of the system if absent.
    pub ca: Option<ConfigValue<PathBuf>>,
}

impl Tls {
    pub(super) fn load(
        sources: &ConfigSources,
        command: &Command,
        state: &Path,
    ) -> Result<Self, ErrorReport> {
        let given = match command {
            Command::Up(up) => up.tls.clone(),
            _ => TlsArgs::default(),
        };
        let tokens = sources.file(&TLS_TOKENS, given.tls_tokens)?;
        Ok(Self {
            listen: sources.maybe(&TLS_LISTEN, given.tls_listen, address)?,
            certificate: sources.file(&TLS_CERTIFICATE, given.tls_cert)?,
            key: sources.file(&TLS_KEY, given.tls_key)?,
            tokens: match tokens {
                Some(tokens) => tokens,
                None => sources.path(&TLS_TOKENS, || state.join("tokens"))?,
            },
            issuers: sources.file(&TLS_ISSUERS, given.tls_issuers)?,
            acme: Acme {
                directory: sources.maybe(&TLS_ACME_DIRECTORY, None, |url| Ok(url.to_owned()))?,
                names: sources.maybe(&TLS_ACME_NAMES, None, |names| Ok(list(names)))?,
                contact: sources.maybe(&TLS_ACME_CONTACT, None, |all| Ok(list(all)))?,
                ca: sources.file(&TLS_ACME_CA, None)?,
            },
        })
    }

    /// The variables with which another process has the same settings.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let listen = self.listen.as_ref().map(|listen| (env::TLS_LISTEN, listen.value.to_string()));
        let file = |name, file: &ConfigValue<PathBuf>| (name, file.value.display().to_string());
        let certificate = self.certificate.as_ref().map(|path| file(env::TLS_CERTIFICATE, path));
        let key = self.key.as_ref().map(|path| file(env::TLS_KEY, path));
        // The other process finds the default itself, and knows that it may be missing.
        let is_named = self.tokens.origin != ValueOrigin::Default;
        let tokens = is_named.then(|| file(env::TLS_TOKENS, &self.tokens));
        let issuers = self.issuers.as_ref().map(|path| file(env::TLS_ISSUERS, path));
        let acme = &self.acme;
        let directory = acme.directory.as_ref();
        let directory = directory.map(|url| (env::TLS_ACME_DIRECTORY, url.value.clone()));
        let all = |name, all: &ConfigValue<Vec<String>>| (name, all.value.join(","));
        let names = acme.names.as_ref().map(|names| all(env::TLS_ACME_NAMES, names));
        let contact = acme.contact.as_ref().map(|contact| all(env::TLS_ACME_CONTACT, contact));
        let ca = acme.ca.as_ref().map(|path| file(env::TLS_ACME_CA, path));
        let files = [listen, certificate, key, tokens, issuers];
        files.into_iter().chain([directory, names, contact, ca]).flatten().collect()
    }
}
