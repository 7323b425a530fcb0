//! The public keys of an issuer (RFC 7517).
//!
//! Invariant: only keys that verify signatures are kept; secrets (`oct`), keys for encryption and
//! keys of unknown types are left out.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;

/// The most keys of an issuer.
const MAX_KEYS: usize = 100;

/// A public key of an issuer.
#[derive(Debug)]
pub(super) struct IssuerKey {
    kid: Option<String>,
    /// The one algorithm that the issuer uses the key for, if it names one.
    pub algorithm: Option<String>,
    pub material: KeyMaterial,
}

/// A key as bytes, in the form in which signatures are checked.
#[derive(Debug)]
pub(super) enum KeyMaterial {
    /// Modulus and exponent, without leading zeros.
    Rsa {
        n: Vec<u8>,
        e: Vec<u8>,
    },
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
}

/// The public keys of an issuer at a time.
#[derive(Debug)]
pub(super) struct IssuerKeySet(Vec<IssuerKey>);

#[derive(Deserialize)]
struct KeySetDocument {
    keys: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
struct KeyEntryDocument {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    used_for: Option<String>,
    key_ops: Option<Vec<String>>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl IssuerKeySet {
    /// Reads the keys of a document. Entries that are no keys for signatures are left out.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let document: KeySetDocument =
            serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if document.keys.len() > MAX_KEYS {
            return Err(format!("it has more than {MAX_KEYS} keys"));
        }
        let entries = document.keys.into_iter();
        let keys = entries.filter_map(|entry| key(serde_json::from_value(entry).ok()?));
        Ok(Self(keys.collect()))
    }

    /// Returns the keys with this name. A token without a name fits the only key of an issuer.
    pub fn named(&self, kid: Option<&str>) -> impl Iterator<Item = &IssuerKey> {
        let is_only = kid.is_none() && self.0.len() == 1;
        self.0.iter().filter(move |key| is_only || kid.is_some() && key.kid.as_deref() == kid)
    }
}

fn key(entry: KeyEntryDocument) -> Option<IssuerKey> {
    let signs = entry.used_for.is_none_or(|used_for| used_for == "sig")
        && entry.key_ops.is_none_or(|all| all.iter().any(|one| one == "verify"));
    let bytes = |text: &Option<String>| URL_SAFE_NO_PAD.decode(text.as_ref()?).ok();
    let point = |coordinate: usize| {
        let x = bytes(&entry.x).filter(|x| x.len() == coordinate)?;
        let y = bytes(&entry.y).filter(|y| y.len() == coordinate)?;
        // The mark of a point without compression.
        Some([vec![4], x, y].concat())
    };
    let material = match (&*entry.kty, entry.crv.as_deref()) {
        ("RSA", _) => {
            let number = |text| {
                let bytes = bytes(text)?;
                let first = bytes.iter().position(|byte| *byte != 0)?;
                Some(bytes[first..].to_vec())
            };
            KeyMaterial::Rsa { n: number(&entry.n)?, e: number(&entry.e)? }
        }
        ("EC", Some("P-256")) => KeyMaterial::P256(point(32)?),
        ("EC", Some("P-384")) => KeyMaterial::P384(point(48)?),
        ("OKP", Some("Ed25519")) => KeyMaterial::Ed25519(bytes(&entry.x)?),
        _ => return None,
    };
    signs.then_some(IssuerKey { kid: entry.kid, algorithm: entry.alg, material })
}
