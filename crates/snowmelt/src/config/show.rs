//! The effective settings as a configuration file with the same meaning.

use std::fmt::Write;
use std::path::Path;

use clap::ValueEnum;
use snowmelt_control::server::QuotaLimits;

use super::audit::AuditConfig;
use super::exchange::Exchange;
use super::store::StoreConfig;
use super::{Config, ConfigValue, ValueOrigin};
use crate::terminal::text;

type SettingLines = Vec<(String, String)>;

/// Writes all settings as TOML. With `origin`, the looked-up files are named in comments at the
/// beginning, and each line ends with a comment about the origin of its value.
pub fn show(config: &Config, origin: bool) -> String {
    let mut shown = String::new();
    if origin {
        shown.push_str("# Configuration files; an earlier one overrides a later one:\n");
        for looked in &config.looked {
            let _ = writeln!(shown, "#   {looked}");
        }
    }
    for (section, lines) in sections(config).into_iter().filter(|(_, lines)| !lines.is_empty()) {
        let gap = if shown.is_empty() { "" } else { "\n" };
        let _ = writeln!(shown, "{gap}[{section}]");
        for (setting, from) in lines {
            let _ = match origin {
                true => writeln!(shown, "{setting:<40}  # {from}"),
                false => writeln!(shown, "{setting}"),
            };
        }
    }
    shown
}

/// The settings of each section, and their origins.
fn sections(config: &Config) -> [(&'static str, SettingLines); 16] {
    let tenant = config.tenant.as_ref();
    let tenant = tenant.map(|value| line("tenant", value, |name| quoted(name.as_str())));
    let context = config.remote.context.as_ref();
    let context = context.map(|value| line("context", value, |name| quoted(name)));
    let url = config.remote.url.as_ref().map(|url| line("url", url, |url| quoted(url)));
    let ca = config.remote.ca.as_ref().map(|file| path("ca", file));
    let token_file = config.remote.token_file.as_ref().map(|file| path("token_file", file));
    let client = [tenant, context, url, ca, token_file].into_iter().flatten().collect();
    [
        ("server", server(config)),
        ("client", client),
        ("cluster", cluster(config)),
        ("tls", tls(config)),
        ("audit", audit(&config.audit)),
        ("store", store(&config.store)),
        ("quotas", quotas(config)),
        ("sandboxes", sandboxes(config)),
        ("network", vec![line("enforcement", &config.enforcement, |how| quoted(&how.to_string()))]),
        (
            "cache",
            vec![
                line("handlers", &config.handler_cache, |memory| quoted(&memory.to_string())),
                line("imports", &config.import_cache, |memory| quoted(&memory.to_string())),
            ],
        ),
        ("images", images(config)),
        (
            "traces",
            config.traces.iter().map(|url| line("endpoint", url, |url| quoted(url))).collect(),
        ),
        (
            "query",
            vec![
                line("workers", &config.workers, u32::to_string),
                line("memory", &config.memory, |memory| quoted(&memory.to_string())),
                line("scan_task", &config.scan_task, |bytes| quoted(&bytes.to_string())),
                line("timeout", &config.timeout, |time| quoted(&text::setting(*time))),
            ],
        ),
        ("exchange", exchange(&config.exchange)),
        ("cost", config.prices.iter().map(|file| path("prices", file)).collect()),
        (
            "output",
            vec![
                line("format", &config.format, choice),
                line("rows", &config.rows, u64::to_string),
                line("progress", &config.progress, choice),
                line("errors", &config.errors, choice),
            ],
        ),
    ]
}

fn audit(audit: &AuditConfig) -> SettingLines {
    let always = [
        line("enabled", &audit.enabled, bool::to_string),
        path("folder", &audit.folder),
        line("file_size", &audit.file_size, |size| quoted(&size.to_string())),
        line("files", &audit.files, u32::to_string),
        line("required", &audit.required, bool::to_string),
    ];
    let collector = audit.collector.as_ref().map(|url| line("collector", url, |url| quoted(url)));
    always.into_iter().chain(collector).collect()
}

fn store(store: &StoreConfig) -> SettingLines {
    let text = |name, value: &Option<ConfigValue<String>>| {
        value.as_ref().map(|value| line(name, value, |text| quoted(text)))
    };
    let file = |name, value: &Option<_>| value.as_ref().map(|value| path(name, value));
    let set = [
        text("url", &store.url),
        file("folder", &store.folder),
        file("ca", &store.ca),
        file("cert", &store.certificate),
        file("key", &store.key),
        text("user", &store.user),
        file("password_file", &store.password_file),
    ];
    set.into_iter().flatten().collect()
}

fn quotas(config: &Config) -> SettingLines {
    let shown = |limits: &QuotaLimits| {
        let limits = limits.iter().map(|(kind, limit)| match limit {
            &u64::MAX => format!("{kind}=none"),
            limit => format!("{kind}={}", kind.shown(*limit).replace(' ', "")),
        });
        quoted(&limits.collect::<Vec<_>>().join(","))
    };
    let is_set = !config.quotas.value.is_empty();
    is_set.then(|| line("default", &config.quotas, shown)).into_iter().collect()
}

fn exchange(exchange: &Exchange) -> SettingLines {
    let all = |of: &Vec<String>| {
        format!("[{}]", of.iter().map(|value| quoted(value)).collect::<Vec<_>>().join(", "))
    };
    vec![
        line("medium", &exchange.medium, choice),
        line("locations", &exchange.locations, all),
        line("levels", &exchange.levels, u32::to_string),
        line("combining", &exchange.combining, choice),
        line("task", &exchange.task, |bytes| quoted(&bytes.to_string())),
    ]
}

fn server(config: &Config) -> SettingLines {
    let mut lines = vec![
        path("state", &config.state),
        path("socket", &config.socket),
        path("run", &config.run),
        path("secrets", &config.secrets),
    ];
    let group = config.group.as_ref();
    lines.extend(group.map(|group| line("group", group, |id| quoted(&id.id().to_string()))));
    let user = config.user.as_ref();
    lines.extend(user.map(|user| line("user", user, |user| quoted(&user.name))));
    lines.extend(config.python.as_ref().map(|python| path("python", python)));
    lines.push(line("http_sources", &config.http_sources, |sources| {
        let sources: Vec<_> = sources.iter().map(ToString::to_string).collect();
        toml::Value::from(sources).to_string()
    }));
    lines
}

fn cluster(config: &Config) -> SettingLines {
    let memory = config.host_memory.as_ref();
    let pool = &config.pool;
    let lines = [
        config.listen.as_ref().map(|value| line("listen", value, |at| quoted(&at.to_string()))),
        config.security.token_file.as_ref().map(|value| path("token_file", value)),
        Some(line("plaintext", &config.security.plaintext, bool::to_string)),
        Some(line("certificate_life", &config.security.life, |time| quoted(&text::setting(*time)))),
        config.host.as_ref().map(|value| line("name", value, |name| quoted(name.as_str()))),
        memory.map(|value| line("memory", value, |most| quoted(&most.to_string()))),
        Some(line("instances_per_host", &config.instances_per_host, u32::to_string)),
        Some(line("reclaim_after", &config.reclaim_after, |time| quoted(&text::setting(*time)))),
        Some(line("burst_wait", &config.burst_wait, |time| quoted(&text::setting(*time)))),
        pool.provider.as_ref().map(|value| path("provider", value)),
        Some(line("min_hosts", &pool.least, u32::to_string)),
        Some(line("max_hosts", &pool.most, u32::to_string)),
    ];
    lines.into_iter().flatten().collect()
}

fn tls(config: &Config) -> SettingLines {
    let tls = &config.tls;
    let acme = &tls.acme;
    let all = |of: &Vec<String>| toml::Value::from(of.clone()).to_string();
    let lines = [
        tls.listen.as_ref().map(|value| line("listen", value, |at| quoted(&at.to_string()))),
        tls.certificate.as_ref().map(|value| path("cert", value)),
        tls.key.as_ref().map(|value| path("key", value)),
        Some(path("tokens", &tls.tokens)),
        tls.issuers.as_ref().map(|value| path("issuers", value)),
        acme.directory.as_ref().map(|url| line("acme_directory", url, |url| quoted(url))),
        acme.names.as_ref().map(|names| line("acme_names", names, all)),
        acme.contact.as_ref().map(|contact| line("acme_contact", contact, all)),
        acme.ca.as_ref().map(|value| path("acme_ca", value)),
    ];
    lines.into_iter().flatten().collect()
}

fn sandboxes(config: &Config) -> SettingLines {
    let memory = &config.sandboxes_memory;
    let processes = &config.sandboxes_processes;
    let memory = memory.as_ref();
    let lines = [
        memory.map(|value| line("memory", value, |most| quoted(&most.to_string()))),
        processes.as_ref().map(|value| line("processes", value, u32::to_string)),
        Some(line("overcommit", &config.sandboxes_overcommit, u32::to_string)),
    ];
    lines.into_iter().flatten().collect()
}

fn images(config: &Config) -> SettingLines {
    let mut lines = vec![
        line("mount", &config.image_mount, |form| quoted(&form.to_string())),
        line("raw", &config.raw_images, |bytes| quoted(&bytes.to_string())),
        line("cache", &config.image_cache, |bytes| quoted(&bytes.to_string())),
        line("publish_starts", &config.publish_starts, bool::to_string),
        line("trees", &config.image_trees, bool::to_string),
        line("trusted_keys", &config.trusted_keys, |keys| {
            let keys: Vec<_> = keys.iter().map(ToString::to_string).collect();
            toml::Value::from(keys).to_string()
        }),
    ];
    let share = config.share_link.as_ref();
    lines.extend(share.map(|rate| line("share_link", rate, |rate| quoted(&rate.to_string()))));
    lines.extend(config.ca_file.as_ref().map(|file| path("ca_file", file)));
    lines
}

fn line<T>(name: &str, value: &ConfigValue<T>, form: impl Fn(&T) -> String) -> (String, String) {
    (format!("{name} = {}", form(&value.value)), describe(&value.origin))
}

fn path(name: &str, value: &ConfigValue<impl AsRef<Path>>) -> (String, String) {
    line(name, value, |path| quoted(&path.as_ref().to_string_lossy()))
}

fn choice<T: ValueEnum>(value: &T) -> String {
    let name = value.to_possible_value().map(|value| value.get_name().to_owned());
    quoted(&name.unwrap_or_default())
}

fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

fn describe(origin: &ValueOrigin) -> String {
    match origin {
        ValueOrigin::Flag => "option".to_owned(),
        ValueOrigin::Variable(name) => (*name).to_owned(),
        ValueOrigin::File(path, line) => format!("{}:{line}", path.display()),
        ValueOrigin::Context(name) => format!("context {name}"),
        ValueOrigin::Current(path) => format!("current context of {}", path.display()),
        ValueOrigin::Default => "default".to_owned(),
    }
}
