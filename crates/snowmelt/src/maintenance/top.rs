//! `snowmelt top`: instances, caches and the tree of zygotes, redrawn every second.
//!
//! Invariant: on a terminal each picture replaces the previous one until `q` is pressed; elsewhere
//! it is printed once.

use std::time::Duration;

use snowmelt_api::{Figures, LedgerFigures, PoolFigures, StartFigures, UseFigures, ZygoteFigures};
use snowmelt_types::{ByteSize, Code};

use crate::args::{ShowFormat, TopArgs};
use crate::config::Config;
use crate::output::{TableLayout, draw, list};
use crate::platform::{self, CommandPlatform};
use crate::server;
use crate::terminal::{CommandOutcome, KeyPresses, Printer, printer, text};

const REDRAW_INTERVAL: Duration = Duration::from_secs(1);
/// Moves the cursor to the upper left corner and clears the screen.
const CLEAR: &str = "\x1b[H\x1b[J";

/// Shows the metrics of the platform.
///
/// # Errors
/// `SM-0503` if none is running.
pub fn run(args: &TopArgs, config: &Config, printer: Printer) -> CommandOutcome {
    let named = args.server.as_deref();
    let json = args.output == ShowFormat::Json;
    let live = !args.once && !json && printer::stdout_is_terminal();
    let shown =
        platform::with(CommandPlatform::server(named, config)?, printer, async |client, _| {
            let mut keys = live.then(KeyPresses::read);
            loop {
                let figures = client.figures().await?;
                match (json, live) {
                    (true, _) => printer::print(&list::json(&figures)?)?,
                    (false, true) => printer::print(&format!("{CLEAR}{}", picture(&figures)))?,
                    (false, false) => printer::print(&picture(&figures))?,
                }
                let Some(keys) = &mut keys else { return Ok(0) };
                let quit = keys.wait_for(b'q');
                if tokio::time::timeout(REDRAW_INTERVAL, quit).await.is_ok() {
                    return Ok(0);
                }
            }
        });
    match shown {
        // Ctrl-C is a normal exit here.
        Err(failure) if live && failure.report.code == Code::CANCELLED.code => Ok(0),
        shown => shown.map_err(|failure| server::explain_unreachable(failure, named, config)),
    }
}

fn picture(figures: &Figures) -> String {
    let parts = [
        head(figures),
        reserved(&figures.node.ledger),
        caches(figures),
        starts(&figures.node.starts),
        zygotes(&figures.node.imports.zygotes),
    ];
    let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.iter().map(|part| format!("{}\n", part.trim_end())).collect::<Vec<_>>().join("\n")
}

fn head(figures: &Figures) -> String {
    let node = &figures.node;
    let calls = figures.calls;
    let count = |number: u64| text::count(number);
    format!(
        "instances  {} busy, {} idle (paused), {} prewarmed\n\
         workers    {} busy, {} idle\n\
         calls      {} running, {} succeeded, {} failed\n\
         queries    {} running\n\
         memory     {} (server and spawner)\n",
        node.busy,
        count(node.handlers.idle),
        node.prewarmed,
        node.busy_workers,
        count(node.workers.idle),
        count(calls.running),
        count(calls.succeeded),
        count(calls.failed),
        figures.queries,
        bytes(figures.memory_bytes),
    )
}

/// The amounts that are reserved of the host, by use.
fn reserved(ledger: &LedgerFigures) -> String {
    let row = |name: &str, memory, instances, cpu: u64| {
        let cores = format!("{:.1}", cpu as f64 / 1000.0);
        [name.to_owned(), bytes(memory), text::count(instances), cores].map(Some).to_vec()
    };
    let of_use = |one: &UseFigures| row(&one.name, one.memory_bytes, one.instances, one.cpu_millis);
    let mut rows: Vec<_> = ledger.uses.iter().map(of_use).collect();
    rows.push(row(
        "all",
        ledger.reserved_memory_bytes,
        ledger.reserved_instances,
        ledger.reserved_cpu_millis,
    ));
    let capacity =
        ["capacity".to_owned(), bytes(ledger.memory_bytes), text::count(ledger.instances)];
    rows.push(capacity.into_iter().chain([String::new()]).map(Some).collect());
    let table =
        draw(&["reserved", ">memory", ">sandboxes", ">cores"], &rows, TableLayout::stdout(0));
    format!(
        "{}\nroom       {} waiting, {} granted after waiting, {} refused\n",
        table.trim_end(),
        text::count(ledger.waiting),
        text::count(ledger.waited),
        text::count(ledger.refused),
    )
}

fn caches(figures: &Figures) -> String {
    let node = &figures.node;
    let PoolFigures { hits, misses, evicted, expired, idle, .. } = node.handlers;
    let imports = &node.imports;
    let installs = &node.installs;
    let kept = imports.zygotes.iter().filter(|zygote| zygote.kept).count();
    let columns = [
        cache(">handler", text::counted(idle, "instance"), node.handlers.bytes)
            .bounded(node.handlers.budget, evictions(evicted, expired))
            .rated(hits, 0, misses),
        cache(">import", text::counted(kept as u64, "zygote"), imports.bytes)
            .bounded(imports.budget, evictions(imports.evicted, 0))
            .rated(imports.hits, imports.partial, imports.bare),
        cache(">install", "packages".to_owned(), installs.bytes).rated(
            installs.environment_hits,
            0,
            installs.environment_misses,
        ),
    ];
    let headings: Vec<_> =
        ["cache"].into_iter().chain(columns.iter().map(|cache| cache.0)).collect();
    let rows: Vec<_> = METRICS
        .iter()
        .enumerate()
        .map(|(index, metric)| {
            let cells = columns.iter().map(|cache| cache.1[index].clone());
            [(*metric).to_owned()].into_iter().chain(cells).map(Some).collect()
        })
        .collect();
    draw(&headings, &rows, TableLayout::stdout(0))
}

/// The metrics of each cache, one per line, so that 80 columns are enough.
const METRICS: [&str; 8] =
    ["entries", "bytes", "budget", "hits", "partial", "misses", "hit rate", "evicted"];

/// A column: its heading, and the metrics of the cache.
struct Cache(&'static str, [String; METRICS.len()]);

fn cache(name: &'static str, entries: String, size: u64) -> Cache {
    let mut cells = [const { String::new() }; METRICS.len()];
    (cells[0], cells[1]) = (entries, bytes(size));
    Cache(name, cells)
}

impl Cache {
    fn bounded(mut self, budget: u64, evictions: String) -> Self {
        (self.1[2], self.1[7]) = (bytes(budget), evictions);
        self
    }

    fn rated(mut self, hits: u64, partial: u64, misses: u64) -> Self {
        for (cell, count) in self.1[3..6].iter_mut().zip([hits, partial, misses]) {
            *cell = text::count(count);
        }
        let all = hits + partial + misses;
        if all > 0 {
            self.1[6] = format!("{:.1} %", hits as f64 / all as f64 * 100.0);
        }
        self
    }
}

/// The numbers of instances evicted for memory, and of instances removed after their idle time.
fn evictions(evicted: u64, expired: u64) -> String {
    match (evicted, expired) {
        (evicted, 0) => text::count(evicted),
        (0, expired) => format!("{} idle", text::count(expired)),
        both => format!("{}, {} idle", text::count(both.0), text::count(both.1)),
    }
}

fn starts(starts: &[StartFigures]) -> String {
    let seen = starts.iter().filter(|start| start.count() > 0);
    let rows: Vec<_> = seen
        .map(|start| {
            let mean = text::micros(start.sum_us / start.count());
            [start.kind.name().to_owned(), text::count(start.count()), mean].map(Some).to_vec()
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    draw(&["start", ">count", ">mean"], &rows, TableLayout::stdout(0))
}

fn zygotes(zygotes: &[ZygoteFigures]) -> String {
    let mut rows = Vec::new();
    let roots = zygotes.iter().filter(|zygote| zygote.kept && zygote.parent.is_none());
    roots.for_each(|root| branch(root, zygotes, 0, &mut rows));
    for retired in zygotes.iter().filter(|zygote| !zygote.kept) {
        rows.push(row("retired".to_owned(), retired, String::new()));
    }
    if rows.is_empty() {
        return String::new();
    }
    let headings =
        ["zygote", "tenant", ">memory", ">imports", ">saves", ">forks", ">alive", "modules"];
    draw(&headings, &rows, TableLayout::stdout(0))
}

fn branch(
    zygote: &ZygoteFigures,
    all: &[ZygoteFigures],
    depth: usize,
    rows: &mut Vec<Vec<Option<String>>>,
) {
    let name = format!("{}{}", "  ".repeat(depth), zygote.id);
    let modules = match zygote.modules.as_slice() {
        _ if zygote.set_up => format!("(shared set-up) {}", zygote.modules.join(" ")),
        [] => "(bare interpreter)".to_owned(),
        modules => modules.join(" "),
    };
    rows.push(row(name, zygote, modules));
    for child in all.iter().filter(|child| child.kept && child.parent == Some(zygote.id)) {
        branch(child, all, depth + 1, rows);
    }
}

fn row(name: String, zygote: &ZygoteFigures, modules: String) -> Vec<Option<String>> {
    [
        name,
        zygote.tenant.clone(),
        bytes(zygote.bytes),
        text::micros(zygote.import_us),
        text::micros(zygote.saved_us as u64),
        text::count(zygote.forks),
        text::count(zygote.children.into()),
        clipped(&text::visible(&modules), modules_width()),
    ]
    .map(Some)
    .to_vec()
}

/// Width of the column of modules: the terminal's width without the other columns.
fn modules_width() -> usize {
    const OTHER_COLUMNS: usize = 69;
    match printer::terminal_width().filter(|_| printer::stdout_is_terminal()) {
        Some(width) => width.saturating_sub(OTHER_COLUMNS).max(8),
        None => usize::MAX,
    }
}

fn clipped(text: &str, columns: usize) -> String {
    match text.chars().count() <= columns {
        true => text.to_owned(),
        false => text.chars().take(columns - 1).chain(['…']).collect(),
    }
}

fn bytes(count: u64) -> String {
    ByteSize(count).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_fit_in_80_columns() {
        let mut figures = Figures::default();
        let handlers = &mut figures.node.handlers;
        (handlers.idle, handlers.bytes, handlers.budget) = (12_345, 1 << 40, 1 << 40);
        (handlers.evicted, handlers.expired) = (123_456, 123_456);
        let drawn = caches(&figures);
        assert!(drawn.lines().all(|line| line.chars().count() <= 80), "{drawn}");
        assert!(drawn.contains("123,456, 123,456 idle"), "{drawn}");
    }

    #[test]
    fn zygotes_are_listed_below_their_parents() {
        let one = |id, parent, modules: &[&str]| ZygoteFigures {
            id,
            parent,
            kept: true,
            modules: modules.iter().map(|module| (*module).to_owned()).collect(),
            ..ZygoteFigures::default()
        };
        let all = [one(1, None, &[]), one(3, None, &[]), one(4, Some(1), &["numpy", "pandas"])];
        let drawn = zygotes(&all);
        let lines: Vec<_> = drawn.lines().filter(|line| line.contains(['1', '3', '4'])).collect();
        assert!(lines[0].contains("(bare interpreter)"), "{drawn}");
        assert!(lines[1].contains("  4") && lines[1].contains("numpy pandas"), "{drawn}");
        assert_eq!(lines.len(), 3, "{drawn}");
    }
}
