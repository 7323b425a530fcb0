//! The proof by which the processes of a cluster know each other: certificates of the cluster's
//! authority over TLS or, in a closed network without encryption, a secret that all of them have.
//!
//! Invariants: with certificates, nothing is sent to another host before its certificate has named
//! the host that is meant, and no request of a host is served before its certificate is verified. A
//! host that was removed is refused with each request, and its open connections are ended.

pub mod authority;
mod names;
mod pinned;
mod terms;
pub(crate) mod token;

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};

use rustix::net::{Shutdown, shutdown};
use rustls::client::{Resumption, UnbufferedClientConnection};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, UnbufferedServerConnection, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use serde::{Deserialize, Serialize};
use snowmelt_types::{Code, ErrorReport, HostName};
use tokio::net::TcpStream;

pub use names::Meant;
use pinned::Pinned;
pub(crate) use terms::TERM;
pub use terms::Terms;
pub use token::Token;

/// The hosts that were removed: their certificates with serial numbers below these are refused.
pub type Removed = BTreeMap<HostName, u64>;

/// The certificate of a process with its key, and that of the cluster's authority, as PEM texts.
#[derive(Clone, Serialize, Deserialize)]
pub struct CertificateText {
    /// The certificate.
    pub certificate: String,
    /// The private key, which is never logged.
    pub key: String,
    /// The certificate of the authority.
    pub authority: String,
}

impl std::fmt::Debug for CertificateText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CertificateText")
    }
}

/// The requests that a process takes without a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Anonymous {
    /// No requests: the handshake fails.
    Refused,
    /// Requests to join the cluster. All other routes refuse them.
    MayJoin,
}

/// The means by which a process of a cluster proves who it is, and knows others. Cheap to clone;
/// when the certificate of one is replaced, all clones have the new one. Clones share the terms of
/// the controls that lead the cluster.
#[derive(Clone)]
pub struct Credential {
    proof: Arc<Proof>,
    terms: Arc<Terms>,
}

enum Proof {
    Shared(Token),
    Certified(Certified),
    /// The fingerprint of the authority, for a host without a certificate.
    Joining(Arc<ClientConfig>),
}

struct Certified {
    anonymous: Anonymous,
    own: RwLock<OwnCertificate>,
    removed: RwLock<Removed>,
    open: Mutex<Vec<OpenConnection>>,
}

/// The certificate of this process.
#[derive(Clone)]
struct OwnCertificate {
    text: CertificateText,
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

struct OpenConnection {
    peer: PeerSlot,
    tcp: Weak<TcpStream>,
}

/// The process at the other end of a connection, as its certificate says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerCertificate {
    /// The name of its host.
    pub name: HostName,
    /// Whether it is control.
    pub is_control: bool,
    /// The serial number of the certificate.
    pub serial: u64,
}

/// The certificate of the other end, once the handshake is done. The server puts it into the
/// extensions of each request.
#[derive(Clone, Debug, Default)]
pub struct PeerSlot(Arc<OnceLock<PeerCertificate>>);

impl PeerSlot {
    /// Returns the certificate; `None` for a connection without one.
    pub fn certificate(&self) -> Option<&PeerCertificate> {
        self.0.get()
    }

    pub(crate) fn set(&self, certificate: &CertificateDer<'_>) {
        if let Some(peer) = PeerCertificate::of(certificate) {
            let _ = self.0.set(peer);
        }
    }
}

impl PeerCertificate {
    /// Reads a certificate, whoever has signed it; `None` if it is not of a host.
    fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let read = webpki::EndEntityCert::try_from(certificate).ok()?;
        let names: Vec<&str> = read.valid_dns_names().collect();
        let is_control = names.contains(&names::CONTROL);
        let name = names.iter().find_map(|name| names::host(name))?;
        let digits = read.serial().iter().skip_while(|byte| **byte == 0);
        let mut serial = 0u64;
        for byte in digits {
            serial = serial.checked_mul(256)?.checked_add(u64::from(*byte))?;
        }
        Some(Self { name, is_control, serial })
    }
}

impl From<Token> for Credential {
    fn from(token: Token) -> Self {
        Self::new(Proof::Shared(token))
    }
}

impl Credential {
    fn new(proof: Proof) -> Self {
        Self { proof: Arc::new(proof), terms: Arc::default() }
    }

    /// Returns the terms of the controls that lead the cluster.
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// Makes the credential of a process that has a certificate.
    ///
    /// # Errors
    /// A text is not valid, or they do not belong together: the error says why.
    pub fn certified(text: CertificateText, anonymous: Anonymous) -> Result<Self, String> {
        let own = RwLock::new(OwnCertificate::new(text, anonymous)?);
        let certified =
            Certified { anonymous, own, removed: RwLock::default(), open: Mutex::default() };
        Ok(Self::new(Proof::Certified(certified)))
    }

    /// Makes that of a host which has no certificate, and knows the fingerprint of the authority.
    ///
    /// # Errors
    /// The TLS library refuses the settings.
    pub fn joining(fingerprint: String) -> Result<Self, String> {
        let provider = provider();
        let verifier = Arc::new(Pinned { fingerprint, provider: Arc::clone(&provider) });
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        Ok(Self::new(Proof::Joining(Arc::new(config))))
    }

    /// Shows another certificate on the connections that are made from now on.
    ///
    /// # Errors
    /// A text is not valid, or this process has no certificate that could be replaced.
    pub fn replace(&self, text: CertificateText) -> Result<(), String> {
        let Proof::Certified(certified) = &*self.proof else {
            return Err("this process has no certificate".to_owned());
        };
        let own = OwnCertificate::new(text, certified.anonymous)?;
        *certified.own.write().unwrap_or_else(PoisonError::into_inner) = own;
        Ok(())
    }

    /// Returns the certificate of this process; `None` without encryption.
    pub fn text(&self) -> Option<CertificateText> {
        match &*self.proof {
            Proof::Certified(certified) => Some(certified.own().text),
            Proof::Shared(_) | Proof::Joining(_) => None,
        }
    }

    /// Whether connections between hosts are encrypted.
    pub fn is_encrypted(&self) -> bool {
        !matches!(&*self.proof, Proof::Shared(_))
    }

    /// Returns the secret of a cluster without encryption.
    pub fn token(&self) -> Option<&Token> {
        match &*self.proof {
            Proof::Shared(token) => Some(token),
            Proof::Certified(_) | Proof::Joining(_) => None,
        }
    }

    /// Refuses the removed hosts from now on, and no others, and ends their open connections.
    pub fn refuse(&self, removed: Removed) {
        let Proof::Certified(certified) = &*self.proof else { return };
        {
            let mut known = certified.removed.write().unwrap_or_else(PoisonError::into_inner);
            if *known == removed {
                return;
            }
            *known = removed;
        }
        let mut open = certified.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|connection| {
            let Some(tcp) = connection.tcp.upgrade() else { return false };
            let is_removed =
                connection.peer.certificate().is_some_and(|peer| certified.has_removed(peer));
            if is_removed {
                // The other end may have ended it.
                let _ = shutdown(&*tcp, Shutdown::Both);
            }
            !is_removed
        });
    }

    /// Returns the removed hosts that are refused.
    pub fn removed(&self) -> Removed {
        let Proof::Certified(certified) = &*self.proof else { return Removed::new() };
        certified.removed.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Checks who asks, with a request that came from this other end.
    pub(crate) fn check(&self, peer: Option<&PeerSlot>) -> Result<(), ErrorReport> {
        let Proof::Certified(certified) = &*self.proof else { return Ok(()) };
        let Some(peer) = peer.and_then(PeerSlot::certificate) else {
            let message = "the request comes without a certificate of this cluster";
            return Err(ErrorReport::new(Code::HOST_REFUSED, message)
                .hint("a host gets one with a join token: `snowmelt cluster join-token`"));
        };
        if certified.has_removed(peer) {
            return Err(removed(&peer.name));
        }
        Ok(())
    }

    /// Begins TLS on a connection that this process has opened; `None` without encryption.
    pub(crate) fn connect(&self, meant: &Meant) -> io::Result<Option<UnbufferedClientConnection>> {
        let config = match &*self.proof {
            Proof::Shared(_) => return Ok(None),
            Proof::Certified(certified) => certified.own().client,
            Proof::Joining(config) => Arc::clone(config),
        };
        let name = meant.certified().map_err(io::Error::other)?;
        UnbufferedClientConnection::new(config, name).map(Some).map_err(io::Error::other)
    }

    /// Begins TLS on a connection that this process has accepted; `None` without encryption.
    pub(crate) fn accept(&self) -> io::Result<Option<UnbufferedServerConnection>> {
        let Proof::Certified(certified) = &*self.proof else { return Ok(None) };
        let server = certified.own().server;
        UnbufferedServerConnection::new(server).map(Some).map_err(io::Error::other)
    }

    /// Keeps a connection in view, to end it when its host is removed.
    pub(crate) fn watch(&self, peer: &PeerSlot, tcp: &Arc<TcpStream>) -> io::Result<()> {
        let Proof::Certified(certified) = &*self.proof else { return Ok(()) };
        let mut open = certified.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() == open.capacity() {
            open.retain(|connection| connection.tcp.strong_count() > 0);
        }
        open.push(OpenConnection { peer: peer.clone(), tcp: Arc::downgrade(tcp) });
        drop(open);
        // It may have been removed while nobody had the connection in view.
        match peer.certificate().filter(|peer| certified.has_removed(peer)) {
            Some(peer) => Err(io::Error::other(removed(&peer.name).message)),
            None => Ok(()),
        }
    }
}

impl Certified {
    fn own(&self) -> OwnCertificate {
        self.own.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether a host was removed. A control may have the name that a removed host had.
    fn has_removed(&self, peer: &PeerCertificate) -> bool {
        if peer.is_control {
            return false;
        }
        let removed = self.removed.read().unwrap_or_else(PoisonError::into_inner);
        removed.get(&peer.name).is_some_and(|below| peer.serial < *below)
    }
}

impl OwnCertificate {
    fn new(text: CertificateText, anonymous: Anonymous) -> Result<Self, String> {
        let failed = |error: rustls::Error| error.to_string();
        let certificate = CertificateDer::from_pem_slice(text.certificate.as_bytes());
        let certificate =
            certificate.map_err(|error| format!("the certificate cannot be read: {error}"))?;
        let authority = CertificateDer::from_pem_slice(text.authority.as_bytes());
        let authority =
            authority.map_err(|error| format!("the authority cannot be read: {error}"))?;
        let key = PrivateKeyDer::from_pem_slice(text.key.as_bytes());
        let key = key.map_err(|error| format!("the key cannot be read: {error}"))?;
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone()).map_err(failed)?;
        let roots = Arc::new(roots);
        // A host that joins has only the fingerprint of the authority.
        let chain = vec![certificate, authority];
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), provider());
        let verifier = match anonymous {
            Anonymous::Refused => verifier,
            Anonymous::MayJoin => verifier.allow_unauthenticated(),
        };
        let verifier = verifier.build().map_err(|error| error.to_string())?;
        let server = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(failed)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain.clone(), key.clone_key());
        let mut server = server.map_err(failed)?;
        // A session that is resumed shows no certificate, which may have ended or be of a removed host.
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        let client = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(failed)?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key);
        let mut client = client.map_err(failed)?;
        client.resumption = Resumption::disabled();
        Ok(Self { text, client: Arc::new(client), server: Arc::new(server) })
    }
}

/// TLS 1.3 alone, with the cipher that costs least first.
fn provider() -> Arc<CryptoProvider> {
    let suites = [
        ring::cipher_suite::TLS13_AES_128_GCM_SHA256,
        ring::cipher_suite::TLS13_AES_256_GCM_SHA384,
        ring::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    ];
    Arc::new(CryptoProvider { cipher_suites: suites.to_vec(), ..ring::default_provider() })
}

/// Returns the error of a host that was removed from its cluster.
pub fn removed(name: &HostName) -> ErrorReport {
    let message = format!("the host `{name}` was removed from the cluster");
    ErrorReport::new(Code::HOST_REMOVED, message)
        .hint("to take it back, start it with a new join token: `snowmelt cluster join-token`")
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credential")
    }
}

#[cfg(test)]
mod tests;
