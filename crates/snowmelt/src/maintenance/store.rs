//! The row of `snowmelt doctor` about the store of records.

use snowmelt_control::server::check_store;
use snowmelt_node::doctor::{Check, CheckStatus};
use snowmelt_types::{ByteSize, ErrorReport};

use crate::config::Config;
use crate::platform;

/// A row about etcd and the shared folder; `None` if records are in the state folder.
pub fn check(config: &Config) -> Option<Check> {
    config.store.url.as_ref()?;
    let found = found(config);
    let (status, found) = match found {
        Ok(found) => found,
        Err(report) => (CheckStatus::Fail, report.message),
    };
    let mend = (status != CheckStatus::Ok).then(|| "see docs/how-to/etcd.md".to_owned());
    let needed = "etcd that answers, without alarms, and the shared folder".to_owned();
    Some(Check { name: "store".to_owned(), status, found, needed, mend })
}

fn found(config: &Config) -> Result<(CheckStatus, String), ErrorReport> {
    let Some(settings) = config.store.settings()? else {
        return Ok((CheckStatus::Ok, "the state folder".to_owned()));
    };
    let runtime = platform::server_runtime()?;
    let state = runtime.block_on(check_store(&settings))?;
    let size = ByteSize(state.bytes);
    let found = format!("{}: version {}, {size}", state.place, state.version);
    if !state.errors.is_empty() {
        return Ok((CheckStatus::Fail, format!("{found}; {}", state.errors.join(", "))));
    }
    Ok(match state.sends_in_clear {
        true => (CheckStatus::Warn, format!("{found}; connections are not encrypted: etcds://")),
        false => (CheckStatus::Ok, found),
    })
}
