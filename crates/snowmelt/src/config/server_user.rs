//! The user that a server of root becomes.

use std::path::Path;

use rustix::process::geteuid;
use snowmelt_control::server::ServerUser;
use snowmelt_types::ErrorReport;

use super::keys::USER;
use super::{ConfigSources, ConfigValue, ValueOrigin};

/// Returns the user that the settings name. By default, and for root only, the user whose home folder
/// is the state folder: so commands of root know the user of a service whose settings they do not see.
pub(super) fn load(
    sources: &ConfigSources,
    state: &Path,
) -> Result<Option<ConfigValue<ServerUser>>, ErrorReport> {
    if let Some(ConfigValue { value, origin }) = sources.maybe(&USER, None, ServerUser::named)? {
        return Ok(value.map(|value| ConfigValue { value, origin }));
    }
    let user = geteuid().is_root().then(|| ServerUser::at_home(state)).flatten();
    Ok(user.map(|value| ConfigValue { value, origin: ValueOrigin::Default }))
}
