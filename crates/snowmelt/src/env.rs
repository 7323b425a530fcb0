//! Every environment variable that the command line reads, in one place.
//!
//! Invariant: no other file of this crate names an environment variable.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Path of the configuration file. Default: `~/.config/snowmelt/config.toml`.
pub const CONFIG: &str = "SNOWMELT_CONFIG";
/// Folder of everything that is kept. Default: `/var/lib/snowmelt` for root, otherwise
/// `${XDG_STATE_HOME:-~/.local/state}/snowmelt`.
pub const STATE: &str = "SNOWMELT_STATE";
/// Socket of the server. Default: `snowmelt.sock` in the state folder.
pub const SOCKET: &str = "SNOWMELT_SOCKET";
/// Group whose members may use the server, by name or number. Default: none.
pub const GROUP: &str = "SNOWMELT_GROUP";
/// Tenant for which commands act. Default: that of the user.
pub const TENANT: &str = "SNOWMELT_TENANT";
/// Folder of what a running platform holds and gives back. Default: `/run/snowmelt` for root,
/// otherwise `$XDG_RUNTIME_DIR/snowmelt`, otherwise `run` in the state folder.
pub const RUN: &str = "SNOWMELT_RUN";
/// Python interpreter for user code. Default: the `python3` that is found first.
pub const PYTHON: &str = "SNOWMELT_PYTHON";
/// Address at which other hosts may join a server. Default: none may.
pub const LISTEN: &str = "SNOWMELT_LISTEN";
/// File with the secret of the cluster.
pub const TOKEN_FILE: &str = "SNOWMELT_TOKEN_FILE";
/// Name of this host in the cluster. Default: its host name.
pub const HOST: &str = "SNOWMELT_HOST";
/// The most memory that bursts have on this host, as `8GiB`. Default: what the machine has.
pub const HOST_MEMORY: &str = "SNOWMELT_HOST_MEMORY";
/// The most memory of all sandboxes together, as `24GiB`.
pub const SANDBOXES_MEMORY: &str = "SNOWMELT_SANDBOXES_MEMORY";
/// The most processes and threads of all sandboxes together.
pub const SANDBOXES_PROCESSES: &str = "SNOWMELT_SANDBOXES_PROCESSES";
/// What holds functions to their addresses: `auto`, `groups` or `guard`.
pub const HOLD: &str = "SNOWMELT_NETWORK_HOLD";
/// The most memory of idle instances, as `2GiB`.
pub const HANDLER_CACHE: &str = "SNOWMELT_CACHE_HANDLERS";
/// The most memory of zygotes, as `1GiB`.
pub const IMPORT_CACHE: &str = "SNOWMELT_CACHE_IMPORTS";
/// How images are mounted: `auto`, `erofs` or `fuse`.
pub const IMAGE_MOUNT: &str = "SNOWMELT_IMAGES_MOUNT";
/// The most disk that complete images take as raw files, as `10GiB`; `0` for none.
pub const RAW_IMAGES: &str = "SNOWMELT_IMAGES_RAW";
/// The most bytes of cached blocks of images, as `10GiB`.
pub const IMAGE_CACHE: &str = "SNOWMELT_IMAGES_CACHE";
/// File with authorities of registries that are trusted beside those of the system.
pub const CA_FILE: &str = "SNOWMELT_IMAGES_CA_FILE";
/// Whether starts are put beside their images in registries: `true` or `false`.
pub const PUBLISH_STARTS: &str = "SNOWMELT_IMAGES_PUBLISH_STARTS";
/// Keys of platforms whose starts are used, with commas between them.
pub const TRUSTED_KEYS: &str = "SNOWMELT_IMAGES_TRUSTED_KEYS";
/// Workers of a query; 0 means one for each core.
pub const WORKERS: &str = "SNOWMELT_WORKERS";
/// Memory limit of each worker, as `1GiB`.
pub const MEMORY: &str = "SNOWMELT_MEMORY";
/// The most time for a query, as `10m`; 0 means no limit.
pub const TIMEOUT: &str = "SNOWMELT_TIMEOUT";
/// Output format: `table`, `json`, `csv`, `arrow` or `parquet`.
pub const OUTPUT: &str = "SNOWMELT_OUTPUT";
/// Rows that a table shows on a terminal; 0 means all.
pub const ROWS: &str = "SNOWMELT_ROWS";
/// Progress display: `auto`, `tty`, `plain` or `quiet`.
pub const PROGRESS: &str = "SNOWMELT_PROGRESS";
/// Form of errors: `text` or `json`.
pub const ERRORS: &str = "SNOWMELT_ERRORS";
/// Filter of the log, as `info` or `snowmelt_control=debug`.
pub const LOG: &str = "SNOWMELT_LOG";
/// Set to anything: no colour (<https://no-color.org>).
pub const NO_COLOR: &str = "NO_COLOR";

/// Prefix of the variables that are sent along with a query, for `s3://` locations.
const AWS_PREFIX: &str = "AWS_";
const HOME: &str = "HOME";
const CONFIG_HOME: &str = "XDG_CONFIG_HOME";
const STATE_HOME: &str = "XDG_STATE_HOME";
const RUNTIME_DIR: &str = "XDG_RUNTIME_DIR";

/// A variable's text; `None` where it is absent or empty, as shells treat the two alike.
pub fn text(name: &str) -> Option<String> {
    raw(name).map(|value| value.to_string_lossy().into_owned())
}

/// A variable that holds a path.
pub fn path(name: &str) -> Option<PathBuf> {
    raw(name).map(PathBuf::from)
}

/// The client's `AWS_*` variables.
pub fn aws() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| name.starts_with(AWS_PREFIX))
}

/// Where the configuration file is, if there is a home to look in.
pub fn config_file() -> Option<PathBuf> {
    let folder = path(CONFIG_HOME).or_else(|| Some(path(HOME)?.join(".config")))?;
    Some(folder.join("snowmelt/config.toml"))
}

/// The state folder where nothing else is said.
pub fn default_state() -> PathBuf {
    if rustix::process::geteuid().is_root() {
        return PathBuf::from("/var/lib/snowmelt");
    }
    let home = || path(HOME).unwrap_or_else(std::env::temp_dir).join(".local/state");
    path(STATE_HOME).unwrap_or_else(home).join("snowmelt")
}

/// The folder of what a running platform holds, where nothing else is said.
pub fn default_run(state: &Path) -> PathBuf {
    if rustix::process::geteuid().is_root() {
        return PathBuf::from("/run/snowmelt");
    }
    path(RUNTIME_DIR).map_or_else(|| state.join("run"), |folder| folder.join("snowmelt"))
}

fn raw(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}
