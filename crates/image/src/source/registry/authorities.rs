//! Certificates that the user trusts in addition to those of the system: of authorities, and
//! self-signed ones of registries.
//!
//! Certificates of the configuration apply to the whole process, those of a request to the request.
//! Invariant: they are added to the system's certificates and do not replace them. A self-signed
//! certificate is compared byte by byte, and with the name of the registry; any other must be
//! signed by an authority.

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use reqwest::ClientBuilder;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::{Error, Result};

static TRUSTED: RwLock<Vec<CertificateDer<'static>>> = RwLock::new(Vec::new());

/// Certificates that are trusted for some requests.
#[derive(Clone, Debug, Default)]
pub struct Authorities(Vec<CertificateDer<'static>>);

impl Authorities {
    /// Parses the certificates of a PEM text; error messages call the text `name`.
    pub fn parse(pem: &[u8], name: &str) -> Result<Self> {
        let refused = |reason: String| Error::refused(name, reason);
        let found = CertificateDer::pem_slice_iter(pem).collect::<std::result::Result<Vec<_>, _>>();
        let found = found.map_err(|error| refused(error.to_string()))?;
        if found.is_empty() {
            return Err(refused("it contains no PEM certificate".to_owned()));
        }
        Ok(Self(found))
    }
}

/// Trusts the certificates in a PEM file from now on.
pub fn trust_authorities(path: &Path) -> Result<()> {
    let bytes = std::fs::read(path).map_err(Error::io("read", path))?;
    let Authorities(found) = Authorities::parse(&bytes, &path.display().to_string())?;
    TRUSTED.write().unwrap_or_else(PoisonError::into_inner).extend(found);
    Ok(())
}

/// Makes a client trust these certificates, and those of the process.
pub(super) fn trusted_by(client: ClientBuilder, more: &Authorities) -> Result<ClientBuilder> {
    let mut trusted = TRUSTED.read().unwrap_or_else(PoisonError::into_inner).clone();
    trusted.extend_from_slice(&more.0);
    if trusted.is_empty() {
        return Ok(client);
    }
    let refused = |error: String| Error::refused("the trusted certificates", error);
    let provider = Arc::new(ring::default_provider());
    let verifier = Verifier::new(trusted, &provider).map_err(refused)?;
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| refused(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = config.with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(client.use_preconfigured_tls(config))
}

#[derive(Debug)]
struct Verifier {
    authorities: Arc<WebPkiServerVerifier>,
    trusted: Vec<CertificateDer<'static>>,
}

impl Verifier {
    fn new(
        trusted: Vec<CertificateDer<'static>>,
        provider: &Arc<CryptoProvider>,
    ) -> std::result::Result<Self, String> {
        let mut roots = RootCertStore::empty();
        // Unreadable certificates of the system are not trusted; connections that need one fail.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        roots.add_parsable_certificates(trusted.iter().cloned());
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
        let authorities = verifier.build().map_err(|error| error.to_string())?;
        Ok(Self { authorities, trusted })
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        stapled: &[u8],
        now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        // A self-signed certificate claims to be an authority, as OpenSSL creates them, and would
        // be refused as a server certificate.
        if self.trusted.iter().any(|trusted| trusted == certificate) {
            verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
            return Ok(ServerCertVerified::assertion());
        }
        self.authorities.verify_server_cert(certificate, intermediates, name, stapled, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        self.authorities.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        self.authorities.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.authorities.supported_verify_schemes()
    }
}
