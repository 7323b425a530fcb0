//! The keys of the configuration file, their variables and their defaults.

use crate::env;

/// A key of the configuration file, and the variable that overrides it.
#[derive(Debug)]
pub struct ConfigKey {
    /// Section and name, as `query.memory`.
    pub name: &'static str,
    /// The environment variable that overrides the key.
    pub variable: &'static str,
    /// The default; empty if it is computed or if there is none.
    pub(super) default: &'static str,
}

macro_rules! keys {
    ($($constant:ident = $name:literal, $variable:expr, $default:literal;)*) => {
        $(pub(super) const $constant: ConfigKey =
            ConfigKey { name: $name, variable: $variable, default: $default };)*
        /// All keys.
        pub const KEYS: &[ConfigKey] = &[$($constant),*];
    };
}

keys! {
    STATE = "server.state", env::STATE, "";
    SOCKET = "server.socket", env::SOCKET, "";
    GROUP = "server.group", env::GROUP, "";
    USER = "server.user", env::SERVER_USER, "";
    RUN = "server.run", env::RUN, "";
    SECRETS = "server.secrets", env::SECRETS, "";
    TENANT = "client.tenant", env::TENANT, "";
    CLIENT_CONTEXT = "client.context", env::CONTEXT, "";
    URL = "client.url", env::URL, "";
    CLIENT_CA = "client.ca", env::CLIENT_CA, "";
    CLIENT_TOKEN_FILE = "client.token_file", env::CLIENT_TOKEN_FILE, "";
    PYTHON = "server.python", env::PYTHON, "";
    HTTP_SOURCES = "server.http_sources", env::HTTP_SOURCES, "";
    LISTEN = "cluster.listen", env::LISTEN, "";
    TOKEN_FILE = "cluster.token_file", env::TOKEN_FILE, "";
    PLAINTEXT = "cluster.plaintext", env::PLAINTEXT, "false";
    CERTIFICATE_LIFE = "cluster.certificate_life", env::CERTIFICATE_LIFE, "7d";
    HOST = "cluster.name", env::HOST, "";
    HOST_MEMORY = "cluster.memory", env::HOST_MEMORY, "";
    INSTANCES_PER_HOST = "cluster.instances_per_host", env::INSTANCES_PER_HOST, "20";
    RECLAIM_AFTER = "cluster.reclaim_after", env::RECLAIM_AFTER, "15m";
    BURST_WAIT = "cluster.burst_wait", env::BURST_WAIT, "5m";
    PROVIDER = "cluster.provider", env::PROVIDER, "";
    MIN_HOSTS = "cluster.min_hosts", env::MIN_HOSTS, "1";
    MAX_HOSTS = "cluster.max_hosts", env::MAX_HOSTS, "16";
    TLS_LISTEN = "tls.listen", env::TLS_LISTEN, "";
    TLS_CERTIFICATE = "tls.cert", env::TLS_CERTIFICATE, "";
    TLS_KEY = "tls.key", env::TLS_KEY, "";
    TLS_TOKENS = "tls.tokens", env::TLS_TOKENS, "";
    AUDIT_ENABLED = "audit.enabled", env::AUDIT_ENABLED, "true";
    AUDIT_FOLDER = "audit.folder", env::AUDIT_FOLDER, "";
    AUDIT_FILE_SIZE = "audit.file_size", env::AUDIT_FILE_SIZE, "64MiB";
    AUDIT_FILES = "audit.files", env::AUDIT_FILES, "16";
    AUDIT_REQUIRED = "audit.required", env::AUDIT_REQUIRED, "false";
    AUDIT_COLLECTOR = "audit.collector", env::AUDIT_COLLECTOR, "";
    STORE_URL = "store.url", env::STORE_URL, "";
    STORE_FOLDER = "store.folder", env::STORE_FOLDER, "";
    STORE_CA = "store.ca", env::STORE_CA, "";
    STORE_CERTIFICATE = "store.cert", env::STORE_CERTIFICATE, "";
    STORE_KEY = "store.key", env::STORE_KEY, "";
    STORE_USER = "store.user", env::STORE_USER, "";
    STORE_PASSWORD_FILE = "store.password_file", env::STORE_PASSWORD_FILE, "";
    QUOTAS = "quotas.default", env::QUOTAS, "";
    TLS_ISSUERS = "tls.issuers", env::TLS_ISSUERS, "";
    TLS_ACME_DIRECTORY = "tls.acme_directory", env::TLS_ACME_DIRECTORY, "";
    TLS_ACME_NAMES = "tls.acme_names", env::TLS_ACME_NAMES, "";
    TLS_ACME_CONTACT = "tls.acme_contact", env::TLS_ACME_CONTACT, "";
    TLS_ACME_CA = "tls.acme_ca", env::TLS_ACME_CA, "";
    SANDBOXES_MEMORY = "sandboxes.memory", env::SANDBOXES_MEMORY, "";
    SANDBOXES_PROCESSES = "sandboxes.processes", env::SANDBOXES_PROCESSES, "";
    SANDBOXES_OVERCOMMIT = "sandboxes.overcommit", env::SANDBOXES_OVERCOMMIT, "8";
    ENFORCEMENT = "network.enforcement", env::ENFORCEMENT, "auto";
    HANDLER_CACHE = "cache.handlers", env::HANDLER_CACHE, "2GiB";
    IMPORT_CACHE = "cache.imports", env::IMPORT_CACHE, "1GiB";
    IMAGE_MOUNT = "images.mount", env::IMAGE_MOUNT, "auto";
    RAW_IMAGES = "images.raw", env::RAW_IMAGES, "10GiB";
    IMAGE_CACHE = "images.cache", env::IMAGE_CACHE, "10GiB";
    CA_FILE = "images.ca_file", env::CA_FILE, "";
    PUBLISH_STARTS = "images.publish_starts", env::PUBLISH_STARTS, "false";
    IMAGE_TREES = "images.trees", env::IMAGE_TREES, "true";
    SHARE_LINK = "images.share_link", env::SHARE_LINK, "";
    TRUSTED_KEYS = "images.trusted_keys", env::TRUSTED_KEYS, "";
    TRACES = "traces.endpoint", env::TRACES_ENDPOINT, "";
    WORKERS = "query.workers", env::WORKERS, "0";
    MEMORY = "query.memory", env::MEMORY, "1GiB";
    SCAN_TASK = "query.scan_task", env::SCAN_TASK, "16MiB";
    TIMEOUT = "query.timeout", env::TIMEOUT, "0";
    EXCHANGE = "exchange.medium", env::EXCHANGE, "auto";
    EXCHANGE_LOCATIONS = "exchange.locations", env::EXCHANGE_LOCATIONS, "";
    EXCHANGE_LEVELS = "exchange.levels", env::EXCHANGE_LEVELS, "1";
    EXCHANGE_COMBINING = "exchange.combining", env::EXCHANGE_COMBINING, "on";
    EXCHANGE_TASK = "exchange.task", env::EXCHANGE_TASK, "16MiB";
    PRICES = "cost.prices", env::PRICES, "";
    FORMAT = "output.format", env::OUTPUT, "table";
    ROWS = "output.rows", env::ROWS, "40";
    PROGRESS = "output.progress", env::PROGRESS, "auto";
    ERRORS = "output.errors", env::ERRORS, "text";
}
