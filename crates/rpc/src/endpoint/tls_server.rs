//! The address that a server has for clients of other hosts, and the certificates that it must show.

use std::sync::Arc;

use http::Uri;
use http::uri::Scheme;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};

/// The port of the address for clients of other hosts, if a URL names none.
const DEFAULT_PORT: u16 = 7443;

/// A server at a URL, and the authorities that its certificate must lead to.
#[derive(Clone)]
pub struct TlsServer {
    host: Arc<str>,
    port: u16,
    name: ServerName<'static>,
    config: Arc<ClientConfig>,
}

impl TlsServer {
    /// A server at `https://HOST[:PORT]`. Its certificate leads to one of the authorities in a PEM
    /// text, or to one of those that the system trusts.
    ///
    /// # Errors
    /// A text that says what is wrong with the URL or with the PEM text.
    pub fn new(url: &str, authorities: Option<&[u8]>) -> Result<Self, String> {
        let address: Uri = url.parse().map_err(|error| format!("`{url}` is no URL: {error}"))?;
        let is_address = address.scheme() == Some(&Scheme::HTTPS)
            && matches!(address.path_and_query().map(|path| path.as_str()), None | Some("" | "/"));
        let authority = address.authority().filter(|at| is_address && !at.as_str().contains('@'));
        let authority = authority.ok_or_else(|| {
            format!("`{url}` is not the address of a platform: https://HOST:PORT")
        })?;
        // An address of IPv6 is in brackets in a URL, and without them everywhere else.
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(host.clone())
            .map_err(|error| format!("`{host}` is not the name of a host: {error}"))?;
        let port = authority.port_u16().unwrap_or(DEFAULT_PORT);
        let config = Arc::new(config(roots(authorities)?)?);
        Ok(Self { host: host.into(), port, name, config })
    }

    /// Returns the name or address of the host.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// Returns the port.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Returns the name that the certificate must have.
    pub(crate) fn name(&self) -> &ServerName<'static> {
        &self.name
    }

    /// Returns what the client accepts and offers.
    pub(crate) fn config(&self) -> &Arc<ClientConfig> {
        &self.config
    }
}

fn roots(authorities: Option<&[u8]>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    match authorities {
        Some(pem) => {
            for found in CertificateDer::pem_slice_iter(pem) {
                let found = found.map_err(|error| format!("no PEM certificate: {error}"))?;
                roots.add(found).map_err(|error| format!("no certificate: {error}"))?;
            }
        }
        None => {
            // The system may have some that are not valid.
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
        }
    }
    match roots.is_empty() {
        true => Err("there is no certificate of an authority".to_owned()),
        false => Ok(roots),
    }
}

fn config(roots: RootCertStore) -> Result<ClientConfig, String> {
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

impl std::fmt::Display for TlsServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "https://[{}]:{}", self.host, self.port),
            false => write!(f, "https://{}:{}", self.host, self.port),
        }
    }
}

impl std::fmt::Debug for TlsServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TlsServer({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AUTHORITY: &[u8] = include_bytes!("../../testdata/authority.pem");

    #[test]
    fn a_server_has_a_url() {
        let shown =
            |url: &str| TlsServer::new(url, Some(AUTHORITY)).map(|server| server.to_string());
        for (url, expected) in [
            ("https://example.org:8443", "https://example.org:8443"),
            ("https://example.org/", "https://example.org:7443"),
            ("https://10.0.0.1", "https://10.0.0.1:7443"),
            ("https://[fd00::1]:1", "https://[fd00::1]:1"),
        ] {
            assert_eq!(shown(url).unwrap(), expected);
        }
        for wrong in [
            "example.org",
            "http://example.org",
            "https://example.org/v1",
            "https://example.org?token=x",
            "https://user:password@example.org",
            "https://",
            "https://a b",
        ] {
            assert!(shown(wrong).is_err(), "{wrong}");
        }
        assert!(TlsServer::new("https://example.org", Some(b"")).is_err());
    }
}
