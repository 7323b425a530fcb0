//! The certificate that a server shows, and the certificates by which an authority sees that a name
//! is the server's (TLS-ALPN-01, RFC 8737).
//!
//! Invariants: a proof of a name is shown only to who asks for nothing else, and never to a client.
//! While there is no certificate, handshakes fail.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use rcgen::{CertificateParams, CustomExtension, KeyPair, PKCS_ECDSA_P256_SHA256};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio_rustls::TlsAcceptor;
use webpki::{EndEntityCert, KeyUsage};

/// The protocol that an authority asks for, alone, when it checks a name.
pub(super) const PROOF_PROTOCOL: &[u8] = b"acme-tls/1";

/// The proof that a name is the server's: the digest that an authority expects (SHA-256).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProofOfName {
    /// The name of DNS.
    pub name: String,
    /// The digest.
    pub digest: [u8; 32],
}

/// The time from which and until which a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The beginning.
    pub from: SystemTime,
    /// The end.
    pub until: SystemTime,
}

/// The certificate that a server shows to its clients, with its key. The key is never logged. Clones
/// share it: when one is replaced, all are.
#[derive(Clone)]
pub struct Certificate {
    shown: Arc<ListenerCertificates>,
    config: Arc<ServerConfig>,
}

/// The certificates of a listener.
#[derive(Default)]
struct ListenerCertificates {
    own: RwLock<Option<Arc<CertifiedKey>>>,
    proofs: RwLock<BTreeMap<String, Arc<CertifiedKey>>>,
}

impl Certificate {
    /// Reads certificates and key from two PEM texts: the server's certificate is the first one,
    /// the certificates that lead to its authority follow.
    ///
    /// # Errors
    /// A text is not valid: the error says why.
    pub fn new(chain: &[u8], key: &[u8]) -> Result<Self, String> {
        let certificate = Self::awaited()?;
        certificate.replace(chain, key)?;
        Ok(certificate)
    }

    /// Makes a certificate that comes later: until then, no handshake succeeds.
    ///
    /// # Errors
    /// No version of TLS can be served.
    pub fn awaited() -> Result<Self, String> {
        let shown = Arc::<ListenerCertificates>::default();
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&shown) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = vec![b"http/1.1".to_vec(), PROOF_PROTOCOL.to_vec()];
        // A client that waits for an answer would be woken by tickets, which no client uses.
        config.send_tls13_tickets = 0;
        Ok(Self { shown, config: Arc::new(config) })
    }

    /// Shows another certificate to the clients that connect from now on. Connections that are open
    /// go on.
    ///
    /// # Errors
    /// A text is not valid: the certificate stays as it is, and the error says why.
    pub fn replace(&self, chain: &[u8], key: &[u8]) -> Result<(), String> {
        let key = certified(chain, key)?;
        *self.shown.own.write().unwrap_or_else(PoisonError::into_inner) = Some(key);
        Ok(())
    }

    /// Shows these proofs to authorities, and no others.
    ///
    /// # Errors
    /// A proof has no valid name: all stay as they are.
    pub fn prove(&self, proofs: &[ProofOfName]) -> Result<(), String> {
        let made = proofs.iter().map(|proof| Ok((proof.name.clone(), Arc::new(proof.made()?))));
        let made = made.collect::<Result<_, String>>()?;
        *self.shown.proofs.write().unwrap_or_else(PoisonError::into_inner) = made;
        Ok(())
    }

    /// Returns the time in which the certificate is valid; `None` if there is none yet.
    pub fn validity(&self) -> Option<Validity> {
        let own = self.shown.own()?;
        validity(own.end_entity_cert().ok()?)
    }

    pub(super) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.config))
    }
}

impl ListenerCertificates {
    fn own(&self) -> Option<Arc<CertifiedKey>> {
        self.own.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ResolvesServerCert for ListenerCertificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let asks_for_proof = hello.alpn().is_some_and(|protocols| protocols.eq([PROOF_PROTOCOL]));
        if !asks_for_proof {
            return self.own();
        }
        let name = hello.server_name()?.to_ascii_lowercase();
        self.proofs.read().unwrap_or_else(PoisonError::into_inner).get(&name).cloned()
    }
}

impl ProofOfName {
    /// The certificate that RFC 8737 describes.
    fn made(&self) -> Result<CertifiedKey, String> {
        let made = || -> Result<_, rcgen::Error> {
            let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
            let mut params = CertificateParams::new([self.name.clone()])?;
            params.custom_extensions = vec![CustomExtension::new_acme_identifier(&self.digest)];
            Ok((params.self_signed(&key)?, key.serialize_der()))
        };
        let (certificate, key) = made().map_err(|error| error.to_string())?;
        // Nothing checks that they fit: the verifier of `rustls` does not know the extension.
        let key = ring::default_provider().key_provider.load_private_key(key.try_into()?);
        let key = key.map_err(|error| error.to_string())?;
        Ok(CertifiedKey::new(vec![certificate.der().clone()], key))
    }
}

fn certified(chain: &[u8], key: &[u8]) -> Result<Arc<CertifiedKey>, String> {
    let chain = CertificateDer::pem_slice_iter(chain).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|error| format!("the certificate cannot be read: {error}"))?;
    if chain.is_empty() {
        return Err("the file of the certificate contains no PEM certificate".to_owned());
    }
    let key = PrivateKeyDer::from_pem_slice(key);
    let key = key.map_err(|error| format!("the key cannot be read: {error}"))?;
    CertifiedKey::from_der(chain, key, &ring::default_provider())
        .map(Arc::new)
        .map_err(|error| format!("certificate and key do not fit each other: {error}"))
}

/// Reads the validity of a certificate by asking for it at the ends of time, which is the first that
/// is verified.
fn validity(certificate: &CertificateDer<'_>) -> Option<Validity> {
    let read = EndEntityCert::try_from(certificate).ok()?;
    let at = |time| {
        let usage = KeyUsage::server_auth();
        let time = UnixTime::since_unix_epoch(time);
        let verified =
            read.verify_for_usage(webpki::ALL_VERIFICATION_ALGS, &[], &[], time, usage, None, None);
        verified.err()
    };
    let since = |time: UnixTime| SystemTime::UNIX_EPOCH + Duration::from_secs(time.as_secs());
    let until = match at(Duration::from_secs(u64::MAX))? {
        webpki::Error::CertExpired { not_after, .. } => since(not_after),
        _ => return None,
    };
    let from = match at(Duration::ZERO)? {
        webpki::Error::CertNotValidYet { not_before, .. } => since(not_before),
        // It is valid since 1970.
        _ => SystemTime::UNIX_EPOCH,
    };
    Some(Validity { from, until })
}

impl std::fmt::Debug for Certificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Certificate")
    }
}

impl std::fmt::Debug for ListenerCertificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ListenerCertificates")
    }
}
