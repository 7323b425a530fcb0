//! Calls of `read_csv`, `read_json` and `read_parquet` in FROM: a location, and how its files are
//! written.
//!
//! Each becomes a table whose name is the text of the call, which no table and no location has.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, FunctionArg, FunctionArgExpr, Ident, ObjectName, ObjectNamePart,
    TableFactor, Value, VisitMut, VisitorMut,
};
use snowmelt_files::Format;
use snowmelt_types::{Code, ErrorReport};
use snowmelt_wire::Signature;

use super::formats::{CsvOptions, Mark, encoding};
use super::sql_error;
use super::statement::Statement;
use crate::{Error, Result};

/// A table that a call reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReadCall {
    pub(super) location: String,
    pub(super) format: Format,
    pub(super) options: CsvOptions,
    /// The function's name, as it is written.
    pub(super) function: String,
}

/// The calls of a statement, by the names of their tables.
pub(super) type ReadCalls = BTreeMap<String, ReadCall>;

const FUNCTIONS: [(&str, Format); 6] = [
    ("read_csv", Format::Csv),
    ("read_csv_auto", Format::Csv),
    ("read_json", Format::Json),
    ("read_json_auto", Format::Json),
    ("read_ndjson", Format::Json),
    ("read_parquet", Format::Parquet),
];

const OPTIONS_HINT: &str =
    "the options of read_csv are delim, quote, escape, header, encoding, skip and all_varchar";

/// Replaces the calls of a statement by tables. A function of the user has precedence. `sql` is the
/// text of the statement, for errors.
pub(super) fn prepare(
    statement: &mut Statement,
    signatures: &[Signature],
    sql: &str,
) -> Result<ReadCalls> {
    let DfStatement::Statement(inner) = &mut statement.query else { return Ok(ReadCalls::new()) };
    let own = signatures.iter().map(|signature| signature.name.to_lowercase()).collect();
    let mut calls = Calls { own, found: ReadCalls::new() };
    match VisitMut::visit(inner.as_mut(), &mut calls) {
        ControlFlow::Continue(()) => Ok(calls.found),
        ControlFlow::Break((name, report)) => {
            Err(sql_error::location_error(Error::Sql(report), &name, sql))
        }
    }
}

/// The name of a function, and what is wrong with its call.
type Wrong = (String, Box<ErrorReport>);

struct Calls {
    own: Vec<String>,
    found: ReadCalls,
}

impl VisitorMut for Calls {
    type Break = Wrong;

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Wrong> {
        let TableFactor::Table { name, args, .. } = factor else {
            return ControlFlow::Continue(());
        };
        let (Some(given), Some((function, format))) = (&args, self.function(name)) else {
            return ControlFlow::Continue(());
        };
        let values: Vec<String> = given.args.iter().map(ToString::to_string).collect();
        let text = format!("{function}({})", values.join(", "));
        match call(&function, format, &given.args) {
            Ok(call) => _ = self.found.insert(text.clone(), call),
            Err(report) => return ControlFlow::Break((function, Box::new(report))),
        }
        *args = None;
        *name = ObjectName::from(vec![Ident::with_quote('"', text)]);
        ControlFlow::Continue(())
    }
}

impl Calls {
    fn function(&self, name: &ObjectName) -> Option<(String, Format)> {
        let [ObjectNamePart::Identifier(name)] = name.0.as_slice() else { return None };
        let lower = name.value.to_lowercase();
        let (_, format) = FUNCTIONS.iter().find(|(known, _)| *known == lower)?;
        (!self.own.contains(&lower)).then(|| (name.value.clone(), *format))
    }
}

fn call(function: &str, format: Format, args: &[FunctionArg]) -> Result<ReadCall, ErrorReport> {
    let Some((FunctionArg::Unnamed(FunctionArgExpr::Expr(first)), rest)) = args.split_first()
    else {
        return Err(without_location(function));
    };
    let Some(location) = text(first) else { return Err(without_location(function)) };
    let mut options = CsvOptions::default();
    for arg in rest {
        let Some((name, value)) = named(arg) else {
            let message = format!("`{arg}` is not an option of `{function}`");
            return Err(wrong(message, "write options as name => value"));
        };
        if format != Format::Csv {
            let message = format!("`{function}` has no option `{name}`");
            return Err(wrong(message, OPTIONS_HINT));
        }
        set(&mut options, &name.to_lowercase(), value)?;
    }
    Ok(ReadCall { location, format, options, function: function.to_owned() })
}

fn without_location(function: &str) -> ErrorReport {
    let message = format!("the first argument of `{function}` is not a location");
    wrong(message, "write a file, a folder, a glob or an s3:// URL in single quotes")
}

/// An option: `name => value`, or with `=` or `:=`.
fn named(arg: &FunctionArg) -> Option<(&str, &Expr)> {
    match arg {
        FunctionArg::Named { name, arg: FunctionArgExpr::Expr(value), .. } => {
            Some((&name.value, value))
        }
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::BinaryOp {
            left,
            op: BinaryOperator::Eq,
            right,
        })) => match left.as_ref() {
            Expr::Identifier(name) => Some((&name.value, right)),
            _ => None,
        },
        _ => None,
    }
}

fn set(options: &mut CsvOptions, name: &str, value: &Expr) -> Result<(), ErrorReport> {
    let wanted = |what: &str| {
        let message = format!("`{name}` of `read_csv` is {what}, and `{value}` is not");
        wrong(message, OPTIONS_HINT)
    };
    match name {
        "delim" | "sep" | "delimiter" => {
            let byte = mark(value).and_then(|mark| mark.0);
            let byte = byte.filter(|byte| !matches!(byte, b'\n' | b'\r' | b'"'));
            options.delimiter = Some(byte.ok_or_else(|| wanted("one ASCII character"))?);
        }
        "quote" => {
            let given = mark(value).ok_or_else(|| wanted("one ASCII character, or none"))?;
            options.quote = Some(given);
        }
        "escape" => {
            let given = mark(value).ok_or_else(|| wanted("one ASCII character, or none"))?;
            options.escape = Some(given);
        }
        "header" => options.header = Some(truth(value).ok_or_else(|| wanted("true or false"))?),
        "all_varchar" => {
            options.all_varchar = truth(value).ok_or_else(|| wanted("true or false"))?;
        }
        "encoding" => {
            let known = text(value).and_then(|name| encoding(&name));
            let known = known.ok_or_else(|| wanted("'utf-8', 'utf-16' or 'latin-1'"))?;
            options.encoding = Some(known);
        }
        "skip" => options.skip = number(value).ok_or_else(|| wanted("a number of lines"))?,
        _ => return Err(wrong(format!("`read_csv` has no option `{name}`"), OPTIONS_HINT)),
    }
    Ok(())
}

fn literal(value: &Expr) -> Option<&Value> {
    match value {
        Expr::Value(value) => Some(&value.value),
        _ => None,
    }
}

fn text(value: &Expr) -> Option<String> {
    match literal(value)? {
        Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => Some(text.clone()),
        _ => None,
    }
}

/// A character of one byte, or an empty text for none. A tab may also be written as `\t`.
fn mark(value: &Expr) -> Option<Mark> {
    match text(value)?.as_bytes() {
        [] => Some(Mark(None)),
        br"\t" => Some(Mark(Some(b'\t'))),
        [byte] if byte.is_ascii() => Some(Mark(Some(*byte))),
        _ => None,
    }
}

fn truth(value: &Expr) -> Option<bool> {
    match literal(value)? {
        Value::Boolean(truth) => Some(*truth),
        _ => match number(value)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        },
    }
}

fn number(value: &Expr) -> Option<u64> {
    match literal(value)? {
        Value::Number(digits, _) => digits.parse().ok().filter(|lines| *lines <= 1_000_000),
        _ => None,
    }
}

fn wrong(message: String, hint: &str) -> ErrorReport {
    ErrorReport::new(Code::OPTION, message).hint(hint)
}

#[cfg(test)]
mod tests {
    use snowmelt_types::Report;

    use super::super::statement::parse;
    use super::*;
    use crate::read::Encoding;

    fn calls(sql: &str) -> Result<(Statement, Vec<ReadCall>)> {
        let mut statement = parse(sql, &Default::default())?;
        let found = prepare(&mut statement, &[], sql)?;
        Ok((statement, found.into_values().collect()))
    }

    #[test]
    fn options_are_read_in_all_notations() {
        let sql = "from read_csv('a b.csv', delim => '\\t', sep = '|', quote := '', header = 0,
            escape => '\\', encoding => 'ISO-8859-1', skip => 3, all_varchar => true)";
        let (statement, found) = calls(sql).unwrap();
        let options = CsvOptions {
            delimiter: Some(b'|'),
            quote: Some(Mark(None)),
            escape: Some(Mark(Some(b'\\'))),
            header: Some(false),
            encoding: Some(Encoding::Latin1),
            skip: 3,
            all_varchar: true,
        };
        let expected = ReadCall {
            location: "a b.csv".to_owned(),
            format: Format::Csv,
            options,
            function: "read_csv".to_owned(),
        };
        assert_eq!(found, [expected]);
        assert!(statement.query.to_string().contains("FROM \"read_csv('a b.csv', delim =>"));
    }

    #[test]
    fn calls_are_found_everywhere_in_from() {
        let sql = "select * from read_parquet('x') a, (select * from READ_JSON('y')) b
            where exists (select 1 from read_csv('z') c) and a.n in (select n from f(1))";
        let (_, found) = calls(sql).unwrap();
        let found: Vec<_> = found.iter().map(|it| (it.location.as_str(), it.format)).collect();
        assert_eq!(
            found,
            [("y", Format::Json), ("z", Format::Csv), ("x", Format::Parquet)],
            "in the order of their texts"
        );
    }

    #[test]
    fn wrong_calls_are_refused() {
        for (call, why) in [
            ("read_csv()", "first argument of `read_csv` is not a location"),
            ("read_csv(x)", "is not a location"),
            ("read_csv('x', 'y')", "`'y'` is not an option"),
            ("read_csv('x', delim => ';;')", "`delim` of `read_csv` is one ASCII character"),
            ("read_csv('x', header => 'yes')", "is true or false"),
            ("read_csv('x', encoding => 'ebcdic')", "'utf-16'"),
            ("read_csv('x', skip => -1)", "a number of lines"),
            ("read_csv('x', delimm => ';')", "has no option `delimm`"),
            ("read_json('x', delim => ';')", "`read_json` has no option `delim`"),
        ] {
            let Err(error) = calls(&format!("select * from {call}")) else { panic!("{call}") };
            let report = error.report().to_string();
            assert!(report.contains("SM-0110") && report.contains(why), "{call}: {report}");
            assert!(report.contains("--> query:1"), "{call}: {report}");
        }
    }
}
