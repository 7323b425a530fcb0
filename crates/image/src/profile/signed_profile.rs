//! The encoding of a profile, which names its image, and its signature.

use serde::{Deserialize, Serialize};

use super::{ProfileKeys, PublicKey, StartProfile};
use crate::block::{BlockDigest, OciDigest};
use crate::{Error, Result};

/// The maximum size of a profile; a run takes about 20 bytes.
pub(super) const MAX_BYTES: usize = 4 << 20;
/// The prefix of the signed bytes, so that signatures for other purposes are not valid for
/// profiles.
const CONTEXT: &[u8] = b"snowmelt start profile v1\n";

/// A signed profile. Its content must not be used before [`Self::open`] has verified it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signed {
    /// The profile as JSON, exactly as it was signed.
    pub body: Vec<u8>,
    /// The signer's key.
    pub key: PublicKey,
    /// The Ed25519 signature of 64 bytes.
    pub signature: Vec<u8>,
}

/// The JSON body of a profile.
#[derive(Serialize, Deserialize)]
struct ProfileBody {
    /// The digest of the block image's manifest.
    image: OciDigest,
    /// The Merkle roots of the image's blobs.
    blobs: Vec<BlockDigest>,
    /// The runs of adjacent blocks, each as index of a blob, first block and number of blocks.
    runs: Vec<(u32, u32, u32)>,
}

impl Signed {
    /// Signs the profile of the image with this manifest.
    pub fn new(keys: &ProfileKeys, image: &OciDigest, profile: &StartProfile) -> Result<Self> {
        let mut body = ProfileBody { image: image.clone(), blobs: Vec::new(), runs: Vec::new() };
        for (root, run) in profile.runs() {
            let known = body.blobs.iter().position(|blob| *blob == root);
            let blob = known.unwrap_or_else(|| {
                body.blobs.push(root);
                body.blobs.len() - 1
            });
            body.runs.push((blob as u32, run.start as u32, run.len() as u32));
        }
        let body = serde_json::to_vec(&body)
            .map_err(|error| Error::refused("a start profile", error.to_string()))?;
        let signature = keys.sign(&[CONTEXT, &body].concat());
        Ok(Self { body, key: keys.public(), signature })
    }

    /// Returns the profile, if it is signed by a trusted key and for this image.
    pub fn open(&self, keys: &ProfileKeys, image: &OciDigest) -> Result<StartProfile> {
        let refuse = |reason: &str| Error::refused("a start profile", reason);
        if self.body.len() > MAX_BYTES {
            return Err(refuse("it is larger than 4 MiB"));
        }
        if !keys.trusts(&self.key) {
            return Err(refuse(&format!("its key {} is not trusted", self.key)));
        }
        if !self.key.verifies(&[CONTEXT, &self.body].concat(), &self.signature) {
            return Err(refuse("its signature is wrong"));
        }
        let body: ProfileBody =
            serde_json::from_slice(&self.body).map_err(|error| refuse(&error.to_string()))?;
        if body.image != *image {
            return Err(refuse(&format!("it is for the image {}", body.image)));
        }
        body.profile().ok_or_else(|| refuse("it contains more blocks than an image can have"))
    }
}

impl ProfileBody {
    fn profile(&self) -> Option<StartProfile> {
        /// The number of blocks of 64 KiB in 256 GiB.
        const MAX_BLOCKS: usize = 4 << 20;
        let mut blocks = Vec::new();
        for (blob, first, count) in &self.runs {
            let root = *self.blobs.get(*blob as usize)?;
            let end = first.checked_add(*count)?;
            if blocks.len() + *count as usize > MAX_BLOCKS {
                return None;
            }
            blocks.extend((*first..end).map(|block| (root, block)));
        }
        Some(StartProfile { blocks })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(folder: &std::path::Path, name: &str, trusted: Vec<PublicKey>) -> ProfileKeys {
        ProfileKeys::open(&folder.join(name), trusted).unwrap()
    }

    fn profile() -> StartProfile {
        let a = BlockDigest::of(b"a");
        let b = BlockDigest::of(b"b");
        StartProfile { blocks: vec![(a, 0), (b, 7), (b, 8), (a, 1), (a, 5)] }
    }

    #[test]
    fn accepts_a_profile_for_its_image_from_a_trusted_key() {
        let folder = tempfile::tempdir().unwrap();
        let ours = keys(folder.path(), "ours", Vec::new());
        let image = OciDigest::of(b"image");
        let signed = Signed::new(&ours, &image, &profile()).unwrap();
        assert_eq!(signed.open(&ours, &image).unwrap(), profile());
        assert!(signed.open(&ours, &OciDigest::of(b"other")).is_err());
        let untrusting = keys(folder.path(), "untrusting", Vec::new());
        assert!(signed.open(&untrusting, &image).is_err());
        let trusting = keys(folder.path(), "trusting", vec![ours.public()]);
        assert_eq!(signed.open(&trusting, &image).unwrap(), profile());
    }

    #[test]
    fn detects_every_changed_byte() {
        let folder = tempfile::tempdir().unwrap();
        let keys = keys(folder.path(), "key", Vec::new());
        let image = OciDigest::of(b"image");
        let signed = Signed::new(&keys, &image, &profile()).unwrap();
        for at in 0..signed.body.len() + signed.signature.len() {
            let mut other = signed.clone();
            match at.checked_sub(other.body.len()) {
                Some(at) => other.signature[at] ^= 1,
                None => other.body[at] ^= 1,
            }
            assert!(other.open(&keys, &image).is_err(), "byte {at}");
        }
        let mut other = signed;
        other.signature.pop();
        assert!(other.open(&keys, &image).is_err());
    }

    #[test]
    fn refuses_an_invalid_body_with_a_valid_signature() {
        let folder = tempfile::tempdir().unwrap();
        let keys = keys(folder.path(), "key", Vec::new());
        let image = OciDigest::of(b"image");
        let blob = BlockDigest::of(b"a");
        for runs in ["[[1,0,1]]", "[[0,4294967295,1]]", "[[0,0,4294967295]]", "[[0,0]]", "7"] {
            let body = format!(r#"{{"image":"{image}","blobs":["{blob}"],"runs":{runs}}}"#);
            let body = body.into_bytes();
            let signature = keys.sign(&[CONTEXT, &body].concat());
            let signed = Signed { body, key: keys.public(), signature };
            assert!(signed.open(&keys, &image).is_err(), "{runs}");
        }
    }
}
