//! The text of a join token.
//!
//! Invariant: the text is shown once and kept nowhere; the store has its digest. With it comes the
//! fingerprint of the authority, so that a host that has the token knows control from others.

use snowmelt_types::{Code, Digest, ErrorReport};

use crate::access::key::random_digits;

/// The prefix of a token, by which programs that search for secrets find it.
const PREFIX: &str = "snowmelt-join-";

/// The bytes of the three parts, before they are written as text.
const ID_BYTES: usize = 8;
const SECRET_BYTES: usize = 32;
const FINGERPRINT_BYTES: usize = 32;

/// A join token. It is not shown by `Debug`.
#[derive(Clone)]
pub(super) struct JoinToken {
    id: String,
    secret: String,
    fingerprint: String,
}

impl JoinToken {
    pub fn make(fingerprint: &str) -> Result<Self, ErrorReport> {
        let failed = |error| {
            ErrorReport::new(Code::INTERNAL, format!("the machine gives no random bytes: {error}"))
        };
        let id = random_digits(ID_BYTES).map_err(failed)?;
        let secret = random_digits(SECRET_BYTES).map_err(failed)?;
        Ok(Self { id, secret, fingerprint: fingerprint.to_owned() })
    }

    /// Reads a token from its text.
    ///
    /// # Errors
    /// `SM-0716` for any other text, which is not shown.
    pub fn read(text: &str) -> Result<Self, ErrorReport> {
        let parts: Vec<&str> =
            text.trim().strip_prefix(PREFIX).unwrap_or_default().split('-').collect();
        let has = |part: &str, bytes: usize| {
            part.len() == 2 * bytes && part.bytes().all(|byte| byte.is_ascii_hexdigit())
        };
        match parts[..] {
            [id, secret, fingerprint]
                if has(id, ID_BYTES)
                    && has(secret, SECRET_BYTES)
                    && has(fingerprint, FINGERPRINT_BYTES) =>
            {
                Ok(Self {
                    id: id.to_owned(),
                    secret: secret.to_owned(),
                    fingerprint: fingerprint.to_owned(),
                })
            }
            _ => Err(ErrorReport::new(Code::JOIN_TOKEN, "the text is not a join token")
                .hint("give it as `snowmelt cluster join-token` prints it, in one line")),
        }
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    /// The fingerprint of the cluster's authority.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    pub fn text(&self) -> String {
        format!("{PREFIX}{}-{}-{}", self.id, self.secret, self.fingerprint)
    }

    pub fn digest(&self) -> Digest {
        Digest::of(self.text())
    }
}
