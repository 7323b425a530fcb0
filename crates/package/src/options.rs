//! Options of an installer, and the environment variables for them.

use std::path::PathBuf;
use std::time::Duration;

use snowmelt_types::ByteSize;

use crate::environments::local_packages;
use crate::python::uv;
use crate::{Error, Python, Result};

/// The default size limit of a store.
const DEFAULT_MAX_SIZE: ByteSize = ByteSize::mib(10 * 1024);

/// Options of an [`Installer`](crate::Installer).
#[derive(Clone, Debug)]
pub struct Options {
    /// The folder of the store; created if it does not exist. Other users must not be able to write
    /// it.
    pub store: PathBuf,
    /// The user besides root and that of the process to whom the store may belong.
    pub trusted: Option<u32>,
    /// The interpreter that the packages are for.
    pub python: Python,
    /// The resolver; searched for if it is not given.
    pub uv: Option<PathBuf>,
    /// Folders of packages that came with the platform: packages that the runtime requires are
    /// taken from them if they are there.
    pub installed: Vec<PathBuf>,
    /// Whether to ignore cached answers of the index.
    pub refresh: bool,
    /// The time limit for resolution.
    pub resolve_limit: Duration,
    /// The time limit for fetching and unpacking one package.
    pub install_limit: Duration,
    /// The size limit of the store on disk. After an installation that exceeds it, unused packages
    /// are removed in LRU order; packages in use are kept even if they exceed it.
    pub max_size: ByteSize,
}

impl Options {
    /// The default options, with `SNOWMELT_UV`, `SNOWMELT_REFRESH=1` and `SNOWMELT_PACKAGES_MAX`
    /// from the environment. Fails if `SNOWMELT_PACKAGES_MAX` is not a valid size.
    pub fn from_environment(store: PathBuf, python: Python) -> Result<Self> {
        Ok(Self {
            store,
            trusted: None,
            installed: local_packages::folders(&python),
            python,
            uv: uv::named(),
            refresh: std::env::var_os("SNOWMELT_REFRESH").is_some_and(|value| value == "1"),
            resolve_limit: Duration::from_secs(120),
            install_limit: Duration::from_secs(900),
            max_size: max_size(std::env::var("SNOWMELT_PACKAGES_MAX").ok().as_deref())?,
        })
    }
}

fn max_size(value: Option<&str>) -> Result<ByteSize> {
    let Some(value) = value.filter(|value| !value.is_empty()) else { return Ok(DEFAULT_MAX_SIZE) };
    value.parse().map_err(|error: snowmelt_types::ParseResourceError| Error::Setting {
        name: "SNOWMELT_PACKAGES_MAX",
        reason: error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_the_size_limit() {
        assert_eq!(max_size(None).unwrap(), DEFAULT_MAX_SIZE);
        assert_eq!(max_size(Some("")).unwrap(), DEFAULT_MAX_SIZE);
        assert_eq!(max_size(Some("2GiB")).unwrap(), ByteSize::mib(2048));
        let refused = max_size(Some("lots")).unwrap_err().to_string();
        assert!(refused.contains("SNOWMELT_PACKAGES_MAX") && refused.contains("lots"), "{refused}");
    }
}
