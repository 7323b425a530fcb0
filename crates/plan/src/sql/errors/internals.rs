//! Messages of the planner without the structures that it writes into them.
//!
//! For what it cannot plan, DataFusion prints its syntax tree: `InSubquery(InSubquery { expr: …`.
//! Here, such a message ends where the tree begins, and names what the user wrote.

use arrow::datatypes::DataType;
use datafusion::common::Column;
use snowmelt_execute::sql_semantics::sql_name;
use snowmelt_types::{Code, ErrorReport};

/// The names of parts of a syntax tree, each with its words in SQL.
const WORDS: [(&str, &str); 18] = [
    ("InSubquery", "IN with a subquery in this place"),
    ("Exists", "EXISTS in this place"),
    ("ScalarSubquery", "a subquery as a value in this place"),
    ("SetComparison", "ANY or ALL with a subquery in this place"),
    ("OuterReferenceColumn", "a column of the outer query in this place"),
    ("GroupingSet", "a grouping set in this place"),
    ("WindowFunction", "a window function in this place"),
    ("AggregateFunction", "an aggregate in this place"),
    ("Wildcard", "* in this place"),
    ("Tuple", "a row of several values in this place"),
    ("AsOf", "ASOF JOIN"),
    ("Pivot", "PIVOT"),
    ("Unpivot", "UNPIVOT"),
    ("Lambda", "a lambda function"),
    ("CompositeAccess", "access to a member of a row"),
    ("Collate", "COLLATE"),
    ("Interval", "this form of INTERVAL"),
    ("JsonTable", "JSON_TABLE"),
];

/// A message as a user can read it.
pub(crate) fn without_internals(text: &str) -> String {
    if text.contains("ScalarSubquery(<subquery>)") {
        return "a subquery as a value in this place is not supported".to_owned();
    }
    if text.starts_with("Unsupported binary operator") {
        return "an operator of the SQL is not supported".to_owned();
    }
    if text.starts_with("Dot access not supported") {
        return "a function behind a point is not supported: write f(x) instead of x.f()"
            .to_owned();
    }
    if let Some((from, to)) =
        text.strip_prefix("Unsupported CAST from ").and_then(|types| types.split_once(" to "))
    {
        return format!("{} cannot be cast to {}", type_in(from), type_in(to));
    }
    let Some((begin, name)) = tree(text) else { return text.to_owned() };
    if let Some((_, words)) = WORDS.iter().find(|(known, _)| *known == name) {
        return format!("{words} is not supported");
    }
    let said = text[..begin].trim_end_matches([' ', ':', ',', '[', '(', '\'', '"', '`']);
    let said = said.trim_end_matches(" in sqltorel").trim_end_matches(" ast node");
    let shown: String = text[begin..].chars().take_while(|c| c.is_ascii_alphanumeric()).collect();
    match said.is_empty() || said == "Unsupported" {
        true => format!("a part of the SQL ({}) is not supported", spaced(&shown)),
        false => format!("{said} ({})", spaced(&shown)),
    }
}

/// The name in SQL of a type that the planner has written.
fn type_in(text: &str) -> String {
    match text.trim().parse::<DataType>() {
        Ok(known) => sql_name(&known),
        Err(_) if text.starts_with("Struct") => "a struct".to_owned(),
        Err(_) if text.starts_with("Map") => "a map".to_owned(),
        Err(_) => "a value of this type".to_owned(),
    }
}

/// True for a column of a table that DataFusion made of a subquery.
pub(crate) fn is_generated(column: &Column) -> bool {
    let table = column.relation.as_ref().map(|table| table.table());
    table.is_some_and(|name| name.starts_with("__correlated_sq") || name.starts_with("__scalar_sq"))
}

/// The error of a subquery that refers to the outer query where that cannot be a join.
pub(crate) fn correlated_subquery() -> ErrorReport {
    let message = "a subquery that refers to the outer query is not supported in this place";
    ErrorReport::new(Code::PLAN_UNSUPPORTED, message).hint("write it as a join")
}

/// The error of an aggregate or of groups whose message speaks of the planner's own functions, and
/// the name to look for in the SQL.
pub(crate) fn wrong_aggregate(text: &str) -> Option<(ErrorReport, Option<String>)> {
    let of = |code, message: &str, hint: &str, name: Option<&str>| {
        let report = ErrorReport::new(code, message).hint(hint);
        Some((report, name.map(str::to_owned)))
    };
    if text.contains("'approx_percentile_cont'") || text.contains("approx_percentile_cont requires")
    {
        let message = "approximate quantiles are those of numbers, by a number between 0 and 1";
        let hint = "quantile_disc(x, 0.5) takes values of all types";
        return of(Code::SQL_TYPE, message, hint, None);
    }
    if text.contains("min/max was called with") {
        let name = if text.contains("'max'") { "max" } else { "min" };
        let message = format!("`{name}` takes a column, and perhaps how many values it gives");
        let hint = "of several columns, greatest and least give one";
        return of(Code::SQL_TYPE, &message, hint, Some(name));
    }
    if let Some((function, got)) = text.split_once(" expected a list as first argument, got ") {
        let function = function.rsplit(' ').next().unwrap_or(function).replace("array_", "list_");
        let got = got.trim().parse().map_or("another type".to_owned(), |got| sql_name(&got));
        let message = format!("`{function}` takes a list, but the query gives {got}");
        let hint = "string_split(x, ',') makes a list of a text";
        return of(Code::SQL_TYPE, &message, hint, Some(&function));
    }
    if let Some((clause, rest)) = text.split_once(": While expanding wildcard, column \"")
        && let Some((name, _)) = rest.split_once("\" must appear in the GROUP BY clause")
    {
        let clause = clause.split_whitespace().skip_while(|word| *word != "in").nth(1);
        let clause = clause.map(|clause| format!(" of {clause}")).unwrap_or_default();
        let message = format!("`{name}`{clause} is neither in GROUP BY nor in an aggregate");
        let hint = "group by it, or take one of its values with any_value";
        return of(Code::SQL_SYNTAX, &message, hint, None);
    }
    if let Some((before, _)) = text.split_once(" excluding ") {
        let function = before.rsplit(['\'', '`']).next().unwrap_or(before);
        let function = function.split(' ').next().unwrap_or(function);
        let message = format!("`{function}` with EXCLUDE takes other arguments");
        let hint = "it takes the arguments that it has without EXCLUDE";
        return of(Code::SQL_TYPE, &message, hint, Some(function));
    }
    None
}

/// DataFusion's message names each type that a function takes, and the type of the argument.
pub(crate) fn wrong_arguments(function: &str, text: &str) -> ErrorReport {
    let takes = text.split(" requires ").skip(1).filter_map(|rest| rest.split(',').next());
    let plain = |name: &str| match name.parse::<DataType>() {
        Ok(known) => sql_name(&known),
        // A class of types, such as `Decimal`.
        Err(_) => name.to_uppercase(),
    };
    let takes = takes.map(plain).collect::<Vec<_>>().join(" or ");
    let got = text.split_once("DataType: ").and_then(|(_, rest)| {
        // The name of a type may have parentheses itself.
        let ends = rest.match_indices(')').map(|(end, _)| end);
        ends.filter_map(|end| rest[..end].parse().ok()).next()
    });
    let got = got.map_or("another type".to_owned(), |got: DataType| sql_name(&got));
    let message = format!("`{function}` takes {takes}, but the query gives {got}");
    ErrorReport::new(Code::SQL_TYPE, message).hint("convert the argument with CAST(… AS …)")
}

/// The name that two columns of a SELECT are given, and the error for it.
pub(crate) fn same_alias(text: &str) -> Option<(String, ErrorReport)> {
    let (_, rest) = text.split_once("require unique expression names but the expression \"")?;
    let (expression, _) = rest.split_once("\" at position")?;
    let name = expression.rsplit(" AS ").next()?.trim_matches('"').to_owned();
    let message = format!("two columns of one SELECT have the name `{name}`");
    let report = ErrorReport::new(Code::SQL_NAME, message);
    Some((name, report.hint("give one of them another name: … AS name")))
}

/// Returns the byte at which a structure of the program begins, and the name of the structure: a
/// name in capitals and small letters with fields in braces, or with another such name in parentheses.
fn tree(text: &str) -> Option<(usize, &str)> {
    let mut begins = text.char_indices().filter(|(at, c)| {
        let before = text[..*at].chars().next_back();
        c.is_ascii_uppercase() && !before.is_some_and(|c| c.is_alphanumeric() || c == '_')
    });
    begins.find_map(|(begin, _)| {
        let end = text[begin..].find(|c: char| !c.is_ascii_alphanumeric())? + begin;
        let name = &text[begin..end];
        let rest = &text[end..];
        let is_name = name.chars().any(|c| c.is_ascii_lowercase());
        let inner = rest.strip_prefix('(');
        let has_tree = inner.is_some_and(|inner| {
            let inner = inner.trim_start_matches('[');
            let word = inner.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(inner.len());
            inner.starts_with(|c: char| c.is_ascii_uppercase())
                && (inner[word..].starts_with(" {") || inner[word..].starts_with('('))
        });
        (is_name && (rest.starts_with(" {") || has_tree)).then_some((begin, name))
    })
}

/// `AtTimeZone` as `at time zone`.
fn spaced(name: &str) -> String {
    let mut words = String::with_capacity(name.len() + 4);
    for (at, c) in name.char_indices() {
        if c.is_ascii_uppercase() && at > 0 {
            words.push(' ');
        }
        words.push(c.to_ascii_lowercase());
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_ends_before_a_tree() {
        for (text, expected) in [
            (
                "Physical plan does not support logical expression InSubquery(InSubquery { expr: \
                 Column(Column { relation: None }) })",
                "IN with a subquery in this place is not supported",
            ),
            (
                "Unsupported ast node in sqltorel: Collate { expr: Identifier(Ident { value: \"a\" }) }",
                "COLLATE is not supported",
            ),
            (
                "Unsupported ast node in sqltorel: AtTimeZone { timestamp: Value(ValueWithSpan { } }",
                "a part of the SQL (at time zone) is not supported",
            ),
            ("compound identifier: [Ident { value: \"a\" }]", "compound identifier (ident)"),
            ("Unsupported JOIN operator AsOf { match_condition: x }", "ASOF JOIN is not supported"),
        ] {
            assert_eq!(without_internals(text), expected);
        }
    }

    #[test]
    fn other_messages_stay_as_they_are() {
        for text in [
            "cannot compare Int64 with Utf8",
            "Cannot cast string 'x' to value of Int32 type",
            "sum takes Decimal(10, 2) or Float64",
            "List(Int64) has no order",
        ] {
            assert_eq!(without_internals(text), text);
        }
    }
}
