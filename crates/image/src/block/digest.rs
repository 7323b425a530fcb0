//! Two kinds of digests: BLAKE3 of blocks, defined by this format, and SHA-256 of whole blobs, by
//! which registries name them.
//!
//! Invariant: both contain exactly a digest, so their text is safe as a file name.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::Digest as _;

use crate::{Error, Result};

/// BLAKE3, 32 bytes: the digest of a stored block, or of a node of the Merkle tree.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BlockDigest(pub [u8; 32]);

impl BlockDigest {
    /// Computes the BLAKE3 digest of some bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }
}

impl fmt::Display for BlockDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(blake3::Hash::from_bytes(self.0).to_hex().as_str())
    }
}

impl fmt::Debug for BlockDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for BlockDigest {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if !is_hex(text, 64) {
            let reason = "it must be 64 hexadecimal digits in lower case";
            return Err(Error::refused(format!("the digest `{text}`"), reason));
        }
        match blake3::Hash::from_hex(text) {
            Ok(hash) => Ok(Self(*hash.as_bytes())),
            Err(error) => Err(Error::refused(format!("the digest `{text}`"), error.to_string())),
        }
    }
}

impl TryFrom<String> for BlockDigest {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<BlockDigest> for String {
    fn from(digest: BlockDigest) -> Self {
        digest.to_string()
    }
}

/// `sha256:` and 64 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct OciDigest(String);

impl OciDigest {
    /// Computes the SHA-256 digest of some bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self::from_hasher(sha2::Sha256::new_with_prefix(bytes))
    }

    pub(crate) fn from_hasher(hasher: sha2::Sha256) -> Self {
        Self(format!("sha256:{:x}", hasher.finalize()))
    }

    /// Returns the text with the prefix `sha256:`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the hexadecimal digits without the prefix.
    pub fn hex(&self) -> &str {
        &self.0["sha256:".len()..]
    }

    /// Fails with an error that names `what` unless `bytes` have this digest.
    pub fn check(&self, what: &str, bytes: &[u8]) -> Result<()> {
        self.check_is(what, &Self::of(bytes))
    }

    pub(crate) fn check_is(&self, what: &str, found: &Self) -> Result<()> {
        if found == self {
            return Ok(());
        }
        Err(Error::damaged(what, format!("its digest is {found}, not {self}")))
    }
}

impl fmt::Display for OciDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for OciDigest {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.strip_prefix("sha256:") {
            Some(hex) if is_hex(hex, 64) => Ok(Self(text.to_owned())),
            _ => {
                let reason = "it must be `sha256:` and 64 hexadecimal digits in lower case";
                Err(Error::refused(format!("the digest `{text}`"), reason))
            }
        }
    }
}

impl TryFrom<String> for OciDigest {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<OciDigest> for String {
    fn from(digest: OciDigest) -> Self {
        digest.0
    }
}

fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_cannot_be_a_path() {
        let hex = "a".repeat(64);
        assert!(format!("sha256:{hex}").parse::<OciDigest>().is_ok());
        for text in ["sha256:../../etc/passwd", "md5:00", "", &hex, &format!("sha256:{hex}0")] {
            assert!(text.parse::<OciDigest>().is_err(), "{text}");
        }
        assert!(serde_json::from_str::<BlockDigest>("\"../x\"").is_err());
        assert!(hex.to_uppercase().parse::<BlockDigest>().is_err());
    }
}
