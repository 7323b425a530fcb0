//! The operator trees of the profile page, with rows and time of each operator.

use std::fmt::Write;

use snowmelt_wire::OperatorMetric;

use super::escape::Escaped;
use super::share;
use crate::terminal::text;

/// Draws a tree; `longest` is the time of a full bar, so that two trees can be compared.
pub fn tree(title: &str, operators: &[OperatorMetric], longest: u64) -> String {
    let mut shown = format!(
        "<table class=\"tree\"><thead><tr><th>{title}<th class=n>rows<th class=n>time\
         <th class=\"bar\"></thead><tbody>"
    );
    for operator in operators {
        let (name, detail) = operator.name.split_once(": ").unwrap_or((&operator.name, ""));
        let _ = write!(
            shown,
            "<tr><td style=\"--depth:{}\" data-tip=\"{}\"><b>{}</b> <span>{}</span>\
             <td class=n>{}<td class=n>{}<td class=\"bar\"><i style=\"width:{:.1}%\"></i>",
            operator.depth,
            Escaped(&operator.name),
            Escaped(name),
            Escaped(detail),
            text::count(operator.rows),
            text::micros(operator.compute_nanos / 1000),
            share(operator.compute_nanos, longest) * 100.0,
        );
    }
    shown + "</tbody></table>"
}

/// The longest time of one operator.
pub fn longest<'a>(operators: impl IntoIterator<Item = &'a OperatorMetric>) -> u64 {
    operators.into_iter().map(|operator| operator.compute_nanos).max().unwrap_or(0)
}
