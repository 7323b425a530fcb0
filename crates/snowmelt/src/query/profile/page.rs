//! The profile as a self-contained HTML page.
//!
//! Invariant: the page needs no other file. Its content security policy allows no requests, and
//! only its own script.

use std::fmt::Write;

use snowmelt_api::{PhaseSpan, Profile};
use snowmelt_types::{ByteSize, Digest};

use super::escape::Escaped;
use super::lanes_by_stage::{self, MANY};
use super::{cost, graph, lanes, operators, share, stages};
use crate::terminal::text;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The whole page.
pub fn page(profile: &Profile) -> String {
    // The query's id is random, so SQL text cannot contain the nonce.
    let nonce = Digest::of(&profile.query);
    let nonce = nonce.short();
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src 'unsafe-inline'; script-src 'nonce-{nonce}'\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\">\
         <title>Query profile · {}</title><style>{STYLE}</style></head><body>",
        Escaped(&profile.query)
    );
    for part in [
        header(profile),
        phases(profile),
        findings(profile),
        stages(profile),
        timeline(profile),
        cost(profile),
        trees(profile),
        texts(profile),
    ] {
        page.push_str(&part);
    }
    let _ = writeln!(
        page,
        "<footer>Snowmelt {}</footer><div id=\"tip\" hidden></div>\
         <script nonce=\"{nonce}\">{SCRIPT}</script></body></html>",
        env!("CARGO_PKG_VERSION")
    );
    page
}

fn header(profile: &Profile) -> String {
    let totals = &profile.totals;
    let read = ByteSize(totals.progress.bytes_read);
    let all = ByteSize(totals.bytes_total);
    let metrics = [
        (text::micros(profile.wall_us), "wall time".to_owned()),
        (text::count(profile.rows), "rows".to_owned()),
        (format!("{:.2} s", totals.function_seconds), "function time".to_owned()),
        (format!("{:.2} s", totals.cpu_seconds), "CPU time".to_owned()),
        (read.to_string(), format!("read of {all}")),
        (ByteSize(totals.bytes_exchanged).to_string(), "exchanged".to_owned()),
        (ByteSize(totals.peak_memory).to_string(), "peak memory".to_owned()),
        (format!("{} / {}", totals.cold, totals.warm), "cold / warm starts".to_owned()),
        (text::dollars(profile.cost.functions.total), "cost".to_owned()),
    ];
    let mut shown = format!(
        "<header><h1>Query profile</h1><p><code>{}</code> · {}</p></header><dl class=\"figures\">",
        Escaped(&profile.query),
        text::moment(profile.accepted_ms)
    );
    for (value, label) in metrics {
        let _ = write!(shown, "<div><dd>{value}</dd><dt>{label}</dt></div>");
    }
    shown + "</dl>"
}

fn phases(profile: &Profile) -> String {
    let taken = |phase: &PhaseSpan| phase.to_us.saturating_sub(phase.from_us);
    let mut bar = String::new();
    let mut legend = String::new();
    for phase in profile.phases.iter().filter(|phase| taken(phase) > 0) {
        let name = Escaped(&phase.phase);
        let time = text::micros(taken(phase));
        let percent = share(taken(phase), profile.wall_us) * 100.0;
        let label = if percent > 9.0 { phase.phase.as_str() } else { "" };
        let _ = write!(
            bar,
            "<div class=\"p-{name}\" style=\"flex-grow:{percent:.3}\" \
             data-tip=\"{name}\n{time}, {percent:.1}%\">{}</div>",
            Escaped(label)
        );
        let _ = write!(legend, "<span><i class=\"p-{name}\"></i>{name} <b>{time}</b></span>");
    }
    section(
        "Where the time went",
        &format!("<div class=\"phases\">{bar}</div><p class=\"legend\">{legend}</p>"),
    )
}

fn findings(profile: &Profile) -> String {
    if profile.findings.is_empty() {
        return section("Findings", "<p class=\"none\">No findings.</p>");
    }
    let mut shown = String::from("<ol class=\"findings\">");
    for finding in &profile.findings {
        let _ = write!(
            shown,
            "<li><h3>{}</h3><p>{}</p><p class=\"advice\">{}</p></li>",
            Escaped(&finding.title),
            Escaped(&finding.evidence),
            Escaped(&finding.advice)
        );
    }
    section("Findings", &(shown + "</ol>"))
}

fn timeline(profile: &Profile) -> String {
    if profile.lanes.is_empty() {
        return String::new();
    }
    let legend = lanes::legend(profile);
    if profile.lanes.len() > MANY {
        let hint = "<p class=\"note\">Open a stage to see its sandboxes.</p>";
        let lanes = lanes_by_stage::timeline(profile);
        return section("Timeline", &format!("{legend}{lanes}{hint}"));
    }
    let lanes = lanes::timeline(profile);
    let details = details("As a table", &lanes::table(profile));
    section("Timeline", &format!("{legend}{lanes}{details}"))
}

fn stages(profile: &Profile) -> String {
    if profile.stages.is_empty() {
        return String::new();
    }
    let table = details("As a table", &stages::html_table(profile));
    section("Stages", &format!("{}{table}", graph::graph(profile)))
}

fn cost(profile: &Profile) -> String {
    match profile.cost.prices.name.is_empty() {
        true => String::new(),
        false => section("Cost", &cost::html(&profile.cost)),
    }
}

fn trees(profile: &Profile) -> String {
    let workers = &profile.operators;
    let driver = &profile.driver_operators;
    let longest = operators::longest(workers.iter().chain(driver));
    let mut shown = String::new();
    if !workers.is_empty() {
        shown += &operators::tree("workers, summed over the tasks", workers, longest);
    }
    if !driver.is_empty() {
        shown += &operators::tree("driver", driver, longest);
    }
    if shown.is_empty() { shown } else { section("Operators", &shown) }
}

fn texts(profile: &Profile) -> String {
    let text = |text: &str| format!("<pre>{}</pre>", Escaped(text.trim_end()));
    let mut shown = section("SQL", &text(&profile.sql));
    for (title, plan) in
        [("Worker plan", &profile.worker_plan), ("Driver plan", &profile.driver_plan)]
    {
        if !plan.is_empty() {
            shown += &details(title, &text(plan));
        }
    }
    shown
}

fn section(title: &str, body: &str) -> String {
    format!("<section><h2>{title}</h2>{body}</section>")
}

fn details(title: &str, body: &str) -> String {
    format!("<details><summary>{title}</summary><div class=\"wide\">{body}</div></details>")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::profile::sample;

    /// Void elements: they have no end tag.
    const VOID: [&str; 2] = ["meta", "br"];
    /// Elements whose end tag is optional.
    const IMPLIED: [&str; 4] = ["tr", "td", "th", "html"];

    /// Checks that every element is closed, in order.
    fn assert_well_formed(page: &str) {
        let mut open: Vec<&str> = Vec::new();
        let mut rest = page;
        while let Some(begin) = rest.find('<') {
            let end = begin + rest[begin..].find('>').expect("a tag is closed");
            let tag = &rest[begin + 1..end];
            rest = &rest[end + 1..];
            let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap();
            if tag.starts_with('!') || VOID.contains(&name) || IMPLIED.contains(&name) {
                continue;
            }
            if tag.starts_with('/') {
                assert_eq!(open.pop(), Some(name), "before {rest:.60}");
            } else if !tag.ends_with('/') {
                open.push(name);
                if let "style" | "script" = name {
                    rest = &rest[rest.find(&format!("</{name}>")).expect("it is closed")..];
                }
            }
        }
        assert!(open.is_empty(), "{open:?}");
    }

    #[test]
    fn is_well_formed_and_escapes_the_sql() {
        let page = page(&sample::profile());
        assert_well_formed(&page);
        assert_eq!(page.matches("<script").count(), 1);
        assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
        if let Ok(path) = std::env::var("SNOWMELT_SAMPLE_PAGE") {
            std::fs::write(path, page).unwrap();
        }
    }

    #[test]
    fn the_page_refers_to_no_other_file() {
        let page = page(&sample::profile());
        for reference in ["http://", "https://", "src=", "href=", "@import", "url("] {
            assert!(!page.contains(reference), "{reference}");
        }
    }

    #[test]
    fn the_page_of_fifty_stages_of_256_tasks_is_well_formed_and_not_large() {
        let page = page(&sample::large());
        assert_well_formed(&page);
        assert!(page.len() < 10 << 20, "{}", page.len());
        if let Ok(path) = std::env::var("SNOWMELT_LARGE_PAGE") {
            std::fs::write(path, page).unwrap();
        }
    }

    #[test]
    fn the_page_of_an_empty_profile_is_well_formed() {
        assert_well_formed(&page(&Profile::default()));
    }
}
