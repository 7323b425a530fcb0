//! The effective settings, and the origin of each.
//!
//! Invariant: an option overrides its variable, which overrides the user's file, which overrides
//! the machine's file, which overrides the default; the default of every key is defined only in
//! [`KEYS`].
//!
//! | member | job |
//! |---|---|
//! | here | all settings, and the order of their sources |
//! | `keys` | the keys, with the variable and the default of each |
//! | `file`, `files` | one configuration file, and all of them |
//! | `parsers` | values of settings from text |
//! | `audit`, `exchange`, `pool`, `store`, `tls` | groups of settings: the audit, rows between stages, the pool of hosts, the store of records, TLS |
//! | `cluster`, `remote` | files of settings: the token of a cluster, certificates and tokens |
//! | `show` | `snowmelt config show` |

mod audit;
mod client;
pub mod cluster;
mod exchange;
mod file;
mod files;
mod keys;
mod parsers;
mod pool;
pub mod remote;
mod server_user;
mod show;
mod store;
mod tls;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use snowmelt_control::access::permissions::UserGroup;
use snowmelt_control::server::{QuotaLimits, ServerUser};
use snowmelt_image::mount::MountChoice;
use snowmelt_image::profile::PublicKey;
use snowmelt_node::{EnforcementChoice, ImageSettings};
use snowmelt_types::{ByteSize, Code, ErrorReport, HostName, SourceLocation, Tenant};
use snowmelt_wire::HttpSource;

use crate::args::{Cli, Command, ErrorForm, OutputFormat, ProgressMode, rate};
use crate::env;
use audit::AuditConfig;
pub use client::{RemoteAccess, RemotePlatform, server as remote_server};
use cluster::ClusterSecurity;
use exchange::Exchange;
use file::TextValue;
use files::ConfigFiles;

use keys::*;
pub use keys::{ConfigKey, KEYS};
use parsers::{
    address, amount, boolean, choice, duration, factor, http_sources, keys, list, number, quotas,
};
use pool::HostPool;
pub use show::show;
use store::StoreConfig;
pub use tls::Tls;

/// The origin of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueOrigin {
    /// An option on the command line.
    Flag,
    /// An environment variable.
    Variable(&'static str),
    /// A line of the configuration file.
    File(PathBuf, u32),
    /// The context of this name.
    Context(String),
    /// The current context of a file of contexts.
    Current(PathBuf),
    /// The default.
    Default,
}

/// A value and its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigValue<T> {
    /// The value.
    pub value: T,
    /// The origin of the value.
    pub origin: ValueOrigin,
}

/// The effective settings.
#[derive(Clone, Debug)]
pub struct Config {
    /// The files in which settings were looked for, and what was found.
    looked: Vec<String>,
    /// Folder of the persistent state.
    pub state: ConfigValue<PathBuf>,
    /// Socket of the server.
    pub socket: ConfigValue<PathBuf>,
    /// User that a server of root becomes; it stays root if absent.
    pub user: Option<ConfigValue<ServerUser>>,
    /// Group whose members may use the server; if absent, only the server's user may.
    pub group: Option<ConfigValue<UserGroup>>,
    /// Tenant for which commands act; the user's tenant if absent.
    pub tenant: Option<ConfigValue<Tenant>>,
    /// The platform on another host that commands use.
    pub remote: RemotePlatform,
    /// Folder of the files of a running platform, which the platform removes at its end.
    pub run: ConfigValue<PathBuf>,
    /// Folder of secrets of functions.
    pub secrets: ConfigValue<PathBuf>,
    /// Servers of HTTP whose files queries may read.
    pub http_sources: ConfigValue<Vec<HttpSource>>,
    /// Interpreter for user code; discovered if absent.
    pub python: Option<ConfigValue<PathBuf>>,
    /// Address at which other hosts may join; none may if absent.
    pub listen: Option<ConfigValue<SocketAddr>>,
    /// How the processes of the cluster know each other.
    pub security: ClusterSecurity,
    /// Name of this host in the cluster; its host name if absent.
    pub host: Option<ConfigValue<HostName>>,
    /// Memory limit of bursts on this host; the machine's memory if absent.
    pub host_memory: Option<ConfigValue<ByteSize>>,
    /// Greatest number of instances of a deployed function on one host of several.
    pub instances_per_host: ConfigValue<u32>,
    /// Time without calls after which a function is taken back from a host.
    pub reclaim_after: ConfigValue<Duration>,
    /// Time for which a burst waits for room.
    pub burst_wait: ConfigValue<Duration>,
    /// Settings of the program that starts and ends hosts.
    pub pool: HostPool,
    /// Settings of the address for clients of other hosts.
    pub tls: Tls,
    /// Settings of the audit.
    pub audit: AuditConfig,
    /// Settings of the store of records.
    pub store: StoreConfig,
    /// Quotas of tenants that have none of their own.
    pub quotas: ConfigValue<QuotaLimits>,
    /// Memory limit of all sandboxes together; chosen by the spawner if absent.
    pub sandboxes_memory: Option<ConfigValue<ByteSize>>,
    /// Limit of processes of all sandboxes together; chosen by the spawner if absent.
    pub sandboxes_processes: Option<ConfigValue<u32>>,
    /// Divisor N of the memory limit: an instance of a function reserves 1/N of its limit.
    pub sandboxes_overcommit: ConfigValue<u32>,
    /// Method by which the addresses of a job's functions are enforced.
    pub enforcement: ConfigValue<EnforcementChoice>,
    /// Memory limit of idle instances.
    pub handler_cache: ConfigValue<ByteSize>,
    /// Memory limit of zygotes.
    pub import_cache: ConfigValue<ByteSize>,
    /// Method by which images are mounted.
    pub image_mount: ConfigValue<MountChoice>,
    /// Disk limit of the raw files of complete images.
    pub raw_images: ConfigValue<ByteSize>,
    /// Size limit of the block cache.
    pub image_cache: ConfigValue<ByteSize>,
    /// PEM file of certificate authorities to trust for registries, besides the system's.
    pub ca_file: Option<ConfigValue<PathBuf>>,
    /// Whether start profiles are pushed to the registries of their images.
    pub publish_starts: ConfigValue<bool>,
    /// Whether hosts read images from each other.
    pub image_trees: ConfigValue<bool>,
    /// Greatest number of bytes a second that this host sends to others of its cluster; no limit if
    /// absent.
    pub share_link: Option<ConfigValue<ByteSize>>,
    /// Keys of other platforms whose start profiles are used.
    pub trusted_keys: ConfigValue<Vec<PublicKey>>,
    /// URL to which a server posts spans; none are exported if absent. Commands do not check it.
    pub traces: Option<ConfigValue<String>>,
    /// Workers of a query; 0 means one for each core.
    pub workers: ConfigValue<u32>,
    /// Memory limit of each worker.
    pub memory: ConfigValue<ByteSize>,
    /// Number of bytes of files that are worth a task of a query.
    pub scan_task: ConfigValue<ByteSize>,
    /// Time limit of a query; zero means no limit.
    pub timeout: ConfigValue<Duration>,
    /// Settings of the exchange of rows between the stages of a query.
    pub exchange: Exchange,
    /// File with prices for the cost of queries; AWS's list prices if absent.
    pub prices: Option<ConfigValue<PathBuf>>,
    /// Format of the answer.
    pub format: ConfigValue<OutputFormat>,
    /// Rows that a table shows on a terminal; 0 means all.
    pub rows: ConfigValue<u64>,
    /// Form in which progress is shown.
    pub progress: ConfigValue<ProgressMode>,
    /// Form in which errors are printed.
    pub errors: ConfigValue<ErrorForm>,
}

/// Returns the option with authorities of registries.
fn ca_file(cli: &Cli) -> Option<PathBuf> {
    match &cli.command {
        Command::Up(up) => up.ca_file.clone(),
        Command::Node(node) => node.ca_file.clone(),
        Command::Image(image) => image.ca_file.clone(),
        _ => None,
    }
}

impl Config {
    /// Merges options, variables, file and defaults.
    ///
    /// # Errors
    /// `SM-0110` for a file that cannot be read or has an unknown key, and for an invalid value
    /// from any origin.
    pub fn load(cli: &Cli) -> Result<Self, ErrorReport> {
        let sources = ConfigSources { files: ConfigFiles::find()? };
        let sql = match &cli.command {
            Command::Sql(sql) => Some(sql.as_ref()),
            _ => None,
        };
        let (listen, member) = match &cli.command {
            Command::Up(up) => (up.listen, Some(&up.member)),
            Command::Node(node) => (None, Some(&node.member)),
            _ => (None, None),
        };
        let host = member.and_then(|member| member.name.clone());
        let memory = member.and_then(|member| member.memory);
        let state = sources.path(&STATE, env::default_state)?;
        let remote = RemotePlatform::load(&sources, cli)?;
        Ok(Self {
            socket: sources.path(&SOCKET, || state.value.join("snowmelt.sock"))?,
            group: sources.maybe(&GROUP, None, UserGroup::find)?,
            user: server_user::load(&sources, &state.value)?,
            tenant: remote.tenant(&sources, cli)?,
            remote,
            run: sources.path(&RUN, || env::default_run(&state.value))?,
            secrets: sources.path(&SECRETS, || env::default_secrets(&state.value))?,
            http_sources: sources.get(&HTTP_SOURCES, None, http_sources)?,
            python: sources.named_path(&PYTHON)?,
            listen: sources.maybe(&LISTEN, listen, address)?,
            security: ClusterSecurity::load(&sources, member)?,
            host: sources.maybe(&HOST, host, str::parse)?,
            host_memory: sources.maybe(&HOST_MEMORY, memory, amount)?,
            instances_per_host: sources.get(&INSTANCES_PER_HOST, None, factor)?,
            reclaim_after: sources.get(&RECLAIM_AFTER, None, duration)?,
            burst_wait: sources.get(&BURST_WAIT, None, duration)?,
            pool: HostPool::load(&sources)?,
            tls: Tls::load(&sources, &cli.command, &state.value)?,
            audit: AuditConfig::load(&sources, &state.value)?,
            store: StoreConfig::load(&sources)?,
            quotas: sources.get(&QUOTAS, None, quotas)?,
            sandboxes_memory: sources.maybe(&SANDBOXES_MEMORY, None, amount)?,
            sandboxes_processes: sources.maybe(&SANDBOXES_PROCESSES, None, number)?,
            sandboxes_overcommit: sources.get(&SANDBOXES_OVERCOMMIT, None, factor)?,
            enforcement: sources.get(&ENFORCEMENT, None, str::parse)?,
            handler_cache: sources.get(&HANDLER_CACHE, None, amount)?,
            import_cache: sources.get(&IMPORT_CACHE, None, amount)?,
            image_mount: sources.get(&IMAGE_MOUNT, None, str::parse)?,
            raw_images: sources.get(&RAW_IMAGES, None, amount)?,
            image_cache: sources.get(&IMAGE_CACHE, None, amount)?,
            ca_file: sources.file(&CA_FILE, ca_file(cli))?,
            publish_starts: sources.get(&PUBLISH_STARTS, None, boolean)?,
            image_trees: sources.get(&IMAGE_TREES, None, boolean)?,
            share_link: sources.maybe(
                &SHARE_LINK,
                member.and_then(|member| member.share_link),
                rate,
            )?,
            trusted_keys: sources.get(&TRUSTED_KEYS, None, keys)?,
            traces: sources.traces(),
            workers: sources.get(&WORKERS, sql.and_then(|sql| sql.workers), number)?,
            memory: sources.get(&MEMORY, sql.and_then(|sql| sql.memory), amount)?,
            scan_task: sources.get(&SCAN_TASK, sql.and_then(|sql| sql.scan_task), amount)?,
            timeout: sources.get(&TIMEOUT, sql.and_then(|sql| sql.timeout), duration)?,
            exchange: Exchange::load(&sources, sql)?,
            prices: sources.file(&PRICES, sql.and_then(|sql| sql.prices.clone()))?,
            format: sources.get(&FORMAT, sql.and_then(|sql| sql.output), choice)?,
            rows: sources.get(&ROWS, sql.and_then(|sql| sql.rows), number)?,
            progress: sources.get(&PROGRESS, cli.global.progress, choice)?,
            errors: sources.get(&ERRORS, cli.global.errors, choice)?,
            state,
            looked: sources.files.looked,
        })
    }
}

impl Config {
    /// Limits of all sandboxes of a platform together.
    pub fn total(&self) -> snowmelt_sandbox::Total {
        snowmelt_sandbox::Total {
            memory: self.sandboxes_memory.as_ref().map(|memory| memory.value),
            processes: self.sandboxes_processes.as_ref().map(|processes| processes.value),
        }
    }

    /// The platform's settings for images.
    pub fn images(&self) -> ImageSettings {
        ImageSettings {
            mount: self.image_mount.value,
            raw: self.raw_images.value,
            cache: self.image_cache.value,
            ca_file: self.ca_file.as_ref().map(|file| file.value.clone()),
            publish_starts: self.publish_starts.value,
            trees: self.image_trees.value,
            share: self.share_link.as_ref().map(|share| share.value),
            trusted_keys: self.trusted_keys.value.clone(),
        }
    }
}

struct ConfigSources {
    files: ConfigFiles,
}

impl ConfigSources {
    fn get<T>(
        &self,
        key: &'static ConfigKey,
        flag: Option<T>,
        parse: fn(&str) -> Result<T, String>,
    ) -> Result<ConfigValue<T>, ErrorReport> {
        if let Some(value) = flag {
            return Ok(ConfigValue { value, origin: ValueOrigin::Flag });
        }
        let (text, origin) =
            self.text(key).unwrap_or_else(|| (key.default.to_owned(), ValueOrigin::Default));
        match parse(&text) {
            Ok(value) => Ok(ConfigValue { value, origin }),
            Err(problem) => Err(refused(key, &problem, &origin)),
        }
    }

    fn maybe<T>(
        &self,
        key: &'static ConfigKey,
        flag: Option<T>,
        parse: fn(&str) -> Result<T, String>,
    ) -> Result<Option<ConfigValue<T>>, ErrorReport> {
        if flag.is_none() && self.text(key).is_none() {
            return Ok(None);
        }
        self.get(key, flag, parse).map(Some)
    }

    fn path(
        &self,
        key: &'static ConfigKey,
        default: impl FnOnce() -> PathBuf,
    ) -> Result<ConfigValue<PathBuf>, ErrorReport> {
        let found = self.named_path(key)?;
        Ok(found.unwrap_or_else(|| ConfigValue { value: default(), origin: ValueOrigin::Default }))
    }

    fn named_path(
        &self,
        key: &'static ConfigKey,
    ) -> Result<Option<ConfigValue<PathBuf>>, ErrorReport> {
        let Some((text, origin)) = self.text(key) else { return Ok(None) };
        // The server's working folder is `/`, so paths are made absolute here.
        let value = match &origin {
            ValueOrigin::File(file, _) => file.parent().unwrap_or(Path::new("/")).join(text),
            _ => std::path::absolute(&text)
                .map_err(|error| refused(key, &error.to_string(), &origin))?,
        };
        Ok(Some(ConfigValue { value, origin }))
    }

    fn file(
        &self,
        key: &'static ConfigKey,
        flag: Option<PathBuf>,
    ) -> Result<Option<ConfigValue<PathBuf>>, ErrorReport> {
        match flag {
            Some(path) => {
                Ok(Some(ConfigValue { value: absolute(path)?, origin: ValueOrigin::Flag }))
            }
            None => self.named_path(key),
        }
    }

    /// Returns the endpoint for spans. The variable for the collector of all signals comes before
    /// the file, but after the variable for spans.
    fn traces(&self) -> Option<ConfigValue<String>> {
        let own = self.text(&TRACES).map(|(value, origin)| ConfigValue { value, origin });
        if own.as_ref().is_some_and(|own| matches!(own.origin, ValueOrigin::Variable(_))) {
            return own;
        }
        let common = env::text(env::OTLP_ENDPOINT).map(|collector| ConfigValue {
            value: format!("{}/v1/traces", collector.trim_end_matches('/')),
            origin: ValueOrigin::Variable(env::OTLP_ENDPOINT),
        });
        common.or(own)
    }

    fn text(&self, key: &'static ConfigKey) -> Option<(String, ValueOrigin)> {
        if let Some(text) = env::text(key.variable) {
            return Some((text, ValueOrigin::Variable(key.variable)));
        }
        let (path, TextValue { text, line }) = self.files.get(key.name)?;
        Some((text.clone(), ValueOrigin::File(path.to_owned(), *line)))
    }
}

fn refused(key: &ConfigKey, problem: &str, origin: &ValueOrigin) -> ErrorReport {
    let named = match origin {
        ValueOrigin::Variable(variable) => *variable,
        _ => key.name,
    };
    let report = ErrorReport::new(Code::OPTION, format!("{named}: {problem}"));
    match origin {
        ValueOrigin::File(path, line) => report.location(SourceLocation {
            file: path.display().to_string(),
            line: *line,
            within: None,
        }),
        _ => report,
    }
}

/// The error for a value that is checked only where it is used.
pub fn wrong(name: &str, problem: &str) -> ErrorReport {
    ErrorReport::new(Code::OPTION, format!("{name}: {problem}"))
}

fn absolute(path: PathBuf) -> Result<PathBuf, ErrorReport> {
    std::path::absolute(&path)
        .map_err(|error| ErrorReport::new(Code::OPTION, format!("{}: {error}", path.display())))
}
