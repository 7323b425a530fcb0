//! Formats of times as PostgreSQL writes them: `YYYY-MM-DD`.
//!
//! DataFusion's `to_char` takes formats with `%`, and gives all else as it is written.

use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments,
};

use super::text;
use crate::sql::semantics::quoted;

/// Parts of templates, the longer ones first.
const PARTS: [(&str, &str); 16] = [
    ("HH24", "%H"),
    ("HH12", "%I"),
    ("YYYY", "%Y"),
    ("DDD", "%j"),
    ("Mon", "%b"),
    ("AM", "%p"),
    ("DD", "%d"),
    ("Dy", "%a"),
    ("HH", "%I"),
    ("MI", "%M"),
    ("MM", "%m"),
    ("MS", "%3f"),
    ("PM", "%p"),
    ("SS", "%S"),
    ("US", "%6f"),
    ("YY", "%y"),
];

const FUNCTIONS: [&str; 3] = ["to_char", "to_date", "to_timestamp"];

/// Gives a function of times, whose second argument is a template, the format that it takes.
pub(super) fn translate(name: &str, function: &mut Function) {
    if !FUNCTIONS.contains(&name) {
        return;
    }
    let FunctionArguments::List(list) = &mut function.args else { return };
    if let [_, FunctionArg::Unnamed(FunctionArgExpr::Expr(format))] = list.args.as_mut_slice()
        && let Some(written) = written(format)
    {
        *format = written;
    }
}

fn written(format: &Expr) -> Option<Expr> {
    format_of(text(format)?).map(|format| quoted(&format))
}

/// The format of a template. `None` if it is none, or has a part that is not known.
fn format_of(template: &str) -> Option<String> {
    let mut format = String::new();
    let mut rest = template;
    while let Some(next) = rest.chars().next() {
        let part = PARTS.iter().find(|(part, _)| rest.starts_with(part));
        rest = match part {
            Some((part, meaning)) => {
                format.push_str(meaning);
                &rest[part.len()..]
            }
            None if next.is_alphanumeric() || matches!(next, '%' | '"') => return None,
            None => {
                format.push(next);
                &rest[next.len_utf8()..]
            }
        };
    }
    Some(format).filter(|format| format != template)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_formats() {
        for (template, expected) in [
            ("YYYY-MM-DD", Some("%Y-%m-%d")),
            ("DD.MM.YY HH24:MI:SS.US", Some("%d.%m.%y %H:%M:%S.%6f")),
            ("Dy, DD Mon YYYY HH12 AM", Some("%a, %d %b %Y %I %p")),
            ("%Y-%m-%d", None),
            ("YYYY\"x\"", None),
            ("Month", None),
            ("YYYYY", None),
            ("-", None),
        ] {
            assert_eq!(format_of(template).as_deref(), expected, "{template}");
        }
    }
}
