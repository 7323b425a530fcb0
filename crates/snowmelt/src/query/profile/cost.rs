//! The cost of a query, as text and as a section of the page.

use std::fmt::Write;

use snowmelt_api::{Bill, Cost};

use super::escape::Escaped;
use crate::output::{Cell, TableLayout, draw};
use crate::terminal::text;

/// A part of a bill.
type BillPart = fn(&Bill) -> f64;

const PARTS: [(&str, BillPart); 4] = [
    ("requests", |bill| bill.requests),
    ("invocations", |bill| bill.invocations),
    ("compute", |bill| bill.compute),
    ("total", |bill| bill.total),
];

/// Writes both bills as text for a terminal.
pub fn table(cost: &Cost, shown: &mut String) {
    if cost.prices.name.is_empty() {
        return;
    }
    let row = |name: &str, part: BillPart| -> Vec<Cell> {
        let amounts = [&cost.functions, &cost.machines].map(|bill| text::dollars(part(bill)));
        [name.to_owned()].into_iter().chain(amounts).map(Some).collect()
    };
    let machine = format!(">{}", cost.prices.machine);
    let rows: Vec<_> = PARTS.into_iter().map(|(name, part)| row(name, part)).collect();
    let headings = ["cost", ">functions", machine.as_str()];
    let _ = write!(shown, "\n{}", draw(&headings, &rows, TableLayout::unlimited()));
    let _ = writeln!(shown, "  {}\n  {}", used(cost), prices(cost));
}

/// Writes both bills as HTML for the page.
pub fn html(cost: &Cost) -> String {
    let mut shown = format!(
        "<table class=\"cost\"><thead><tr><th>US dollars<th class=n>functions<th class=n>{}\
         </thead><tbody>",
        Escaped(&cost.prices.machine)
    );
    for (name, part) in PARTS {
        let [functions, machine] =
            [&cost.functions, &cost.machines].map(|bill| text::dollars(part(bill)));
        let _ = write!(shown, "<tr><td>{name}<td class=n>{functions}<td class=n>{machine}");
    }
    let used = used(cost);
    let prices = prices(cost);
    let _ = write!(
        shown,
        "</tbody></table><p class=\"note\">{}<br>{}</p>",
        Escaped(used),
        Escaped(prices)
    );
    shown
}

/// The items that are paid for, in words.
fn used(cost: &Cost) -> String {
    let requests = &cost.requests;
    let kinds = [
        (requests.scan_reads, "reads by scans"),
        (requests.hedged, "of them sent again"),
        (requests.plan_reads, "reads for planning"),
        (requests.lists, "lists"),
        (requests.exchange_reads, "reads by exchanges"),
        (requests.exchange_writes, "writes by exchanges"),
    ];
    let kinds = kinds.into_iter().filter(|(count, _)| *count > 0);
    let kinds: Vec<String> =
        kinds.map(|(count, kind)| format!("{} {kind}", text::count(count))).collect();
    let requests = match kinds.is_empty() {
        true => "no requests to object storage".to_owned(),
        false => kinds.join(", "),
    };
    let invocations = text::counted(cost.invocations, "invocation");
    format!(
        "{requests}; {invocations}, {:.2} GiB-seconds, {:.2} CPU seconds",
        cost.gib_seconds, cost.cpu_seconds
    )
}

/// The name and the date of the price list.
fn prices(cost: &Cost) -> String {
    match cost.prices.date.as_str() {
        "" => format!("prices: {}", cost.prices.name),
        date => format!("prices: {} of {date}", cost.prices.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::profile::sample;

    #[test]
    fn every_kind_of_request_is_named_once() {
        let cost = sample::cost();
        let shown = used(&cost);
        for part in ["1,088 reads by scans", "9 reads for planning", "1 lists", "64 writes by"] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert!(used(&Cost::default()).starts_with("no requests"));
    }

    #[test]
    fn the_list_and_its_date_are_named() {
        let cost = sample::cost();
        assert!(prices(&cost).ends_with("us-east-1 of 2025-06-30"));
        assert!(html(&cost).contains("&lt;m6i&gt;"), "{}", html(&cost));
    }
}
