//! Export of spans by `snowmelt up` and `snowmelt node`.
//!
//! Invariant: the thread that sends spans is started after the spawner, which must be forked from a
//! process without threads. Spans that are recorded before wait in the queue.

use std::sync::{Mutex, PoisonError};

use snowmelt_rpc::trace::Sampler;
use snowmelt_telemetry::{Prepared, Running, Settings, pairs};
use snowmelt_types::ErrorReport;
use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::{Config, ValueOrigin, cluster, wrong};
use crate::env;

static PREPARED: Mutex<Option<Prepared>> = Mutex::new(None);

/// The settings of the export; `None` if no endpoint is configured.
///
/// # Errors
/// `SM-0110` for an endpoint, a header or a sampler that cannot be used.
pub fn settings(config: &Config) -> Result<Option<Settings>, ErrorReport> {
    let is_disabled = env::text(env::OTEL_DISABLED).is_some_and(|text| text == "true");
    let Some(traces) = config.traces.as_ref().filter(|_| !is_disabled) else { return Ok(None) };
    let named = match &traces.origin {
        ValueOrigin::Variable(variable) => variable,
        _ => "traces.endpoint",
    };
    let endpoint = traces.value.parse();
    let endpoint = endpoint
        .map_err(|error: snowmelt_telemetry::WrongEndpoint| wrong(named, &error.to_string()))?;
    let mut settings = Settings::new(endpoint);
    if let Ok(host) = cluster::name(config) {
        settings.describe("host.name", host.as_str());
    }
    for (name, value) in pairs(&env::text(env::OTEL_RESOURCE).unwrap_or_default()) {
        settings.describe(&name, &value);
    }
    if let Some(service) = env::text(env::OTEL_SERVICE_NAME) {
        settings.describe("service.name", &service);
    }
    let all = |variable: &'static str| env::text(variable).map(|list| (variable, list));
    let headers = all(env::TRACES_HEADERS).or_else(|| all(env::OTLP_HEADERS));
    if let Some((variable, list)) = headers {
        for (name, value) in pairs(&list) {
            if !settings.send(&name, &value) {
                return Err(wrong(variable, &format!("`{name}` is not a header with a value")));
            }
        }
    }
    if let Some(sampler) = env::text(env::OTEL_SAMPLER) {
        let argument = env::text(env::OTEL_SAMPLER_ARGUMENT);
        let known = Sampler::parse(&sampler, argument.as_deref());
        let unknown = || wrong(env::OTEL_SAMPLER, &format!("`{sampler}` is not a known sampler"));
        settings.sampler = known.ok_or_else(unknown)?;
    }
    Ok(Some(settings))
}

/// Sends the log to stderr and records spans. The filter applies to the log only.
pub fn record(settings: Settings, log: EnvFilter) {
    let written = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(false);
    let (spans, prepared) = snowmelt_telemetry::prepare(settings);
    let subscriber = tracing_subscriber::registry().with(written.with_filter(log)).with(spans);
    // Installing a second subscriber fails; the first one stays.
    if subscriber.try_init().is_ok() {
        *PREPARED.lock().unwrap_or_else(PoisonError::into_inner) = Some(prepared);
    }
}

/// Starts to send spans, if they are recorded. Call it after the spawner is started.
pub fn start() -> Option<Running> {
    let prepared = PREPARED.lock().unwrap_or_else(PoisonError::into_inner).take()?;
    prepared.start().inspect_err(|error| tracing::warn!(%error, "spans cannot be exported")).ok()
}

/// Sends the waiting spans, within a second.
pub fn end(running: Option<Running>) {
    if let Some(running) = running {
        running.end();
    }
}
