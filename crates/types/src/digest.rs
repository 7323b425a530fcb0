//! Content digests (BLAKE3): the names of all content-addressed objects.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A BLAKE3 digest as 64 lower-case hexadecimal characters.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Digest(String);

impl Digest {
    /// The digest of some bytes.
    pub fn of(bytes: impl AsRef<[u8]>) -> Self {
        Self(blake3::hash(bytes.as_ref()).to_hex().to_string())
    }

    /// The digest of several parts, each preceded by its length so that no two lists collide.
    pub fn of_parts<P: AsRef<[u8]>>(parts: impl IntoIterator<Item = P>) -> Self {
        let mut hasher = blake3::Hasher::new();
        for part in parts {
            let part = part.as_ref();
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        Self(hasher.finalize().to_hex().to_string())
    }

    /// Reads a digest; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        (text.len() == 64 && text.bytes().all(is_digit)).then(|| Self(text.to_owned()))
    }

    /// All 64 characters.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first 16 characters: enough for a folder name or a log line.
    pub fn short(&self) -> &str {
        &self.0[..16]
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_collide_when_their_borders_move() {
        assert_ne!(Digest::of_parts(["ab", "c"]), Digest::of_parts(["a", "bc"]));
    }

    #[test]
    fn only_what_a_digest_looks_like_is_read_as_one() {
        let digest = Digest::of("x");
        assert_eq!(Digest::parse(digest.as_str()), Some(digest.clone()));
        assert_eq!(Digest::parse(digest.short()), None);
        assert_eq!(Digest::parse(&digest.as_str().to_uppercase()), None);
        assert_eq!(Digest::parse(&format!("../{}", &digest.as_str()[3..])), None);
    }

    #[test]
    fn short_is_a_prefix() {
        let digest = Digest::of("x");
        assert!(digest.as_str().starts_with(digest.short()));
    }
}
