//! All environment variables that the command line reads.
//!
//! Invariant: no other file of this crate names an environment variable.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

/// Path of the configuration file. Default: `~/.config/snowmelt/config.toml`, and for keys that it
/// does not have [`MACHINE_CONFIG`].
pub const CONFIG: &str = "SNOWMELT_CONFIG";
/// The settings of all users of this machine, and of a service without a home folder.
pub const MACHINE_CONFIG: &str = "/etc/snowmelt/config.toml";
/// Folder of the persistent state. Default: `/var/lib/snowmelt` for root, otherwise
/// `${XDG_STATE_HOME:-~/.local/state}/snowmelt`.
pub const STATE: &str = "SNOWMELT_STATE";
/// Socket of the server. Default: `snowmelt.sock` in the state folder.
pub const SOCKET: &str = "SNOWMELT_SOCKET";
/// Group whose members may use the server, by name or number. Default: none.
pub const GROUP: &str = "SNOWMELT_GROUP";

/// Name or number of the user that a server of root becomes; it stays root if absent.
pub const SERVER_USER: &str = "SNOWMELT_USER";
/// Tenant for which commands act. Default: that of the user.
pub const TENANT: &str = "SNOWMELT_TENANT";
/// Context that commands use: a platform on another host, or `local`. Default: the current one of the
/// file of contexts.
pub const CONTEXT: &str = "SNOWMELT_CONTEXT";
/// File of contexts. Default: `~/.config/snowmelt/contexts.toml`.
pub const CONTEXTS: &str = "SNOWMELT_CONTEXTS";
/// URL of a platform on another host, which commands use in place of the server's socket. Default:
/// none.
pub const URL: &str = "SNOWMELT_URL";
/// File with the certificates of authorities that the platform's certificate may lead to. Default:
/// those that the system trusts.
pub const CLIENT_CA: &str = "SNOWMELT_CA";
/// File with the token for the platform on another host.
pub const CLIENT_TOKEN_FILE: &str = "SNOWMELT_CLIENT_TOKEN_FILE";
/// Token for the platform on another host. Default: that of the file.
pub const CLIENT_TOKEN: &str = "SNOWMELT_TOKEN";
/// Folder of the files of a running platform. Default: `/run/snowmelt` for root,
/// otherwise `$XDG_RUNTIME_DIR/snowmelt`, otherwise `run` in the state folder.
pub const RUN: &str = "SNOWMELT_RUN";
/// Folder of secrets of functions, with a folder for each tenant. Default: `/etc/snowmelt/secrets`
/// for root, otherwise `${XDG_CONFIG_HOME:-~/.config}/snowmelt/secrets`.
pub const SECRETS: &str = "SNOWMELT_SECRETS";
/// Python interpreter for user code. Default: the first `python3` that is found.
pub const PYTHON: &str = "SNOWMELT_PYTHON";
/// Address at which other hosts may join a server. Default: none may.
pub const LISTEN: &str = "SNOWMELT_LISTEN";
/// Join token with which a host gets its first certificate, or `@` and the file that has it.
pub const JOIN: &str = "SNOWMELT_JOIN";
/// Whether nothing is encrypted between the hosts of a cluster, which then share a token.
pub const PLAINTEXT: &str = "SNOWMELT_CLUSTER_PLAINTEXT";
/// How long certificates of hosts last, which they renew before half of it is over. Default: 7d.
pub const CERTIFICATE_LIFE: &str = "SNOWMELT_CLUSTER_CERTIFICATE_LIFE";
/// File with the secret token of a cluster without encryption.
pub const TOKEN_FILE: &str = "SNOWMELT_TOKEN_FILE";
/// Name of this host in the cluster. Default: its host name.
pub const HOST: &str = "SNOWMELT_HOST";
/// Memory limit of bursts, and of deployed functions, on this host, as `8GiB`. Default: the
/// machine's memory.
pub const HOST_MEMORY: &str = "SNOWMELT_HOST_MEMORY";
/// Greatest number of instances of a deployed function on one host of several. Default: 20.
pub const INSTANCES_PER_HOST: &str = "SNOWMELT_CLUSTER_INSTANCES_PER_HOST";
/// Time without calls after which a function is taken back from a host. Default: 15m.
pub const RECLAIM_AFTER: &str = "SNOWMELT_CLUSTER_RECLAIM_AFTER";
/// Time for which a burst waits for room on the hosts; 0 for not at all. Default: 5m.
pub const BURST_WAIT: &str = "SNOWMELT_CLUSTER_BURST_WAIT";
/// Program that starts and ends hosts. Default: none, hosts join by themselves.
pub const PROVIDER: &str = "SNOWMELT_CLUSTER_PROVIDER";
/// Least number of hosts where a program starts them. Default: 1.
pub const MIN_HOSTS: &str = "SNOWMELT_CLUSTER_MIN_HOSTS";
/// Greatest number of hosts where a program starts them. Default: 16.
pub const MAX_HOSTS: &str = "SNOWMELT_CLUSTER_MAX_HOSTS";
/// Address at which a server serves clients of other hosts, over TLS. Default: none.
pub const TLS_LISTEN: &str = "SNOWMELT_TLS_LISTEN";
/// PEM file with the certificate of the address for clients of other hosts, and those that lead to
/// its authority.
pub const TLS_CERTIFICATE: &str = "SNOWMELT_TLS_CERT";
/// PEM file with the key of the certificate.
pub const TLS_KEY: &str = "SNOWMELT_TLS_KEY";
/// File with the digests of the tokens of tenants. Default: `tokens` in the state folder.
pub const TLS_TOKENS: &str = "SNOWMELT_TLS_TOKENS";
/// Whether a server writes an audit: `true` or `false`. Default: `true`.
pub const AUDIT_ENABLED: &str = "SNOWMELT_AUDIT_ENABLED";
/// Folder of the files of the audit. Default: `audit` in the state folder.
pub const AUDIT_FOLDER: &str = "SNOWMELT_AUDIT_FOLDER";
/// Size at which a file of the audit is closed, as `64MiB`.
pub const AUDIT_FILE_SIZE: &str = "SNOWMELT_AUDIT_FILE_SIZE";
/// Number of closed files of the audit that are kept; 0 means all. Default: 16.
pub const AUDIT_FILES: &str = "SNOWMELT_AUDIT_FILES";
/// Whether requests are refused while the audit cannot be written. Default: `false`.
pub const AUDIT_REQUIRED: &str = "SNOWMELT_AUDIT_REQUIRED";
/// URL to which the lines of the audit are posted. Default: none.
pub const AUDIT_COLLECTOR: &str = "SNOWMELT_AUDIT_COLLECTOR";
/// Location of the etcd with the records of a server, as `etcd://HOST:PORT,HOST:PORT/PREFIX`, or
/// `etcds://` for TLS. Default: none, records are in the state folder.
pub const STORE_URL: &str = "SNOWMELT_STORE_URL";
/// Folder that all controls of one etcd share, for long records and code.
pub const STORE_FOLDER: &str = "SNOWMELT_STORE_FOLDER";
/// PEM file with authorities of the certificates of etcd. Default: those of the system.
pub const STORE_CA: &str = "SNOWMELT_STORE_CA";
/// PEM file with the certificate that etcd is shown.
pub const STORE_CERTIFICATE: &str = "SNOWMELT_STORE_CERT";
/// PEM file with the key of the certificate that etcd is shown.
pub const STORE_KEY: &str = "SNOWMELT_STORE_KEY";
/// User of etcd.
pub const STORE_USER: &str = "SNOWMELT_STORE_USER";
/// File with the password of the user of etcd.
pub const STORE_PASSWORD_FILE: &str = "SNOWMELT_STORE_PASSWORD_FILE";
/// Quotas of tenants that have none of their own, as `instances=8,memory=16GiB`.
pub const QUOTAS: &str = "SNOWMELT_QUOTAS_DEFAULT";
/// File of issuers whose tokens are accepted. Default: none, keys only.
pub const TLS_ISSUERS: &str = "SNOWMELT_TLS_ISSUERS";
/// URL of the directory of an authority that is asked for certificates (ACME). Default: none.
pub const TLS_ACME_DIRECTORY: &str = "SNOWMELT_TLS_ACME_DIRECTORY";
/// Names of the certificate that the authority is asked for, with commas.
pub const TLS_ACME_NAMES: &str = "SNOWMELT_TLS_ACME_NAMES";
/// Addresses to which the authority writes, with commas. Default: none.
pub const TLS_ACME_CONTACT: &str = "SNOWMELT_TLS_ACME_CONTACT";
/// PEM file with authorities of the directory's own certificate. Default: those of the system.
pub const TLS_ACME_CA: &str = "SNOWMELT_TLS_ACME_CA";
/// Memory limit of all sandboxes together, as `24GiB`.
pub const SANDBOXES_MEMORY: &str = "SNOWMELT_SANDBOXES_MEMORY";
/// Limit of processes and threads of all sandboxes together.
pub const SANDBOXES_PROCESSES: &str = "SNOWMELT_SANDBOXES_PROCESSES";
/// Divisor N, as `8`: an instance of a function reserves 1/N of its memory limit.
pub const SANDBOXES_OVERCOMMIT: &str = "SNOWMELT_SANDBOXES_OVERCOMMIT";
/// Method by which the addresses of functions are enforced: `auto`, `groups` or `notifier`.
pub const ENFORCEMENT: &str = "SNOWMELT_NETWORK_ENFORCEMENT";
/// Memory limit of idle instances, as `2GiB`.
pub const HANDLER_CACHE: &str = "SNOWMELT_CACHE_HANDLERS";
/// Memory limit of zygotes, as `1GiB`.
pub const IMPORT_CACHE: &str = "SNOWMELT_CACHE_IMPORTS";
/// Method by which images are mounted: `auto`, `erofs` or `fuse`.
pub const IMAGE_MOUNT: &str = "SNOWMELT_IMAGES_MOUNT";
/// Disk limit of the raw files of complete images, as `10GiB`; `0` disables them.
pub const RAW_IMAGES: &str = "SNOWMELT_IMAGES_RAW";
/// Size limit of the block cache, as `10GiB`.
pub const IMAGE_CACHE: &str = "SNOWMELT_IMAGES_CACHE";
/// PEM file of certificate authorities to trust for registries, besides the system's.
pub const CA_FILE: &str = "SNOWMELT_IMAGES_CA_FILE";
/// Whether start profiles are pushed to the registries of their images: `true` or `false`.
pub const PUBLISH_STARTS: &str = "SNOWMELT_IMAGES_PUBLISH_STARTS";
/// Whether hosts of a cluster read images from each other: `true` or `false`.
pub const IMAGE_TREES: &str = "SNOWMELT_IMAGES_TREES";
/// Greatest number of bytes of images a second that a host sends to others, as `10MiB`.
pub const SHARE_LINK: &str = "SNOWMELT_IMAGES_SHARE_LINK";
/// Keys of platforms whose start profiles are used, separated by commas.
pub const TRUSTED_KEYS: &str = "SNOWMELT_IMAGES_TRUSTED_KEYS";
/// Servers of HTTP whose files queries may read, separated by commas.
pub const HTTP_SOURCES: &str = "SNOWMELT_HTTP_SOURCES";
/// Workers of a query; 0 means one for each core.
pub const WORKERS: &str = "SNOWMELT_WORKERS";
/// Memory limit of each worker, as `1GiB`.
pub const MEMORY: &str = "SNOWMELT_MEMORY";
/// Bytes of files that are worth a task of a query, as `16MiB`; 0 means a task for each worker.
pub const SCAN_TASK: &str = "SNOWMELT_SCAN_TASK";
/// Time limit of a query, as `10m`; 0 means no limit.
pub const TIMEOUT: &str = "SNOWMELT_TIMEOUT";
/// Medium of exchanges.
pub const EXCHANGE: &str = "SNOWMELT_EXCHANGE";
/// Locations of exchanges by objects, separated by commas.
pub const EXCHANGE_LOCATIONS: &str = "SNOWMELT_EXCHANGE_LOCATIONS";
/// Levels of exchanges by objects.
pub const EXCHANGE_LEVELS: &str = "SNOWMELT_EXCHANGE_LEVELS";
/// Whether exchanges by objects combine what a task writes.
pub const EXCHANGE_COMBINING: &str = "SNOWMELT_EXCHANGE_COMBINING";
/// Exchanged bytes that are worth a task.
pub const EXCHANGE_TASK: &str = "SNOWMELT_EXCHANGE_TASK";
/// File with prices for the cost of queries. Default: AWS's list prices.
pub const PRICES: &str = "SNOWMELT_PRICES";
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
/// URL to which spans are posted. Default: [`OTLP_ENDPOINT`], otherwise none is exported.
pub const TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
/// URL of a collector, without the path of a signal.
pub const OTLP_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
/// Headers of the requests with spans, as `name=value,other=value`. Default: [`OTLP_HEADERS`].
pub const TRACES_HEADERS: &str = "OTEL_EXPORTER_OTLP_TRACES_HEADERS";
/// Headers of all requests to a collector.
pub const OTLP_HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";
/// Name of the service in exported spans. Default: `snowmelt`.
pub const OTEL_SERVICE_NAME: &str = "OTEL_SERVICE_NAME";
/// Attributes of the process in exported spans, as `name=value,other=value`.
pub const OTEL_RESOURCE: &str = "OTEL_RESOURCE_ATTRIBUTES";
/// Sampler, which decides which requests are recorded. Default: `parentbased_always_on`.
pub const OTEL_SAMPLER: &str = "OTEL_TRACES_SAMPLER";
/// The ratio of the sampler, from 0 to 1.
pub const OTEL_SAMPLER_ARGUMENT: &str = "OTEL_TRACES_SAMPLER_ARG";
/// Switch of the export: with `true`, nothing is exported.
pub const OTEL_DISABLED: &str = "OTEL_SDK_DISABLED";
/// Disables colour if set to any value (<https://no-color.org>).
pub const NO_COLOR: &str = "NO_COLOR";

/// Prefix of the variables that are sent with a query, for `s3://` locations.
const AWS_PREFIX: &str = "AWS_";
const HOME: &str = "HOME";
const CONFIG_HOME: &str = "XDG_CONFIG_HOME";
const STATE_HOME: &str = "XDG_STATE_HOME";
const RUNTIME_DIR: &str = "XDG_RUNTIME_DIR";

/// A variable's text; `None` if it is absent or empty, which shells treat alike.
pub fn text(name: &str) -> Option<String> {
    raw(name).map(|value| value.to_string_lossy().into_owned())
}

/// A variable that holds a path.
pub fn path(name: &str) -> Option<PathBuf> {
    raw(name).map(PathBuf::from)
}

/// The token for the platform on another host.
pub fn client_token() -> Option<String> {
    std::env::var(CLIENT_TOKEN).ok().filter(|token| !token.is_empty())
}

/// The client's `AWS_*` variables.
pub fn aws() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| name.starts_with(AWS_PREFIX))
}

/// The default path of the user's configuration file, if there is a home folder.
pub fn config_file() -> Option<PathBuf> {
    let folder = path(CONFIG_HOME).or_else(|| Some(path(HOME)?.join(".config")))?;
    Some(folder.join("snowmelt/config.toml"))
}

/// The path of the file of contexts, if there is a home folder.
pub fn contexts_file() -> Option<PathBuf> {
    let named = path(CONTEXTS).map(|path| std::path::absolute(&path).unwrap_or(path));
    named.or_else(|| Some(config_file()?.with_file_name("contexts.toml")))
}

/// The default state folder.
pub fn default_state() -> PathBuf {
    if snowmelt_kernel::rootless::is_root_of_machine() {
        return PathBuf::from("/var/lib/snowmelt");
    }
    let home = || path(HOME).map(|home| home.join(".local/state"));
    // Without a home folder: in a shared folder, no other user can put something in its place.
    let own = || std::env::temp_dir().join(format!("snowmelt-{}", geteuid().as_raw()));
    path(STATE_HOME).or_else(home).map_or_else(own, |folder| folder.join("snowmelt"))
}

/// The default folder of the files of a running platform.
pub fn default_run(state: &Path) -> PathBuf {
    if snowmelt_kernel::rootless::is_root_of_machine() {
        return PathBuf::from("/run/snowmelt");
    }
    // `su` and `sudo` may leave the variable of the user before.
    let own = path(RUNTIME_DIR).filter(|folder| is_own(folder));
    own.map_or_else(|| state.join("run"), |folder| folder.join("snowmelt"))
}

fn is_own(folder: &Path) -> bool {
    folder.metadata().is_ok_and(|found| found.uid() == geteuid().as_raw())
}

/// The default folder of secrets.
pub fn default_secrets(state: &Path) -> PathBuf {
    if snowmelt_kernel::rootless::is_root_of_machine() {
        return PathBuf::from("/etc/snowmelt/secrets");
    }
    config_file().map_or_else(|| state.join("secrets"), |file| file.with_file_name("secrets"))
}

fn raw(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}
