//! The keys of an issuer, kept and read again.
//!
//! Invariants: a token with a key that was read lately waits for nothing. Whatever tokens come, the issuer
//! is asked at most once in [`MIN_INTERVAL`]. Keys older than a limit accept no token.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::task::JoinHandle;

use super::documents::IssuerHttp;
use super::jwks::IssuerKeySet;

/// The least time between two attempts to read the keys of an issuer.
const MIN_INTERVAL: Duration = Duration::from_secs(5);

/// The age of keys from which on they are read again.
const REFRESHED_AFTER: Duration = Duration::from_secs(600);

/// The age of keys from which on a request waits until they were read again, or the issuer did not
/// answer: the issuer may have removed one.
const MAX_UNREFRESHED: Duration = Duration::from_secs(1200);

/// The keys of an issuer. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct IssuerKeys {
    issuer: Arc<str>,
    http: IssuerHttp,
    /// The age up to which keys are used while the issuer does not answer.
    kept: Duration,
    known: Arc<RwLock<Option<KnownKeys>>>,
    /// Locked while keys are read; the end of the last attempt.
    attempted: Arc<Mutex<Option<Instant>>>,
}

#[derive(Clone, Debug)]
struct KnownKeys {
    set: Arc<IssuerKeySet>,
    read: Instant,
}

impl IssuerKeys {
    /// Asks nothing yet.
    pub fn new(issuer: &str, http: IssuerHttp, kept: Duration) -> Self {
        let known = Arc::default();
        Self { issuer: issuer.into(), http, kept, known, attempted: Arc::default() }
    }

    /// Returns the keys, among them one with this name if the issuer has it.
    ///
    /// # Errors
    /// The issuer does not answer, and there are no keys that are new enough.
    pub async fn with(&self, kid: Option<&str>) -> Result<Arc<IssuerKeySet>, String> {
        // Keys that the issuer may have removed for long are used only if it does not answer.
        let is_known =
            |known: &KnownKeys| has(known, kid) && known.read.elapsed() <= MAX_UNREFRESHED;
        if let Some(known) = self.usable().filter(is_known) {
            if known.read.elapsed() > REFRESHED_AFTER {
                self.refresh_meanwhile();
            }
            return Ok(known.set);
        }
        let attempted = Arc::clone(&self.attempted).lock_owned().await;
        // Another request may have read them while this one waited.
        let known = self.usable();
        let is_due = attempted.is_none_or(|last| last.elapsed() >= MIN_INTERVAL);
        if !is_due || known.as_ref().is_some_and(is_known) {
            return known.map(|known| known.set).ok_or_else(|| {
                format!("{} did not answer a moment ago, and is asked again soon", self.issuer)
            });
        }
        let read = self.start(attempted).await;
        let read = read.unwrap_or_else(|error| Err(error.to_string()));
        match (read, known) {
            (Ok(set), _) => Ok(set),
            (Err(_), Some(known)) => Ok(known.set),
            (Err(problem), None) => Err(problem),
        }
    }

    /// Returns the keys if they are not too old.
    fn usable(&self) -> Option<KnownKeys> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner).clone();
        known.filter(|known| known.read.elapsed() < self.kept)
    }

    fn refresh_meanwhile(&self) {
        let Ok(attempted) = Arc::clone(&self.attempted).try_lock_owned() else { return };
        if attempted.is_none_or(|last| last.elapsed() >= MIN_INTERVAL) {
            drop(self.start(attempted));
        }
    }

    /// Reads the keys in a task of its own: a request that ends early does not end an attempt, and
    /// so has no other one begin.
    fn start(
        &self,
        mut attempted: OwnedMutexGuard<Option<Instant>>,
    ) -> JoinHandle<Result<Arc<IssuerKeySet>, String>> {
        let keys = self.clone();
        tokio::spawn(async move {
            let read = keys.read().await;
            *attempted = Some(Instant::now());
            read
        })
    }

    async fn read(&self) -> Result<Arc<IssuerKeySet>, String> {
        let read = self.fetch().await.inspect_err(|problem| {
            tracing::warn!(issuer = &*self.issuer, %problem, "the keys of the issuer cannot be read");
        })?;
        let set = Arc::new(read);
        let known = KnownKeys { set: Arc::clone(&set), read: Instant::now() };
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = Some(known);
        Ok(set)
    }

    async fn fetch(&self) -> Result<IssuerKeySet, String> {
        let metadata = self.http.discover(&self.issuer).await?;
        let url = metadata.jwks_uri.ok_or_else(|| format!("{} has no jwks_uri", self.issuer))?;
        let body = self.http.get(&url).await?;
        IssuerKeySet::parse(&body).map_err(|problem| format!("{url}: {problem}"))
    }
}

fn has(known: &KnownKeys, kid: Option<&str>) -> bool {
    known.set.named(kid).next().is_some()
}
