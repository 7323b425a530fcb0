//! Signed tokens (RFC 7515, 7519): their form, and the check of their signature.
//!
//! Boundary: claims are opaque here. Invariants: the type of the issuer's key decides which
//! algorithms may have signed, whatever the token says. Nothing in a token leads to a key but its
//! `kid`: `jwk`, `jku`, `x5c` and `x5u` are not read.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaParameters, RsaPublicKeyComponents,
    UnparsedPublicKey, VerificationAlgorithm,
};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::flaw::TokenFlaw;
use super::jwks::{IssuerKey, KeyMaterial};

/// The most bytes of a token.
const MAX_TOKEN_BYTES: usize = 16 << 10;

/// The types of tokens that give access (RFC 9068), in lower case. Tokens about a logout have others.
const TYPES: [&str; 4] = ["jwt", "at+jwt", "application/jwt", "application/at+jwt"];

/// A token whose signature is not checked yet.
#[derive(Debug)]
pub(super) struct SignedToken<'t> {
    algorithm: SignatureAlgorithm,
    /// The name of the key that has signed.
    pub kid: Option<String>,
    signed: &'t [u8],
    signature: Vec<u8>,
    /// The JSON of the claims.
    pub claims: Vec<u8>,
}

/// An algorithm of signatures by a private key. Those by a shared secret are missing.
#[derive(Clone, Copy, Debug)]
pub(super) enum SignatureAlgorithm {
    Rsa(&'static str, &'static RsaParameters),
    P256,
    P384,
    Ed25519,
}

#[derive(Deserialize)]
struct TokenHeader {
    alg: String,
    kid: Option<String>,
    typ: Option<String>,
    crit: Option<IgnoredAny>,
}

impl SignatureAlgorithm {
    fn named(name: &str) -> Option<Self> {
        let rsa = |name, parameters| Some(Self::Rsa(name, parameters));
        match name {
            "RS256" => rsa("RS256", &RSA_PKCS1_2048_8192_SHA256),
            "RS384" => rsa("RS384", &RSA_PKCS1_2048_8192_SHA384),
            "RS512" => rsa("RS512", &RSA_PKCS1_2048_8192_SHA512),
            "PS256" => rsa("PS256", &RSA_PSS_2048_8192_SHA256),
            "PS384" => rsa("PS384", &RSA_PSS_2048_8192_SHA384),
            "PS512" => rsa("PS512", &RSA_PSS_2048_8192_SHA512),
            "ES256" => Some(Self::P256),
            "ES384" => Some(Self::P384),
            "EdDSA" | "Ed25519" => Some(Self::Ed25519),
            _ => None,
        }
    }

    /// Returns whether a key that names its algorithm names this one.
    fn is_named(self, name: &str) -> bool {
        match self {
            Self::Rsa(own, _) => name == own,
            Self::P256 => name == "ES256",
            Self::P384 => name == "ES384",
            Self::Ed25519 => matches!(name, "EdDSA" | "Ed25519"),
        }
    }
}

impl<'t> SignedToken<'t> {
    /// Takes a token apart.
    pub fn parse(text: &'t str) -> Result<Self, TokenFlaw> {
        if text.len() > MAX_TOKEN_BYTES {
            return Err(TokenFlaw::Length);
        }
        let (signed, signature) = text.rsplit_once('.').ok_or(TokenFlaw::Form)?;
        let (header, claims) = signed.split_once('.').ok_or(TokenFlaw::Form)?;
        let decoded = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| TokenFlaw::Form);
        let header: TokenHeader =
            serde_json::from_slice(&decoded(header)?).map_err(|_| TokenFlaw::Form)?;
        if header.crit.is_some() {
            return Err(TokenFlaw::Critical);
        }
        let typ = header.typ.map(|typ| typ.to_ascii_lowercase());
        if typ.is_some_and(|typ| !TYPES.contains(&&*typ)) {
            return Err(TokenFlaw::Type);
        }
        let algorithm = SignatureAlgorithm::named(&header.alg).ok_or(TokenFlaw::Algorithm)?;
        Ok(Self {
            algorithm,
            kid: header.kid,
            signed: signed.as_bytes(),
            signature: decoded(signature)?,
            claims: decoded(claims)?,
        })
    }

    /// Checks the signature with the keys that the token may have been signed with.
    pub fn verify<'k>(&self, keys: impl Iterator<Item = &'k IssuerKey>) -> Result<(), TokenFlaw> {
        let mut flaw = TokenFlaw::Key;
        for key in keys {
            let Some(is_right) = self.is_signed_by(key) else {
                flaw = TokenFlaw::KeyType;
                continue;
            };
            if is_right {
                return Ok(());
            }
            flaw = TokenFlaw::Signature;
        }
        Err(flaw)
    }

    /// Returns whether a key has signed; `None` for a key that does not sign by this algorithm.
    fn is_signed_by(&self, key: &IssuerKey) -> Option<bool> {
        if key.algorithm.as_ref().is_some_and(|name| !self.algorithm.is_named(name)) {
            return None;
        }
        let plain = |algorithm: &'static dyn VerificationAlgorithm, point: &[u8]| {
            let key = UnparsedPublicKey::new(algorithm, point);
            Some(key.verify(self.signed, &self.signature).is_ok())
        };
        match (&key.material, self.algorithm) {
            (KeyMaterial::Rsa { n, e }, SignatureAlgorithm::Rsa(_, parameters)) => {
                let key = RsaPublicKeyComponents { n, e };
                Some(key.verify(parameters, self.signed, &self.signature).is_ok())
            }
            (KeyMaterial::P256(point), SignatureAlgorithm::P256) => {
                plain(&ECDSA_P256_SHA256_FIXED, point)
            }
            (KeyMaterial::P384(point), SignatureAlgorithm::P384) => {
                plain(&ECDSA_P384_SHA384_FIXED, point)
            }
            (KeyMaterial::Ed25519(point), SignatureAlgorithm::Ed25519) => plain(&ED25519, point),
            _ => None,
        }
    }
}
