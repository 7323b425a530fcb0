//! Error reports for wrong SQL: the line, a caret under the position, and similar names.

use std::collections::BTreeMap;

use datafusion::common::{Column, SchemaError};
use datafusion::error::DataFusionError;
use datafusion::execution::session_state::SessionState;
use datafusion::sql::sqlparser::parser::ParserError;
use snowmelt_execute::udf::refused_call;
use snowmelt_types::{Code, ErrorReport, Report, SourceLocation};

use super::function_names::function_names;
use super::internals::{
    correlated_subquery, is_generated, same_alias, without_internals, wrong_aggregate,
    wrong_arguments,
};
use crate::Error;
use crate::sql::equivalents::{of_unknown_function, of_wrong_text};

/// Functions in FROM whose column may have another name than theirs.
const SERIES: [&str; 3] = ["generate_series", "range", "unnest"];

/// A position in the SQL: line and column, both from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Position {
    line: usize,
    column: usize,
}

/// The error for text that is not valid SQL.
pub(crate) fn syntax(error: &DataFusionError, sql: &str) -> Error {
    let text = match error.find_root() {
        DataFusionError::SQL(error, _) => match error.as_ref() {
            ParserError::ParserError(text) | ParserError::TokenizerError(text) => text.clone(),
            ParserError::RecursionLimitExceeded => "it is nested too deeply".to_owned(),
        },
        other => other.strip_backtrace(),
    };
    let (what, position) = split_position(&text);
    let message = format!("the SQL cannot be parsed: {what}");
    let mut report = ErrorReport::new(Code::SQL_SYNTAX, message);
    report.hint = of_wrong_text(&what).map(str::to_owned);
    Error::Sql(Box::new(with_caret(report, sql, Some(position.unwrap_or_else(|| end_of(sql))))))
}

/// An error of a table's location, with the caret under its name in FROM.
pub(crate) fn location_error(error: Error, name: &str, sql: &str) -> Error {
    let report = error.report();
    Error::Sql(Box::new(with_caret(report, sql, find_name(sql, name))))
}

/// The report of an error in planning. `None` if the error is not about the SQL.
pub(crate) fn plan(
    error: &DataFusionError,
    sql: &str,
    state: &SessionState,
    given: &BTreeMap<String, String>,
) -> Option<ErrorReport> {
    let spanned = span(error);
    let (report, name) = explain(error, state, given)?;
    let position = spanned.or_else(|| name.and_then(|name| find_name(sql, &name)));
    Some(with_caret(report, sql, position))
}

/// The report and the name to look for in the SQL.
fn explain(
    error: &DataFusionError,
    state: &SessionState,
    given: &BTreeMap<String, String>,
) -> Option<(ErrorReport, Option<String>)> {
    match error.find_root() {
        DataFusionError::SchemaError(error, _) => schema(error),
        DataFusionError::Plan(text) => Some(plan_text(text, state, given)),
        DataFusionError::NotImplemented(text) => {
            let report = ErrorReport::new(Code::PLAN_UNSUPPORTED, without_internals(text));
            let name = between(text, "`", "`").map(str::to_owned);
            Some((report.hint("write the query without it"), name))
        }
        DataFusionError::ArrowError(error, _) => {
            Some((ErrorReport::new(Code::SQL_TYPE, error.to_string()), None))
        }
        DataFusionError::Execution(text) => {
            Some((ErrorReport::new(Code::SQL_TYPE, without_internals(text)), None))
        }
        DataFusionError::Collection(errors) => {
            errors.first().and_then(|e| explain(e, state, given))
        }
        _ => None,
    }
}

fn schema(error: &SchemaError) -> Option<(ErrorReport, Option<String>)> {
    match error {
        SchemaError::FieldNotFound { field, .. } if is_generated(field) => {
            Some((correlated_subquery(), None))
        }
        SchemaError::FieldNotFound { field, valid_fields } => {
            let columns: Vec<String> = valid_fields.iter().map(|f| f.name.clone()).collect();
            let tables = valid_fields.iter().filter_map(|f| Some(f.relation.as_ref()?.to_string()));
            let report = match unknown_qualifier(field, tables.collect()) {
                Some(report) => report,
                None if SERIES.contains(&field.name.as_str()) => {
                    let message = format!("there is no column `{}`", field.name);
                    let hint = "the only column of unnest, range and generate_series has the name of its table: \
                                SELECT r FROM range(3) AS r";
                    ErrorReport::new(Code::SQL_NAME, message).hint(hint)
                }
                None => {
                    let message = format!("there is no column `{}`", field.name);
                    unknown_name(message, &field.name, columns, "the columns are")
                }
            };
            Some((report, Some(field.name.clone())))
        }
        SchemaError::AmbiguousReference { field } => {
            let message = format!("the column `{}` is in more than one table", field.name);
            let report = ErrorReport::new(Code::SQL_NAME, message);
            Some((report.hint("write its table before it: t.column"), Some(field.name.clone())))
        }
        SchemaError::DuplicateQualifiedField { name, .. }
        | SchemaError::DuplicateUnqualifiedField { name } => {
            let report =
                ErrorReport::new(Code::SQL_NAME, format!("two columns are named `{name}`"));
            Some((report.hint("give one of them another name with AS"), Some(name.clone())))
        }
    }
}

fn unknown_qualifier(field: &Column, mut tables: Vec<String>) -> Option<ErrorReport> {
    let wanted = field.relation.as_ref()?.to_string();
    tables.dedup();
    if tables.is_empty() || tables.contains(&wanted) {
        return None;
    }
    let message = format!("there is no table `{wanted}` for the column `{}`", field.name);
    Some(unknown_name(message, &wanted, tables, "the tables are"))
}

fn plan_text(
    text: &str,
    state: &SessionState,
    given: &BTreeMap<String, String>,
) -> (ErrorReport, Option<String>) {
    if let Some(refusal) = refused_call(text) {
        let name = refusal.split('`').nth(1).map(str::to_owned);
        let report = ErrorReport::new(Code::SQL_TYPE, refusal);
        let hint = match refusal.contains(" arguments (") {
            true => "give it one value for each of its arguments",
            false => "convert the argument with CAST(… AS …)",
        };
        return (report.hint(hint), name);
    }
    if let Some(table) = between(text, "table '", "' not found") {
        let name = table.rsplit('.').next().unwrap_or(table);
        return (unknown_table(name, given), Some(name.to_owned()));
    }
    if let Some(function) = between(text, "Invalid function '", "'") {
        let message = format!("there is no function `{function}`");
        let mut report = unknown_name(message, function, function_names(state), "");
        report.hint = Some(of_unknown_function(function, report.hint));
        return (report, Some(function.to_owned()));
    }
    if let Some(function) = between(text, "able function '", "' not found") {
        let message = format!("there is no table function `{function}`");
        let report = ErrorReport::new(Code::SQL_NAME, message);
        let own = "a table function is defined with @sm.table and passed with --udf";
        return (report.hint(own), Some(function.to_owned()));
    }
    if let Some(found) = wrong_aggregate(text) {
        return found;
    }
    if let Some((function, report)) = wrong_count(text) {
        return (report, Some(function));
    }
    if let Some(function) = between(text, "Function '", "' failed to match") {
        return (wrong_arguments(function, text), Some(function.to_owned()));
    }
    if let Some((name, report)) = same_alias(text) {
        return (report, Some(name));
    }
    let first = without_internals(text.split('\n').next().unwrap_or(text).trim());
    let first = plain_literals(&first);
    let about_types = ["coerce", "type", "Cannot", "cast"].iter().any(|word| first.contains(word));
    let code = if about_types { Code::SQL_TYPE } else { Code::SQL_SYNTAX };
    (ErrorReport::new(code, first), None)
}

/// A call with too many or too few arguments.
fn wrong_count(text: &str) -> Option<(String, ErrorReport)> {
    let function = between(text, "unction '", "'")?;
    let (_, rest) = text.split_once(" expect")?;
    let takes = between(rest, " ", " argument")?;
    let given = rest.split_once("received ")?.1.split(|c: char| !c.is_ascii_digit()).next()?;
    let count = |number: &str| match number {
        "1" | "one" => "1 argument".to_owned(),
        "zero" => "no argument".to_owned(),
        other => format!("{other} arguments"),
    };
    let message = format!("`{function}` takes {}, but the query gives {given}", count(takes));
    Some((function.to_owned(), ErrorReport::new(Code::SQL_TYPE, message)))
}

/// Rewrites literals in a message as in SQL: DataFusion writes `Int64(1)` and `Utf8("x")`.
fn plain_literals(text: &str) -> String {
    const TYPES: [&str; 13] = [
        "Int8(",
        "Int16(",
        "Int32(",
        "Int64(",
        "UInt8(",
        "UInt16(",
        "UInt32(",
        "UInt64(",
        "Float32(",
        "Float64(",
        "Boolean(",
        "Utf8(",
        "IntervalMonthDayNano(",
    ];
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let inside_word =
            plain.chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '_');
        let found = TYPES.iter().find_map(|name| rest.strip_prefix(name)).filter(|_| !inside_word);
        match found.and_then(|value| value.split_once(')')) {
            Some((value, behind)) => {
                plain.push_str(&value.replace('"', "'"));
                rest = behind;
            }
            None => {
                plain.push(c);
                rest = &rest[c.len_utf8()..];
            }
        }
    }
    plain
}

/// The report of an unknown table. Only tables that the SQL names are registered, so the
/// suggestions are the `given` tables.
fn unknown_table(name: &str, given: &BTreeMap<String, String>) -> ErrorReport {
    let tables = given.keys().cloned().collect();
    let mut report = unknown_name(format!("there is no table `{name}`"), name, tables, "");
    report.hint.get_or_insert_with(|| {
        "quote a location in FROM, such as 'data/*.parquet', or define the table with --table"
            .to_owned()
    });
    report
}

/// A report about an unknown name, with the most similar known names.
fn unknown_name(message: String, name: &str, known: Vec<String>, list: &str) -> ErrorReport {
    let report = ErrorReport::new(Code::SQL_NAME, message);
    let near = nearest(name, &known);
    if !near.is_empty() {
        let quoted: Vec<String> = near.iter().map(|name| format!("`{name}`")).collect();
        return report.hint(format!("did you mean {}?", quoted.join(" or ")));
    }
    if list.is_empty() || known.is_empty() {
        return report;
    }
    let shown: Vec<&str> = known.iter().take(20).map(String::as_str).collect();
    let more = if known.len() > shown.len() { ", …" } else { "" };
    report.hint(format!("{list} {}{more}", shown.join(", ")))
}

/// At most three similar names, the best first: one letter of four may be wrong, missing, added or
/// swapped. A common prefix alone is not enough.
fn nearest<'a>(name: &str, known: &'a [String]) -> Vec<&'a str> {
    let folded = name.to_lowercase();
    let most = (folded.chars().count() / 4).max(1);
    let mut scored: Vec<(usize, &str)> = known
        .iter()
        .map(|other| (strsim::osa_distance(&folded, &other.to_lowercase()), other.as_str()))
        .filter(|(distance, _)| *distance <= most)
        .collect();
    scored.sort_unstable();
    let mut names: Vec<&str> = scored.into_iter().map(|(_, name)| name).collect();
    names.dedup();
    names.truncate(3);
    names
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let start = text.find(before)? + before.len();
    let length = text[start..].find(after)?;
    Some(&text[start..start + length])
}

/// The position in DataFusion's error.
fn span(error: &DataFusionError) -> Option<Position> {
    let diagnostic = error.diagnostic()?;
    let start = diagnostic.span?.start;
    Some(Position { line: start.line as usize, column: start.column as usize })
}

/// sqlparser writes the position at the end: ` at Line: 1, Column: 8`.
fn split_position(text: &str) -> (String, Option<Position>) {
    let Some((what, rest)) = text.rsplit_once(" at Line: ") else {
        return (text.to_owned(), None);
    };
    let mut numbers = rest.split(", Column: ").map(|number| number.trim().parse().ok());
    let position = match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(line), Some(column)) => Some(Position { line, column }),
        _ => None,
    };
    (what.to_owned(), position.filter(|position| position.line > 0))
}

fn end_of(sql: &str) -> Position {
    let lines: Vec<&str> = sql.trim_end().lines().collect();
    let last = lines.last().map_or(0, |line| line.chars().count());
    Position { line: lines.len().max(1), column: last + 1 }
}

/// The first position of a name as a whole word.
fn find_name(sql: &str, name: &str) -> Option<Position> {
    let text = sql.to_ascii_lowercase();
    let name = name.to_ascii_lowercase();
    let part_of_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut from = 0;
    while let Some(found) = text.get(from..)?.find(&name).filter(|_| !name.is_empty()) {
        let start = from + found;
        let end = start + name.len();
        let before = text[..start].chars().next_back().is_some_and(part_of_word);
        let after = text[end..].chars().next().is_some_and(part_of_word);
        if !before && !after {
            let line = text[..start].matches('\n').count() + 1;
            let column = text[..start].chars().rev().take_while(|c| *c != '\n').count() + 1;
            return Some(Position { line, column });
        }
        from = end;
    }
    None
}

fn with_caret(mut report: ErrorReport, sql: &str, position: Option<Position>) -> ErrorReport {
    let Some(position) = position else { return report };
    let Some(line) = sql.lines().nth(position.line - 1) else { return report };
    // Tabs are kept, so that the caret is aligned for every tab width.
    let blank = |c| if c == '\t' { '\t' } else { ' ' };
    let gap: String =
        line.chars().chain(std::iter::repeat(' ')).take(position.column - 1).map(blank).collect();
    report.location =
        Some(SourceLocation { file: "query".to_owned(), line: position.line as u32, within: None });
    report.excerpt = vec![line.to_owned(), format!("{gap}^")];
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_position_is_split_from_the_message() {
        let (what, position) = split_position("Expected: x, found: y at Line: 2, Column: 8");
        assert_eq!(
            (what.as_str(), position),
            ("Expected: x, found: y", Some(Position { line: 2, column: 8 }))
        );
        assert_eq!(split_position("no position").1, None);
    }

    #[test]
    fn names_are_found_as_whole_words() {
        let sql = "select total_x,\n  x from t";
        assert_eq!(find_name(sql, "x"), Some(Position { line: 2, column: 3 }));
        assert_eq!(find_name(sql, "nowhere"), None);
    }

    #[test]
    fn the_caret_is_under_the_position() {
        let report = ErrorReport::new(Code::SQL_NAME, "m");
        let report = with_caret(report, "select\n\tabc", Some(Position { line: 2, column: 2 }));
        assert_eq!(report.excerpt, ["\tabc", "\t^"]);
    }

    #[test]
    fn only_similar_names_are_suggested() {
        let known: Vec<String> = ["l_quantity", "l_tax", "l_shipdate"].map(str::to_owned).into();
        assert_eq!(nearest("l_quantitty", &known), ["l_quantity"]);
        assert!(nearest("zzz", &known).is_empty());
        assert!(nearest("country", &["count".to_owned()]).is_empty());
    }

    #[test]
    fn literals_are_written_as_in_sql() {
        let text = r#"count(Int64(1)) and Utf8("x") of my_Int64(2)"#;
        assert_eq!(plain_literals(text), "count(1) and 'x' of my_Int64(2)");
    }

    #[test]
    fn a_wrong_number_of_arguments_is_reported() {
        for (text, message) in [
            (
                "Function 'abs' expects 1 arguments but received 3",
                "`abs` takes 1 argument, but the query gives 3",
            ),
            (
                "The function 'pi' expected zero argument but received 1",
                "`pi` takes no argument, but the query gives 1",
            ),
        ] {
            assert_eq!(wrong_count(text).unwrap().1.message, message);
        }
        assert!(wrong_count("Function 'x' expects String but received Int64").is_none());
    }
}
