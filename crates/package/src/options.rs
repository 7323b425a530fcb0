//! How an installer works, and the variables that say so.

use std::path::PathBuf;
use std::time::Duration;

use snowmelt_types::ByteSize;

use crate::{Error, Python, Result};

/// The most that a store may hold where nobody says otherwise.
const MOST: ByteSize = ByteSize::mib(10 * 1024);

/// How an [`Installer`](crate::Installer) works.
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
    /// The most time for fetching and unpacking one package.
    pub install_limit: Duration,
    /// What the store may hold on disk. After an installation that goes over it, what was not used
    /// for longest is removed; what is in use stays, even if it is more.
    pub most: ByteSize,
}

impl Options {
    /// The usual options, with `SNOWMELT_UV`, `SNOWMELT_REFRESH=1` and `SNOWMELT_PACKAGES_MAX` from
    /// the environment. Fails where the last is no amount.
    pub fn from_environment(store: PathBuf, python: Python) -> Result<Self> {
        let uv = std::env::var_os("SNOWMELT_UV").filter(|value| !value.is_empty());
        Ok(Self {
            store,
            python,
            uv: uv.map(PathBuf::from),
            refresh: std::env::var_os("SNOWMELT_REFRESH").is_some_and(|value| value == "1"),
            resolve_limit: Duration::from_secs(120),
            install_limit: Duration::from_secs(900),
            most: most(std::env::var("SNOWMELT_PACKAGES_MAX").ok().as_deref())?,
        })
    }
}

fn most(value: Option<&str>) -> Result<ByteSize> {
    let Some(value) = value.filter(|value| !value.is_empty()) else { return Ok(MOST) };
    value.parse().map_err(|error: snowmelt_types::ParseResourceError| Error::Setting {
        name: "SNOWMELT_PACKAGES_MAX",
        reason: error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_an_amount_or_refused() {
        assert_eq!(most(None).unwrap(), MOST);
        assert_eq!(most(Some("")).unwrap(), MOST);
        assert_eq!(most(Some("2GiB")).unwrap(), ByteSize::mib(2048));
        let refused = most(Some("lots")).unwrap_err().to_string();
        assert!(refused.contains("SNOWMELT_PACKAGES_MAX") && refused.contains("lots"), "{refused}");
    }
}
