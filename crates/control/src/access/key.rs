//! The text of a key, and how long a key lasts.
//!
//! Invariant: the text is shown once and kept nowhere; the platform keeps its digest.

use std::fs::File;
use std::io::{self, Read};
use std::time::Duration;

use snowmelt_types::{Code, Digest, ErrorReport};
use subtle::ConstantTimeEq;
use tokio::sync::watch;

use crate::now_ms;

/// The prefix of a key, by which programs that search for secrets find it.
pub(crate) const PREFIX: &str = "snowmelt-";

/// The bytes of the identifier of a key, before they are written as text.
const ID_BYTES: usize = 8;

/// The bytes of the secret of a key, before they are written as text.
const SECRET_BYTES: usize = 32;

/// Returns random bytes as hexadecimal digits.
pub(crate) fn random_digits(bytes: usize) -> io::Result<String> {
    let mut random = vec![0; bytes];
    File::open("/dev/urandom")?.read_exact(&mut random)?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A new key: its identifier, its text and the digest of the text. It is not shown by `Debug`.
pub(crate) struct NewKey {
    pub id: String,
    pub text: String,
    pub digest: Digest,
}

impl NewKey {
    pub fn make() -> Result<Self, ErrorReport> {
        let failed = |error| {
            ErrorReport::new(Code::INTERNAL, format!("the machine gives no random bytes: {error}"))
        };
        let id = random_digits(ID_BYTES).map_err(failed)?;
        let secret = random_digits(SECRET_BYTES).map_err(failed)?;
        let text = format!("{PREFIX}{id}-{secret}");
        let digest = Digest::of(&text);
        Ok(Self { id, text, digest })
    }
}

/// Returns the identifier in the text of a key; `None` for what is no key.
pub(crate) fn id(text: &str) -> Option<&str> {
    let (id, secret) = text.strip_prefix(PREFIX)?.split_once('-')?;
    let are_digits = |text: &str, bytes: usize| {
        text.len() == 2 * bytes && text.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    (are_digits(id, ID_BYTES) && are_digits(secret, SECRET_BYTES)).then_some(id)
}

/// Returns whether a text has this digest.
pub(crate) fn has_digest(text: &str, digest: &Digest) -> bool {
    is_same(&Digest::of(text), digest)
}

/// Compares two digests in a time that does not depend on where they differ.
pub(crate) fn is_same(one: &Digest, other: &Digest) -> bool {
    one.as_str().as_bytes().ct_eq(other.as_str().as_bytes()).into()
}

/// Makes the error of a request whose key is over.
pub(crate) fn ended() -> ErrorReport {
    ErrorReport::new(Code::TOKEN_REFUSED, "the key of the request has expired or was revoked")
        .hint("ask an administrator of the tenant for another one")
}

/// How long a key lasts. What its holder has begun ends with it.
#[derive(Clone, Debug)]
pub(crate) enum KeyLife {
    /// Until a time in milliseconds since 1970, or without an end.
    Fixed(Option<u64>),
    /// Until the value of a channel, as long as its sender is there; a revoked key has none.
    Watched(watch::Receiver<Option<u64>>),
}

impl KeyLife {
    /// Returns whether the key has expired or is revoked.
    pub fn is_over(&self) -> bool {
        let until = match self {
            Self::Fixed(until) => *until,
            Self::Watched(until) if until.has_changed().is_err() => return true,
            Self::Watched(until) => *until.borrow(),
        };
        until.is_some_and(|until| until <= now_ms())
    }

    /// Returns once the key has expired or is revoked.
    pub async fn over(&mut self) {
        loop {
            let until = match self {
                Self::Fixed(until) => *until,
                Self::Watched(until) => *until.borrow_and_update(),
            };
            let expired = async {
                match until {
                    Some(until) => expiry(until).await,
                    None => std::future::pending().await,
                }
            };
            let changed = async {
                match self {
                    Self::Fixed(_) => std::future::pending().await,
                    Self::Watched(until) => until.changed().await.is_ok(),
                }
            };
            tokio::select! {
                () = expired => return,
                is_there = changed => if !is_there { return },
            }
        }
    }
}

/// Waits for a time of the clock, which may be set meanwhile.
async fn expiry(until_ms: u64) {
    /// A clock that is set is noticed within this time.
    const LOOKED_AT_EVERY: Duration = Duration::from_secs(60);
    loop {
        let left = Duration::from_millis(until_ms.saturating_sub(now_ms()));
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(LOOKED_AT_EVERY)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_an_identifier_and_a_secret() {
        let key = NewKey::make().unwrap();
        assert_eq!((key.id.len(), key.text.len()), (16, PREFIX.len() + 16 + 1 + 64));
        assert_eq!(id(&key.text), Some(&*key.id));
        assert!(has_digest(&key.text, &key.digest));
        let other = NewKey::make().unwrap();
        assert!(key.id != other.id && !has_digest(&other.text, &key.digest));
    }

    #[test]
    fn other_texts_are_no_keys() {
        let secret = "0f".repeat(32);
        for wrong in [
            "",
            "snowmelt-",
            &format!("snowmelt-{secret}"),
            &format!("snowmelt-0f-{secret}"),
            &format!("snowmelt-{}-{secret}0", "0f".repeat(8)),
            &format!("{}-{secret}", "0f".repeat(8)),
            &format!("snowmelt-{}-{secret}", "xf".repeat(8)),
        ] {
            assert_eq!(id(wrong), None, "{wrong}");
        }
    }

    #[tokio::test]
    async fn a_key_is_over_when_it_expires_or_is_revoked() {
        KeyLife::Fixed(Some(now_ms().saturating_sub(1))).over().await;
        let waits = async |life: &mut KeyLife| {
            tokio::time::timeout(Duration::from_millis(50), life.over()).await.is_err()
        };
        assert!(waits(&mut KeyLife::Fixed(None)).await);
        let (sender, receiver) = watch::channel(None);
        let mut life = KeyLife::Watched(receiver);
        assert!(waits(&mut life).await);
        // Another end than it began with.
        sender.send_replace(Some(now_ms() + 10));
        life.over().await;
        sender.send_replace(Some(now_ms() + 600_000));
        assert!(waits(&mut life).await);
        drop(sender);
        life.over().await;
    }
}
