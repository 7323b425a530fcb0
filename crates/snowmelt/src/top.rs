//! `snowmelt top`: instances, caches and the tree of zygotes, drawn again every second.
//!
//! Invariant: on a terminal a picture replaces the one before; elsewhere it is printed once.

use std::time::Duration;

use snowmelt_control::api::Figures;
use snowmelt_node::{PoolFigures, StartFigures, ZygoteFigures};
use snowmelt_types::{ByteSize, Code};

use crate::args::{ShowFormat, TopArgs};
use crate::config::Config;
use crate::failure::Outcome;
use crate::output::{Layout, draw};
use crate::platform::{self, Platform};
use crate::printer::{self, Printer};
use crate::{list, server, text};

const DRAWN_EVERY: Duration = Duration::from_secs(1);
/// To the upper left corner, and nothing below it.
const CLEAR: &str = "\x1b[H\x1b[J";

/// Shows what the platform does.
///
/// # Errors
/// `SM-0503` where none is running.
pub fn run(args: &TopArgs, config: &Config, printer: Printer) -> Outcome {
    let socket = args.server.as_deref().unwrap_or(&config.socket.value);
    let json = args.output == ShowFormat::Json;
    let live = !args.once && !json && printer::stdout_is_terminal();
    let shown =
        platform::with(Platform::server(Some(socket), config), printer, async |client, _| {
            loop {
                let figures = client.figures().await?;
                match (json, live) {
                    (true, _) => printer::print(&list::json(&figures)?)?,
                    (false, true) => printer::print(&format!("{CLEAR}{}", picture(&figures)))?,
                    (false, false) => printer::print(&picture(&figures))?,
                }
                if !live {
                    return Ok(0);
                }
                tokio::time::sleep(DRAWN_EVERY).await;
            }
        });
    match shown {
        // Ctrl-C is how one leaves.
        Err(failure) if live && failure.report.code == Code::CANCELLED.code => Ok(0),
        shown => shown.map_err(|failure| server::explained(failure, socket)),
    }
}

fn picture(figures: &Figures) -> String {
    let parts = [
        head(figures),
        caches(figures),
        starts(&figures.node.starts),
        zygotes(&figures.node.imports.zygotes),
    ];
    let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.iter().map(|part| format!("{}\n", part.trim_end())).collect::<Vec<_>>().join("\n")
}

fn head(figures: &Figures) -> String {
    let (node, calls) = (&figures.node, figures.calls);
    let count = |number: u64| text::count(number);
    format!(
        "instances  {} busy, {} idle (paused), {} parked\n\
         workers    {} busy, {} idle\n\
         calls      {} running, {} succeeded, {} failed\n\
         queries    {} running\n\
         memory     {} (server and spawner)\n",
        node.busy,
        count(node.handlers.idle),
        node.parked,
        node.busy_workers,
        count(node.workers.idle),
        count(calls.running),
        count(calls.succeeded),
        count(calls.failed),
        figures.queries,
        bytes(figures.memory_bytes),
    )
}

fn caches(figures: &Figures) -> String {
    let node = &figures.node;
    let PoolFigures { hits, misses, evicted, expired, idle, .. } = node.handlers;
    let (imports, installs) = (&node.imports, &node.installs);
    let kept = imports.zygotes.iter().filter(|zygote| zygote.kept).count();
    let rows = [
        cache("handler", text::counted(idle, "instance"), node.handlers.bytes)
            .bounded(node.handlers.budget, let_go(evicted, expired))
            .rated(hits, 0, misses),
        cache("import", text::counted(kept as u64, "zygote"), imports.bytes)
            .bounded(imports.budget, let_go(imports.evicted, 0))
            .rated(imports.hits, imports.partial, imports.bare),
        cache("install", "packages".to_owned(), installs.bytes).rated(
            installs.environment_hits,
            0,
            installs.environment_misses,
        ),
    ];
    let rows: Vec<_> = rows.into_iter().map(|row| row.0.to_vec()).collect();
    draw(
        &[
            "cache",
            "holds",
            ">bytes",
            ">budget",
            ">hits",
            ">in part",
            ">misses",
            ">hit rate",
            ">let go",
        ],
        &rows,
        Layout::stdout(0),
    )
}

struct Cache([Option<String>; 9]);

fn cache(name: &str, holds: String, held: u64) -> Cache {
    let mut cells = [const { None }; 9];
    cells[0] = Some(name.to_owned());
    cells[1] = Some(holds);
    cells[2] = Some(bytes(held));
    // A null would be shown by a word.
    cells[3..].fill(Some(String::new()));
    Cache(cells)
}

impl Cache {
    fn bounded(mut self, budget: u64, let_go: String) -> Self {
        self.0[3] = Some(bytes(budget));
        self.0[8] = Some(let_go);
        self
    }

    fn rated(mut self, hits: u64, partial: u64, misses: u64) -> Self {
        for (cell, count) in self.0[4..7].iter_mut().zip([hits, partial, misses]) {
            *cell = Some(text::count(count));
        }
        let all = hits + partial + misses;
        if all > 0 {
            self.0[7] = Some(format!("{:.1} %", hits as f64 / all as f64 * 100.0));
        }
        self
    }
}

/// For room, and because the idle time was over.
fn let_go(evicted: u64, expired: u64) -> String {
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
    draw(&["start", ">count", ">mean"], &rows, Layout::stdout(0))
}

fn zygotes(zygotes: &[ZygoteFigures]) -> String {
    let mut rows = Vec::new();
    let roots = zygotes.iter().filter(|zygote| zygote.kept && zygote.parent.is_none());
    roots.for_each(|root| branch(root, zygotes, 0, &mut rows));
    for retired in zygotes.iter().filter(|zygote| !zygote.kept) {
        rows.push(row("let go".to_owned(), retired, String::new()));
    }
    if rows.is_empty() {
        return String::new();
    }
    let headings =
        ["zygote", "tenant", ">memory", ">imports", ">saves", ">forks", ">alive", "modules"];
    draw(&headings, &rows, Layout::stdout(0))
}

fn branch(
    zygote: &ZygoteFigures,
    all: &[ZygoteFigures],
    depth: usize,
    rows: &mut Vec<Vec<Option<String>>>,
) {
    let name = format!("{}{}", "  ".repeat(depth), zygote.id);
    let modules = match zygote.modules.as_slice() {
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
        text::visible(&modules).into_owned(),
    ]
    .map(Some)
    .to_vec()
}

fn bytes(count: u64) -> String {
    ByteSize(count).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zygotes_stand_below_what_they_were_grown_from() {
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
