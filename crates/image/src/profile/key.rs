//! The key with which a platform signs its profiles, and the keys that it trusts.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use ring::rand::SystemRandom;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use serde::{Deserialize, Serialize};

use crate::block::BlockDigest;
use crate::{Error, Result};

/// An Ed25519 public key of 32 bytes; its text form has 64 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PublicKey(BlockDigest);

impl PublicKey {
    /// Parses the text form.
    pub fn parse(text: &str) -> Result<Self> {
        text.parse().map(Self)
    }

    /// Returns whether `signature` is a valid signature of these bytes.
    pub(super) fn verifies(&self, bytes: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, self.0.0).verify(bytes, signature).is_ok()
    }
}

impl std::fmt::Display for PublicKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// A platform's own key and the other keys that it trusts.
pub struct ProfileKeys {
    own: Ed25519KeyPair,
    trusted: Vec<PublicKey>,
}

impl ProfileKeys {
    /// Reads the key in this file (PKCS #8, readable by its owner only); creates it if the file
    /// does not exist. If several processes do so concurrently, all get the same key.
    pub fn open(path: &Path, trusted: Vec<PublicKey>) -> Result<Self> {
        let bytes = match fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => create(path)?,
            read => read.map_err(Error::io("read", path))?,
        };
        let own = Ed25519KeyPair::from_pkcs8(&bytes).map_err(|error| {
            Error::refused(format!("the key {}", path.display()), error.to_string())
        })?;
        Ok(Self { own, trusted })
    }

    /// Returns the public key, by which other platforms can trust this platform's profiles.
    pub fn public(&self) -> PublicKey {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(self.own.public_key().as_ref());
        PublicKey(BlockDigest(bytes))
    }

    pub(super) fn sign(&self, bytes: &[u8]) -> Vec<u8> {
        self.own.sign(bytes).as_ref().to_vec()
    }

    pub(super) fn trusts(&self, key: &PublicKey) -> bool {
        self.public() == *key || self.trusted.contains(key)
    }
}

/// Creates a key. The file appears under its name when it is complete.
fn create(path: &Path) -> Result<Vec<u8>> {
    let refuse = |_| Error::refused("a new key", "the system gives no random bytes");
    let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).map_err(refuse)?;
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(Error::io("make the folder", folder))?;
    let scratch = tempfile::tempdir_in(folder).map_err(Error::io("write in", folder))?;
    let new = scratch.path().join("key");
    let mut file = File::options()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(&new)
        .map_err(Error::io("write", path))?;
    file.write_all(document.as_ref()).map_err(Error::io("write", path))?;
    file.sync_all().map_err(Error::io("flush", path))?;
    match fs::hard_link(&new, path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(Error::io("write", path)(error))
        }
        // Another process was faster: its key is used.
        _ => fs::read(path).map_err(Error::io("read", path)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn concurrent_processes_get_the_same_private_key_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state/key");
        let keys: Vec<PublicKey> = std::thread::scope(|scope| {
            let open = || scope.spawn(|| ProfileKeys::open(&path, Vec::new()).unwrap().public());
            let threads: Vec<_> = (0..8).map(|_| open()).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(keys.windows(2).all(|pair| pair[0] == pair[1]));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        fs::write(&path, "no key").unwrap();
        assert!(matches!(ProfileKeys::open(&path, Vec::new()), Err(Error::Refused { .. })));
    }
}
