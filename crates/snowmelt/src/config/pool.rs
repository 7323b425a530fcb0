//! The settings of the pool of hosts.

use std::path::PathBuf;

use snowmelt_control::server::HostProgram;
use snowmelt_types::ErrorReport;

use super::keys::{MAX_HOSTS, MIN_HOSTS, PROVIDER};
use super::{ConfigSources, ConfigValue, factor, wrong};

/// The program that starts and ends hosts, and the limits of their number.
#[derive(Clone, Debug)]
pub struct HostPool {
    /// The program; if absent, hosts join by themselves.
    pub provider: Option<ConfigValue<PathBuf>>,
    /// The least number of hosts.
    pub least: ConfigValue<u32>,
    /// The greatest number of hosts.
    pub most: ConfigValue<u32>,
}

impl HostPool {
    pub(super) fn load(sources: &ConfigSources) -> Result<Self, ErrorReport> {
        let pool = Self {
            provider: sources.named_path(&PROVIDER)?,
            least: sources.get(&MIN_HOSTS, None, factor)?,
            most: sources.get(&MAX_HOSTS, None, factor)?,
        };
        if pool.least.value > pool.most.value {
            let most = pool.most.value;
            return Err(wrong(MIN_HOSTS.name, &format!("more than cluster.max_hosts, {most}")));
        }
        Ok(pool)
    }

    /// The program with its limits.
    pub fn program(&self) -> Option<HostProgram> {
        let least = self.least.value;
        let most = self.most.value;
        let path = self.provider.as_ref()?.value.clone();
        Some(HostProgram { path, least, most })
    }
}
