//! The metrics of a platform in the text format of Prometheus (version 0.0.4).

use std::fmt::{Display, Write};

use snowmelt_api::{Figures, PoolFigures, START_BOUNDS_US, StartFigures};

/// The content type of `GET /metrics`.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The metrics as text.
pub(crate) fn text(figures: &Figures) -> String {
    let mut text = Text::default();
    let node = &figures.node;
    text.gauge("memory_bytes", "Resident memory of server and spawner.", figures.memory_bytes);
    text.gauge("queries", "Queries that run now.", figures.queries);
    let calls = figures.calls;
    text.gauge("calls_running", "Calls of functions under way.", calls.running);
    text.family("calls_total", "counter", "Calls of functions that ended.");
    for (result, count) in [("succeeded", calls.succeeded), ("failed", calls.failed)] {
        text.sample("calls_total", &[("result", result)], count);
    }
    text.family("instances", "gauge", "Instances of functions and UDFs alive.");
    let alive =
        [("busy", node.busy.into()), ("idle", node.handlers.idle), ("parked", node.parked.into())];
    for (state, count) in alive {
        text.sample("instances", &[("state", state)], count);
    }
    text.family("workers", "gauge", "Query workers alive.");
    for (state, count) in [("busy", node.busy_workers.into()), ("idle", node.workers.idle)] {
        text.sample("workers", &[("state", state)], count);
    }
    caches(&mut text, figures);
    zygotes(&mut text, figures);
    starts(&mut text, &node.starts);
    text.0
}

fn caches(text: &mut Text, figures: &Figures) {
    let (handlers, installs) = (&figures.node.handlers, &figures.node.installs);
    let imports = &figures.node.imports;
    text.family("cache_hits_total", "counter", "Times that a cache had what was needed.");
    let hits = [
        ("handler", handlers.hits),
        ("import", imports.hits),
        ("import-part", imports.partial),
        ("install", installs.environment_hits),
        ("install-wheel", installs.wheel_hits),
    ];
    for (cache, count) in hits {
        text.sample("cache_hits_total", &[("cache", cache)], count);
    }
    text.family("cache_misses_total", "counter", "Times that a cache did not have it.");
    let misses = [
        ("handler", handlers.misses),
        ("import", imports.bare),
        ("install", installs.environment_misses),
        ("install-wheel", installs.wheel_misses),
    ];
    for (cache, count) in misses {
        text.sample("cache_misses_total", &[("cache", cache)], count);
    }
    text.family("cache_evictions_total", "counter", "Items evicted to make room.");
    for (cache, count) in [("handler", handlers.evicted), ("import", imports.evicted)] {
        text.sample("cache_evictions_total", &[("cache", cache)], count);
    }
    let PoolFigures { expired, .. } = handlers;
    text.counter("cache_expired_total", "Idle instances that expired unused.", expired);
    text.family("cache_bytes", "gauge", "What a cache holds: memory, and for installs disk.");
    let bytes = [
        ("handler", handlers.bytes),
        ("parked", figures.node.parked_bytes),
        ("import", imports.bytes),
        ("install", installs.bytes),
    ];
    for (cache, count) in bytes {
        text.sample("cache_bytes", &[("cache", cache)], count);
    }
    text.family("cache_budget_bytes", "gauge", "The most that it may hold.");
    for (cache, count) in [("handler", handlers.budget), ("import", imports.budget)] {
        text.sample("cache_budget_bytes", &[("cache", cache)], count);
    }
}

fn zygotes(text: &mut Text, figures: &Figures) {
    let imports = &figures.node.imports;
    text.counter("zygotes_grown_total", "Zygotes that were grown from others.", imports.grown);
    let all = &imports.zygotes;
    let kept = all.iter().filter(|zygote| zygote.kept).count();
    text.family("zygotes", "gauge", "Zygotes alive.");
    text.sample("zygotes", &[("state", "kept")], kept);
    text.sample("zygotes", &[("state", "retired")], all.len() - kept);
    type Field =
        (&'static str, &'static str, &'static str, fn(&snowmelt_api::ZygoteFigures) -> f64);
    let fields: [Field; 4] = [
        ("zygote_bytes", "gauge", "Memory of its own.", |zygote| zygote.bytes as f64),
        ("zygote_children", "gauge", "Children alive.", |zygote| f64::from(zygote.children)),
        ("zygote_forks_total", "counter", "Children so far.", |zygote| zygote.forks as f64),
        ("zygote_saves_seconds", "gauge", "Import time saved in the starts of late.", |zygote| {
            zygote.saved_us / 1e6
        }),
    ];
    for (name, kind, help, value) in fields {
        text.family(name, kind, help);
        for zygote in all.iter().filter(|zygote| zygote.kept) {
            let (id, tenant) = (zygote.id.to_string(), zygote.tenant.as_str());
            text.sample(name, &[("zygote", &id), ("tenant", tenant)], value(zygote));
        }
    }
}

fn starts(text: &mut Text, starts: &[StartFigures]) {
    let name = "start_seconds";
    text.family(name, "histogram", "From the request for an instance to having it.");
    for start in starts {
        let kind = start.kind.name();
        let mut below = 0;
        let bounds = START_BOUNDS_US.iter().map(|us| (*us as f64 / 1e6).to_string());
        for (bound, count) in bounds.chain(["+Inf".to_owned()]).zip(&start.buckets) {
            below += count;
            text.sample("start_seconds_bucket", &[("kind", kind), ("le", &bound)], below);
        }
        let sum = start.sum_us as f64 / 1e6;
        text.sample("start_seconds_sum", &[("kind", kind)], sum);
        text.sample("start_seconds_count", &[("kind", kind)], start.count());
    }
}

#[derive(Default)]
struct Text(String);

impl Text {
    fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, "gauge", help);
        self.sample(name, &[], value);
    }

    fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, "counter", help);
        self.sample(name, &[], value);
    }

    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "# HELP snowmelt_{name} {help}\n# TYPE snowmelt_{name} {kind}");
    }

    /// Label values are names of ours and of tenants: nothing that would have to be escaped.
    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let labels: Vec<_> =
            labels.iter().map(|(key, value)| format!("{key}=\"{value}\"")).collect();
        let labels =
            if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(self.0, "snowmelt_{name}{labels} {value}");
    }
}

#[cfg(test)]
mod tests {
    use snowmelt_api::Start;

    use super::*;

    #[test]
    fn every_sample_belongs_to_the_family_before_it() {
        let mut figures = Figures::default();
        figures.node.imports.zygotes.push(Default::default());
        figures.node.imports.zygotes[0].kept = true;
        let buckets = vec![1; START_BOUNDS_US.len() + 1];
        figures.node.starts =
            vec![StartFigures { kind: Start::Zygote, buckets, sum_us: 1_500_000 }];
        let text = text(&figures);
        let mut family = "";
        for line in text.lines() {
            if let Some(named) = line.strip_prefix("# TYPE ") {
                family = named.split(' ').next().unwrap_or_default();
            } else if !line.starts_with('#') {
                assert!(line.starts_with(family), "{line} after {family}");
                let value = line.rsplit(' ').next().unwrap_or_default();
                assert!(value.parse::<f64>().is_ok(), "{line}");
            }
        }
        let last = "snowmelt_start_seconds_bucket{kind=\"zygote\",le=\"+Inf\"} 13";
        assert!(text.contains(last), "{text}");
        assert!(text.contains("snowmelt_start_seconds_sum{kind=\"zygote\"} 1.5\n"), "{text}");
    }
}
