//! The front of the crate: requirements in, an [`Environment`] out.
//!
//! Callers in one process and in several share the work: whoever gets the lock of an environment
//! alone makes it, the others wait and find it made.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use snowmelt_types::{ByteSize, Digest};

use crate::environment::Manifest;
use crate::files;
use crate::flock::{FileLock, Share};
use crate::reclaim::{self, Reclaimed};
use crate::requirement::parse_set;
use crate::resolve::{Lock, resolve};
use crate::store::Store;
use crate::{Environment, Progress, Python, Reporter, Requirement, Result};

/// How an [`Installer`] works.
#[derive(Clone, Debug)]
pub struct Options {
    /// Folder that holds everything; made if it is missing. Nobody else may be able to write it.
    pub store: PathBuf,
    /// The interpreter that the packages are for.
    pub python: Python,
    /// The resolver; looked for where it is not named.
    pub uv: Option<PathBuf>,
    /// Ask the index although an earlier answer is young.
    pub refresh: bool,
    /// The most time for resolving.
    pub resolve_limit: Duration,
    /// The most time for fetching and unpacking.
    pub install_limit: Duration,
}

impl Options {
    /// The usual options, with `SNOWMELT_UV` and `SNOWMELT_REFRESH=1` from the environment.
    pub fn from_environment(store: PathBuf, python: Python) -> Self {
        let uv = std::env::var_os("SNOWMELT_UV").filter(|value| !value.is_empty());
        Self {
            store,
            python,
            uv: uv.map(PathBuf::from),
            refresh: std::env::var_os("SNOWMELT_REFRESH").is_some_and(|value| value == "1"),
            resolve_limit: Duration::from_secs(120),
            install_limit: Duration::from_secs(900),
        }
    }
}

/// Installs packages, once for each set. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Installer {
    shared: Arc<Shared>,
}

/// What an installation needs to know.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) store: Store,
    pub(crate) python: Python,
    pub(crate) uv: Option<PathBuf>,
    pub(crate) refresh: bool,
    pub(crate) resolve_limit: Duration,
    pub(crate) install_limit: Duration,
}

impl Shared {
    /// Keeps the cache from being removed while uv uses it. Closed to others, because uv makes
    /// files in it that everybody could write.
    pub(crate) async fn use_cache(&self) -> Result<FileLock> {
        let held = FileLock::acquire(&self.store.cache_lock(), Share::Shared, || ()).await?;
        files::make_folder(&self.store.cache(), 0o700)?;
        Ok(held)
    }
}

impl Installer {
    /// Opens the store, with [`Options::from_environment`].
    pub fn new(store: PathBuf, python: Python) -> Result<Self> {
        Self::with(Options::from_environment(store, python))
    }

    /// Opens the store, and removes what interrupted installations left in it.
    pub fn with(options: Options) -> Result<Self> {
        let Options { store, python, uv, refresh, resolve_limit, install_limit } = options;
        let store = Store::open(store)?;
        let shared = Shared { store, python, uv, refresh, resolve_limit, install_limit };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The interpreter that the packages are for.
    pub fn python(&self) -> &Python {
        &self.shared.python
    }

    /// The environment that satisfies these requirements, made now if it is not there yet.
    ///
    /// Dropping the future stops the work and leaves nothing behind. An empty list gives an empty
    /// environment and runs nothing.
    pub async fn environment(
        &self,
        requirements: &[String],
        progress: &dyn Reporter,
    ) -> Result<Environment> {
        let requirements = parse_set(requirements)?;
        let lock = resolve(&self.shared, &requirements, progress).await?;
        let digest = lock.digest(&self.shared.python);
        loop {
            if let Some(found) = self.find(&digest, &requirements, progress).await? {
                return Ok(found);
            }
            self.make(&lock, &digest, progress).await?;
        }
    }

    /// The environment if it is there, waiting for whoever makes or removes it just now.
    async fn find(
        &self,
        digest: &Digest,
        requirements: &[Requirement],
        progress: &dyn Reporter,
    ) -> Result<Option<Environment>> {
        let folder = self.shared.store.environment(digest);
        let path = self.shared.store.environment_lock(digest.as_str());
        let waiting = || progress.step(&Progress::Waiting);
        let lease = FileLock::acquire(&path, Share::Shared, waiting).await?;
        let Some(manifest) = Manifest::read(&folder) else { return Ok(None) };
        lease.touch()?;
        Ok(Some(manifest.environment(digest.clone(), &folder, requirements, lease)))
    }

    /// Makes the environment unless somebody else does or did.
    async fn make(&self, lock: &Lock, digest: &Digest, progress: &dyn Reporter) -> Result<()> {
        let path = self.shared.store.environment_lock(digest.as_str());
        let Some(alone) = FileLock::try_acquire(&path, Share::Exclusive)? else {
            // Others are looking as well: without a pause all might keep each other from it.
            tokio::time::sleep(Duration::from_millis(5)).await;
            return Ok(());
        };
        if Manifest::read(&self.shared.store.environment(digest)).is_some() {
            return Ok(());
        }
        let made = crate::install::install(&self.shared, lock, digest, progress).await;
        match made {
            Ok(()) => Ok(()),
            Err(error) => {
                alone.remove()?;
                Err(error)
            }
        }
    }

    /// Bytes on disk of all environments and the cache. Reads every folder: call it off the
    /// runtime's threads.
    pub fn size(&self) -> ByteSize {
        let store = &self.shared.store;
        ByteSize(files::bytes_on_disk([store.environments(), store.cache()]))
    }

    /// Removes the cache, then the environments that were not used for longest, until at most
    /// `most` is left. What is in use stays. Blocks: call it off the runtime's threads.
    pub fn gc(&self, most: ByteSize) -> Result<Reclaimed> {
        reclaim::reclaim(&self.shared.store, most, || self.size())
    }
}
