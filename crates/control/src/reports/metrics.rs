//! The metrics of a platform in the OpenMetrics text format, which Prometheus reads.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeGaugeValue, MetricEncoder, NoLabelSet, text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use snowmelt_api::{
    Figures, LedgerFigures, START_BOUNDS_US, StartFigures, UseFigures, ZygoteFigures,
};
use snowmelt_rpc::trace::Export;

use super::durations::{BOUNDS_S, Histogram, Series};

/// The content type of `GET /metrics`.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Returns the metrics as text.
pub(crate) fn text(figures: Figures, times: Times) -> Result<String, fmt::Error> {
    encoded(vec![Box::new(Metrics(figures)), Box::new(times)])
}

/// Returns the metrics of the durations alone, as text: what one tenant may see.
pub(crate) fn text_of_times(times: Times) -> Result<String, fmt::Error> {
    encoded(vec![Box::new(times)])
}

fn encoded(collectors: Vec<Box<dyn Collector>>) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("snowmelt");
    collectors.into_iter().for_each(|collector| registry.register_collector(collector));
    let mut text = String::new();
    text::encode(&mut text, &registry)?;
    Ok(text)
}

/// The counters of the platform, at one moment.
#[derive(Debug)]
struct Metrics(Figures);

/// Durations of calls and queries, at one moment.
#[derive(Debug)]
pub(crate) struct Times {
    /// Durations of calls, each series with the way by which they came: a call, a burst or a lease.
    pub calls: Vec<(&'static str, Series, Histogram)>,
    pub queries: Vec<(Series, Histogram)>,
}

impl Collector for Times {
    fn encode(&self, encoder: DescriptorEncoder) -> fmt::Result {
        let mut families = Families(encoder);
        let help = "Time from the beginning of a call of a function, or of a lease, to its end";
        let mut family = families.family("call_seconds", help, MetricType::Histogram)?;
        for (by, of, times) in &self.calls {
            let tenant = of.tenant.as_str();
            let function = of.function.as_str();
            let by = ("by", *by);
            let labels = [("tenant", tenant), ("function", function), by, ("outcome", of.outcome)];
            encode_times(family.encode_family(&labels)?, times)?;
        }
        let help = "Time from the request for a query to the end of its answer";
        let mut family = families.family("query_seconds", help, MetricType::Histogram)?;
        for (of, times) in &self.queries {
            let labels = [("tenant", of.tenant.as_str()), ("outcome", of.outcome)];
            encode_times(family.encode_family(&labels)?, times)?;
        }
        Ok(())
    }
}

fn encode_times(mut encoder: MetricEncoder<'_>, times: &Histogram) -> fmt::Result {
    let bounds = BOUNDS_S.into_iter().chain([f64::MAX]);
    let buckets: Vec<_> = bounds.zip(times.buckets).collect();
    let sum = times.sum.as_secs_f64();
    let count = times.buckets.iter().sum();
    encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
}

impl Collector for Metrics {
    fn encode(&self, encoder: DescriptorEncoder) -> fmt::Result {
        let mut families = Families(encoder);
        platform(&mut families, &self.0)?;
        damaged(&mut families, &self.0)?;
        if let Some(days) = self.0.certificate_days {
            let help = "Days until the certificate for clients on other hosts ends";
            let mut family = families.family("certificate_days_left", help, MetricType::Gauge)?;
            family.encode_gauge(&days)?;
        }
        ledger(&mut families, &self.0.node.ledger)?;
        caches(&mut families, &self.0)?;
        zygotes(&mut families, &self.0)?;
        starts(&mut families, &self.0.node.starts)?;
        spans(&mut families)
    }
}

fn platform(families: &mut Families, figures: &Figures) -> fmt::Result {
    let node = &figures.node;
    families.gauge(
        "memory_bytes",
        "Resident memory of server and spawner",
        figures.memory_bytes,
    )?;
    families.gauge("queries", "Queries that run now", u64::from(figures.queries))?;
    families.gauge("calls_running", "Running calls of functions", figures.calls.running)?;
    families.counters(
        "calls",
        "Ended calls of functions",
        "result",
        &[("succeeded", figures.calls.succeeded), ("failed", figures.calls.failed)],
    )?;
    families.gauges(
        "instances",
        "Instances of functions and UDFs",
        "state",
        &[
            ("busy", node.busy.into()),
            ("idle", node.handlers.idle),
            ("prewarmed", node.prewarmed.into()),
        ],
    )?;
    families.gauges(
        "workers",
        "Query workers",
        "state",
        &[("busy", node.busy_workers.into()), ("idle", node.workers.idle)],
    )
}

fn damaged(families: &mut Families, figures: &Figures) -> fmt::Result {
    let help = "Connections given up for damaged data, by the host that sent them";
    let mut family = families.family("damaged_connections", help, MetricType::Counter)?;
    for (host, count) in &figures.damaged {
        let labels = [("host", host.as_str())];
        family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(count, None)?;
    }
    Ok(())
}

fn ledger(families: &mut Families, ledger: &LedgerFigures) -> fmt::Result {
    let of = |value: fn(&UseFigures) -> u64| -> Vec<(&str, u64)> {
        ledger.uses.iter().map(|one| (one.name.as_str(), value(one))).collect()
    };
    families.gauge(
        "ledger_capacity_memory_bytes",
        "Memory that all sandboxes have together",
        ledger.memory_bytes,
    )?;
    families.gauge("ledger_capacity_sandboxes", "Sandboxes that there can be", ledger.instances)?;
    families.gauges(
        "ledger_reserved_memory_bytes",
        "Reserved memory",
        "use",
        &of(|one| one.memory_bytes),
    )?;
    families.gauges(
        "ledger_reserved_cpu_millis",
        "Reserved processor in thousandths of a core",
        "use",
        &of(|one| one.cpu_millis),
    )?;
    families.gauges(
        "ledger_reserved_sandboxes",
        "Sandboxes with a reservation",
        "use",
        &of(|one| one.instances),
    )?;
    families.gauge("ledger_waiting", "Requests that wait for room", ledger.waiting)?;
    families.counters(
        "ledger_requests",
        "Requests for room that could not be granted at once",
        "result",
        &[("granted", ledger.waited), ("refused", ledger.refused)],
    )
}

fn caches(families: &mut Families, figures: &Figures) -> fmt::Result {
    let handlers = &figures.node.handlers;
    let installs = &figures.node.installs;
    let imports = &figures.node.imports;
    families.counters(
        "cache_hits",
        "Requests that a cache served",
        "cache",
        &[
            ("handler", handlers.hits),
            ("import", imports.hits),
            ("import-part", imports.partial),
            ("install", installs.environment_hits),
            ("install-wheel", installs.wheel_hits),
        ],
    )?;
    families.counters(
        "cache_misses",
        "Requests that a cache did not serve",
        "cache",
        &[
            ("handler", handlers.misses),
            ("import", imports.bare),
            ("install", installs.environment_misses),
            ("install-wheel", installs.wheel_misses),
        ],
    )?;
    families.counters(
        "cache_evictions",
        "Items evicted to make room",
        "cache",
        &[("handler", handlers.evicted), ("import", imports.evicted)],
    )?;
    families.counter("cache_expired", "Idle instances that expired unused", handlers.expired)?;
    families.gauges(
        "cache_bytes",
        "The size of a cache: memory, for installs disk",
        "cache",
        &[
            ("handler", handlers.bytes),
            ("prewarmed", figures.node.prewarmed_bytes),
            ("import", imports.bytes),
            ("install", installs.bytes),
        ],
    )?;
    families.gauges(
        "cache_budget_bytes",
        "The limit of a cache",
        "cache",
        &[("handler", handlers.budget), ("import", imports.budget)],
    )
}

fn zygotes(families: &mut Families, figures: &Figures) -> fmt::Result {
    let imports = &figures.node.imports;
    families.counter("zygotes_grown", "Zygotes created from other zygotes", imports.grown)?;
    let kept: Vec<_> = imports.zygotes.iter().filter(|zygote| zygote.kept).collect();
    let retired = imports.zygotes.len() - kept.len();
    families.gauges(
        "zygotes",
        "Zygotes",
        "state",
        &[("kept", kept.len() as u64), ("retired", retired as u64)],
    )?;
    families
        .of_zygotes("zygote_bytes", "Memory of its own", &kept, |zygote| zygote.bytes as f64)?;
    families.of_zygotes("zygote_children", "Children alive", &kept, |zygote| {
        f64::from(zygote.children)
    })?;
    families.of_zygotes("zygote_saves_seconds", "Import time saved recently", &kept, |zygote| {
        zygote.saved_us / 1e6
    })?;
    let mut forks = families.family("zygote_forks", "Children so far", MetricType::Counter)?;
    for zygote in &kept {
        forks
            .encode_family(&labels_of(zygote))?
            .encode_counter::<NoLabelSet, _, u64>(&zygote.forks, None)?;
    }
    Ok(())
}

fn starts(families: &mut Families, starts: &[StartFigures]) -> fmt::Result {
    let help = "Time from the request for an instance to its lease";
    let mut family = families.family("start_seconds", help, MetricType::Histogram)?;
    for start in starts {
        let bounds = START_BOUNDS_US.iter().map(|us| *us as f64 / 1e6).chain([f64::MAX]);
        let buckets: Vec<_> = bounds.zip(start.buckets.iter().copied()).collect();
        family.encode_family(&[("kind", start.kind.name())])?.encode_histogram::<NoLabelSet>(
            start.sum_us as f64 / 1e6,
            start.count(),
            &buckets,
            None,
        )?;
    }
    Ok(())
}

/// Writes the counters of exported spans, where spans are exported.
fn spans(families: &mut Families) -> fmt::Result {
    let Some(export) = Export::installed() else { return Ok(()) };
    let [exported, dropped] = export.counts();
    families.counters(
        "spans",
        "Recorded spans, sent to the collector or dropped",
        "result",
        &[("exported", exported), ("dropped", dropped)],
    )
}

fn labels_of(zygote: &ZygoteFigures) -> [(&'static str, String); 2] {
    [("zygote", zygote.id.to_string()), ("tenant", zygote.tenant.clone())]
}

/// Writes families of metrics. The library adds the prefix, and `_total` to the names of counters.
struct Families<'a>(DescriptorEncoder<'a>);

impl Families<'_> {
    fn family<'f>(
        &'f mut self,
        name: &'f str,
        help: &'f str,
        kind: MetricType,
    ) -> Result<MetricEncoder<'f>, fmt::Error> {
        self.0.encode_descriptor(name, help, None, kind)
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.family(name, help, MetricType::Gauge)?.encode_gauge(&value)
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        let mut family = self.family(name, help, MetricType::Counter)?;
        family.encode_counter::<NoLabelSet, _, u64>(&value, None)
    }

    /// Writes a gauge for each value of a label.
    fn gauges(
        &mut self,
        name: &str,
        help: &str,
        label: &'static str,
        values: &[(&str, u64)],
    ) -> fmt::Result {
        let mut family = self.family(name, help, MetricType::Gauge)?;
        for (of, value) in values {
            family.encode_family(&[(label, *of)])?.encode_gauge(value)?;
        }
        Ok(())
    }

    /// Writes a counter for each value of a label.
    fn counters(
        &mut self,
        name: &str,
        help: &str,
        label: &'static str,
        values: &[(&'static str, u64)],
    ) -> fmt::Result {
        let mut family = self.family(name, help, MetricType::Counter)?;
        for (of, value) in values {
            family
                .encode_family(&[(label, *of)])?
                .encode_counter::<NoLabelSet, _, u64>(value, None)?;
        }
        Ok(())
    }

    fn of_zygotes<V: EncodeGaugeValue>(
        &mut self,
        name: &str,
        help: &str,
        zygotes: &[&ZygoteFigures],
        value: fn(&ZygoteFigures) -> V,
    ) -> fmt::Result {
        let mut family = self.family(name, help, MetricType::Gauge)?;
        for zygote in zygotes {
            family.encode_family(&labels_of(zygote))?.encode_gauge(&value(zygote))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use snowmelt_api::Start;

    use super::*;

    #[test]
    fn every_sample_belongs_to_the_family_before_it() {
        let mut figures = Figures::default();
        figures.node.imports.zygotes.push(Default::default());
        figures.node.imports.zygotes[0].kept = true;
        let name = "worker".to_owned();
        let of_workers = UseFigures { name, memory_bytes: 7, ..UseFigures::default() };
        figures.node.ledger.uses.push(of_workers);
        let buckets = vec![1; START_BOUNDS_US.len() + 1];
        figures.node.starts =
            vec![StartFigures { kind: Start::Zygote, buckets, sum_us: 1_500_000 }];
        figures.damaged.insert("host-3".to_owned(), 2);
        figures.certificate_days = Some(59.5);
        let of = |function: &str, outcome| Series {
            tenant: "acme".to_owned(),
            function: function.to_owned(),
            outcome,
        };
        let times = Histogram { buckets: [2; BOUNDS_S.len() + 1], sum: Duration::from_secs(9) };
        let calls = vec![("burst", of("score", "SM-0212"), times.clone())];
        let times = Times { calls, queries: vec![(of("", "succeeded"), times)] };
        let text = text(figures, times).unwrap();
        let mut family = "";
        for line in text.lines() {
            if let Some(named) = line.strip_prefix("# HELP ") {
                family = named.split(' ').next().unwrap_or_default();
            } else if !line.starts_with('#') {
                assert!(line.starts_with(family), "{line} after {family}");
                let value = line.rsplit(' ').next().unwrap_or_default();
                assert!(value.parse::<f64>().is_ok(), "{line}");
            }
        }
        let labels = "tenant=\"acme\",function=\"score\",by=\"burst\",outcome=\"SM-0212\"";
        let call = format!("snowmelt_call_seconds_bucket{{le=\"0.005\",{labels}}} 4\n");
        assert!(text.contains(&call), "{text}");
        let query = "snowmelt_query_seconds_count{tenant=\"acme\",outcome=\"succeeded\"} 26\n";
        assert!(text.contains(query), "{text}");
        let last = "snowmelt_start_seconds_bucket{le=\"+Inf\",kind=\"zygote\"} 13";
        assert!(text.contains(last), "{text}");
        let reserved = "snowmelt_ledger_reserved_memory_bytes{use=\"worker\"} 7\n";
        assert!(text.contains(reserved), "{text}");
        let damaged = "snowmelt_damaged_connections_total{host=\"host-3\"} 2\n";
        assert!(text.contains(damaged), "{text}");
        assert!(text.contains("snowmelt_certificate_days_left 59.5\n"), "{text}");
        assert!(text.contains("snowmelt_start_seconds_sum{kind=\"zygote\"} 1.5\n"), "{text}");
    }
}
