//! The authority of a cluster: it certifies the keys of hosts.

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData, SerialNumber,
    SignatureAlgorithm, SigningKey,
};
use ring::digest::{SHA256, digest};
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde::{Deserialize, Serialize};
use snowmelt_types::HostName;
use std::time::{Duration, SystemTime};

use super::names::{self, CONTROL};
use super::{CertificateText, Meant};

/// How long the authority lasts: there is no way to renew it beside making the cluster anew.
const AUTHORITY_LIFE: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// How far a certificate reaches back, so that a host whose clock is behind takes it.
const BEFORE: Duration = Duration::from_secs(365 * 24 * 3600);

/// The beginning of the text that a host signs to show that it has the private key; its public key
/// follows.
const PROOF: &[u8] = b"snowmelt: a host has this key\0";

/// The fingerprint of an authority, by which a host knows it at their first contact: SHA-256 in
/// hexadecimal digits.
pub fn fingerprint(certificate: &CertificateDer<'_>) -> String {
    digest(&SHA256, certificate).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The key of a host, which never leaves it.
#[derive(Debug)]
pub struct HostKey(KeyPair);

/// The public key of a host, with the proof that the host has the private one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SigningRequest {
    /// The point on P-256, in hexadecimal digits.
    pub key: String,
    /// The signature of the key by itself, in hexadecimal digits.
    pub proof: String,
}

/// The point of a public key.
struct PublicKey(Vec<u8>);

/// The authority of a cluster, with its private key. It is never logged.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
    fingerprint: String,
}

impl HostKey {
    /// Makes a key.
    ///
    /// # Errors
    /// The system gives no random numbers.
    pub fn make() -> Result<Self, String> {
        let made = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256);
        made.map(Self).map_err(|error| error.to_string())
    }

    /// Reads a key from a PEM text.
    ///
    /// # Errors
    /// The text has no such key.
    pub fn read(text: &str) -> Result<Self, String> {
        KeyPair::from_pem(text).map(Self).map_err(|error| error.to_string())
    }

    /// The key as a PEM text.
    pub fn text(&self) -> String {
        self.0.serialize_pem()
    }

    /// Asks for a certificate of the key.
    ///
    /// # Errors
    /// The key cannot sign.
    pub fn request(&self) -> Result<SigningRequest, String> {
        let point = self.0.public_key_raw();
        let proof = self.0.sign(&[PROOF, point].concat()).map_err(|error| error.to_string())?;
        Ok(SigningRequest { key: hex(point), proof: hex(&proof) })
    }
}

impl SigningRequest {
    /// Returns the key if it is one, and who asks has the private one.
    fn verified(&self) -> Result<PublicKey, String> {
        let wrong = || "the request for a certificate is not signed by its own key".to_owned();
        let point = unhex(&self.key).filter(|point| point.len() == 65).ok_or_else(wrong)?;
        let proof = unhex(&self.proof).ok_or_else(wrong)?;
        let verified = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &point)
            .verify(&[PROOF, &point].concat(), &proof);
        verified.map(|()| PublicKey(point)).map_err(|_| wrong())
    }
}

impl PublicKeyData for PublicKey {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

impl Authority {
    /// Makes an authority. Returns it with the PEM text of its private key.
    ///
    /// # Errors
    /// The system gives no random numbers.
    pub fn make() -> Result<(Self, String), String> {
        let key = HostKey::make()?;
        let text = key.text();
        let params = own_params(SystemTime::now());
        let certificate = params.self_signed(&key.0).map_err(|error| error.to_string())?;
        Ok((Self::read(&certificate.pem(), &text)?, text))
    }

    /// Reads an authority from the PEM texts of its certificate and its key.
    ///
    /// # Errors
    /// A text is not valid.
    pub fn read(certificate: &str, key: &str) -> Result<Self, String> {
        let read = CertificateDer::from_pem_slice(certificate.as_bytes());
        let read = read.map_err(|error| format!("the authority cannot be read: {error}"))?;
        let key = HostKey::read(key).map_err(|error| format!("its key cannot be read: {error}"))?;
        let fingerprint = fingerprint(&read);
        // Its name is all of it that certificates of hosts repeat.
        let issuer = Issuer::new(own_params(SystemTime::now()), key.0);
        Ok(Self { issuer, certificate: certificate.to_owned(), fingerprint })
    }

    /// The PEM text of the authority's certificate.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// The fingerprint of the authority's certificate.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// Certifies the key of a host. Returns the PEM text of the certificate.
    ///
    /// # Errors
    /// The request is not signed by its own key.
    pub fn certify(
        &self,
        request: &SigningRequest,
        name: &HostName,
        serial: u64,
        life: Duration,
    ) -> Result<String, String> {
        let key = request.verified()?;
        self.sign(&key, &[names::of_host(name)], serial, life)
    }

    /// Makes a key and a certificate for control, whose own host has this name.
    ///
    /// # Errors
    /// The system gives no random numbers.
    pub fn for_control(
        &self,
        name: &HostName,
        serial: u64,
        life: Duration,
    ) -> Result<CertificateText, String> {
        let key = HostKey::make()?;
        let names = [CONTROL.to_owned(), names::of_host(name)];
        let certificate = self.sign(&key.0, &names, serial, life)?;
        Ok(CertificateText { certificate, key: key.text(), authority: self.certificate.clone() })
    }

    fn sign(
        &self,
        key: &impl PublicKeyData,
        names: &[String],
        serial: u64,
        life: Duration,
    ) -> Result<String, String> {
        let now = SystemTime::now();
        let mut params = CertificateParams::new(names).map_err(|error| error.to_string())?;
        params.serial_number = Some(SerialNumber::from_slice(&serial.to_be_bytes()));
        params.not_before = (now - BEFORE).into();
        params.not_after = (now + life).into();
        params.distinguished_name = named("Snowmelt host");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let signed = params.signed_by(key, &self.issuer).map_err(|error| error.to_string())?;
        Ok(signed.pem())
    }
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Authority {}", self.fingerprint)
    }
}

fn own_params(now: SystemTime) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.not_before = (now - BEFORE).into();
    params.not_after = (now + AUTHORITY_LIFE).into();
    params.distinguished_name = named("Snowmelt cluster");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params
}

fn named(name: &str) -> DistinguishedName {
    let mut named = DistinguishedName::new();
    named.push(DnType::CommonName, name);
    named
}

impl Meant {
    /// Returns whether a certificate in this PEM text is for the process, whoever signed it.
    pub fn is_named_by(&self, certificate: &str) -> bool {
        let read = CertificateDer::from_pem_slice(certificate.as_bytes());
        read.is_ok_and(|read| {
            super::PeerCertificate::of(&read).is_some_and(|peer| match self {
                Self::Control => peer.is_control,
                Self::Host(name) => peer.name == *name,
            })
        })
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.is_ascii() || text.len() % 2 == 1 || text.len() > 512 {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}
