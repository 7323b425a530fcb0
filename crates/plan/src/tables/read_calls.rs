//! Calls of `read_csv`, `read_json`, `read_parquet`, `read_xlsx` and `glob` in FROM: locations, and how their
//! files are written.
//!
//! Each call becomes a table whose name is the text of the call, which no table and no location
//! has.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, DictionaryField, Expr, FunctionArg, FunctionArgExpr, Ident, ObjectName,
    ObjectNamePart, TableFactor, Value, VisitMut, VisitorMut,
};
use snowmelt_files::Format;
use snowmelt_types::{Code, ErrorReport};
use snowmelt_wire::{CsvOption, Signature};

use super::formats::{self, CsvOptions, SheetOptions};
use crate::sql::Statement;
use crate::sql::errors::sql_error;
use crate::{Error, Result};

/// A table that a call reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReadCall {
    pub(crate) locations: Vec<String>,
    /// The format of the files; `None` for a table of the files' names.
    pub(crate) format: Option<Format>,
    pub(crate) options: CsvOptions,
    pub(crate) sheet: SheetOptions,
    /// The column that has the name of each row's file.
    pub(crate) filename: Option<String>,
    /// The function's name, as it is written.
    pub(crate) function: String,
}

/// The calls of a statement, by the names of their tables.
pub(crate) type ReadCalls = BTreeMap<String, ReadCall>;

const FUNCTIONS: [(&str, Option<Format>); 9] = [
    ("glob", None),
    ("read_csv", Some(Format::Csv)),
    ("read_csv_auto", Some(Format::Csv)),
    ("read_json", Some(Format::Json)),
    ("read_json_auto", Some(Format::Json)),
    ("read_ndjson", Some(Format::Json)),
    ("read_parquet", Some(Format::Parquet)),
    ("parquet_scan", Some(Format::Parquet)),
    ("read_xlsx", Some(Format::Excel)),
];

/// The most locations of one call.
const MAX_LOCATIONS: usize = 10_000;

/// Replaces the calls of a statement by tables. A function of the user has precedence. `sql` is the
/// text of the statement, for errors.
pub(crate) fn prepare(
    statement: &mut Statement,
    signatures: &[Signature],
    csv: &CsvOptions,
    sql: &str,
) -> Result<ReadCalls> {
    let DfStatement::Statement(inner) = &mut statement.query else { return Ok(ReadCalls::new()) };
    let own = signatures.iter().map(|signature| signature.name.to_lowercase()).collect();
    let mut calls = ReadCallVisitor { own, csv, found: ReadCalls::new() };
    match VisitMut::visit(inner.as_mut(), &mut calls) {
        ControlFlow::Continue(()) => Ok(calls.found),
        ControlFlow::Break((name, report)) => {
            Err(sql_error::location_error(Error::Sql(report), &name, sql))
        }
    }
}

/// The name of a function, and what is wrong with its call.
type ReadCallError = (String, Box<ErrorReport>);

struct ReadCallVisitor<'c> {
    own: Vec<String>,
    /// The options of all CSV files of the query.
    csv: &'c CsvOptions,
    found: ReadCalls,
}

impl VisitorMut for ReadCallVisitor<'_> {
    type Break = ReadCallError;

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<ReadCallError> {
        let TableFactor::Table { name, args, .. } = factor else {
            return ControlFlow::Continue(());
        };
        let (Some(given), Some((function, format))) = (&args, self.function(name)) else {
            return ControlFlow::Continue(());
        };
        let values: Vec<String> = given.args.iter().map(ToString::to_string).collect();
        let text = format!("{function}({})", values.join(", "));
        match call(&function, format, self.csv, &given.args) {
            Ok(call) => _ = self.found.insert(text.clone(), call),
            Err(report) => return ControlFlow::Break((function, Box::new(report))),
        }
        *args = None;
        *name = ObjectName::from(vec![Ident::with_quote('"', text)]);
        ControlFlow::Continue(())
    }
}

impl ReadCallVisitor<'_> {
    fn function(&self, name: &ObjectName) -> Option<(String, Option<Format>)> {
        let [ObjectNamePart::Identifier(name)] = name.0.as_slice() else { return None };
        let lower = name.value.to_lowercase();
        let (_, format) = FUNCTIONS.iter().find(|(known, _)| *known == lower)?;
        (!self.own.contains(&lower)).then(|| (name.value.clone(), *format))
    }
}

fn call(
    function: &str,
    format: Option<Format>,
    csv: &CsvOptions,
    args: &[FunctionArg],
) -> Result<ReadCall, ErrorReport> {
    let Some((FunctionArg::Unnamed(FunctionArgExpr::Expr(first)), rest)) = args.split_first()
    else {
        return Err(without_location(function));
    };
    let locations = values(first).filter(|(keys, values)| keys.is_empty() && !values.is_empty());
    let Some((_, locations)) = locations.filter(|_| is_texts(first)) else {
        return Err(without_location(function));
    };
    if locations.len() > MAX_LOCATIONS {
        let message = format!("`{function}` has {} locations", locations.len());
        return Err(wrong(message, "name files with a glob, such as 'data/*.csv'"));
    }
    let mut options = csv.clone();
    let mut sheet = SheetOptions::default();
    let mut filename = None;
    for arg in rest {
        let Some((name, value)) = named(arg) else {
            let message = format!("`{arg}` is not an option of `{function}`");
            return Err(wrong(message, "write options as name => value"));
        };
        let Some((keys, values)) = values(value) else {
            let message = format!("`{value}` is not a value of `{name}` of `{function}`");
            return Err(wrong(
                message,
                "write a text, a number, true, false, a list [...] or {'name': ...}",
            ));
        };
        let given = CsvOption { name: name.to_owned(), keys, values };
        match (name.eq_ignore_ascii_case("filename"), format) {
            (true, Some(_)) => filename = file_column(&given, function)?,
            (false, Some(Format::Csv)) => formats::set(&mut options, &given, function)?,
            (false, Some(Format::Excel)) => formats::set_sheet(&mut sheet, &given, function)?,
            (_, None) => {
                return Err(wrong(
                    format!("`{function}` has no option `{name}`"),
                    "give it a location alone",
                ));
            }
            _ => {
                let message = format!("`{function}` has no option `{name}`");
                return Err(wrong(message, &format!("the option of {function} is filename")));
            }
        }
    }
    formats::check(&options, function)?;
    Ok(ReadCall { locations, format, options, sheet, filename, function: function.to_owned() })
}

/// Reads the option for a column of files' names: true, false or the column's name.
fn file_column(given: &CsvOption, function: &str) -> Result<Option<String>, ErrorReport> {
    match (given.keys.as_slice(), given.values.as_slice()) {
        ([], [text]) if matches!(text.as_str(), "true" | "1") => Ok(Some("filename".to_owned())),
        ([], [text]) if matches!(text.as_str(), "false" | "0") => Ok(None),
        ([], [name]) if !name.is_empty() => Ok(Some(name.clone())),
        _ => {
            let message = format!("`filename` of `{function}` is true, false or a column's name");
            Err(wrong(message, "write filename => true"))
        }
    }
}

fn without_location(function: &str) -> ErrorReport {
    let message = format!("the first argument of `{function}` is not a location");
    wrong(
        message,
        "write a file, a folder, a glob or an s3:// or https:// URL in single quotes, or a list ['a', 'b']",
    )
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

/// Returns the texts of an option's value, with their names if it has any: a single text, a list,
/// or texts by name.
fn values(value: &Expr) -> Option<(Vec<String>, Vec<String>)> {
    match value {
        Expr::Array(list) => {
            let texts = list.elem.iter().map(one).collect::<Option<_>>()?;
            Some((Vec::new(), texts))
        }
        Expr::Dictionary(fields) => {
            let pair =
                |field: &DictionaryField| Some((field.key.value.clone(), one(&field.value)?));
            let pairs: Vec<_> = fields.iter().map(pair).collect::<Option<_>>()?;
            Some(pairs.into_iter().unzip())
        }
        value => Some((Vec::new(), vec![one(value)?])),
    }
}

fn is_texts(value: &Expr) -> bool {
    let is_text = |value: &Expr| match value {
        Expr::Value(value) => {
            matches!(value.value, Value::SingleQuotedString(_) | Value::EscapedStringLiteral(_))
        }
        _ => false,
    };
    match value {
        Expr::Array(list) => list.elem.iter().all(is_text),
        value => is_text(value),
    }
}

fn one(value: &Expr) -> Option<String> {
    let Expr::Value(value) = value else { return None };
    match &value.value {
        Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => Some(text.clone()),
        Value::Boolean(truth) => Some(truth.to_string()),
        Value::Number(digits, _) => Some(digits.clone()),
        _ => None,
    }
}

fn wrong(message: String, hint: &str) -> ErrorReport {
    ErrorReport::new(Code::OPTION, message).hint(hint)
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::DataType;
    use snowmelt_execute::read::Encoding;
    use snowmelt_types::Report;

    use super::*;
    use crate::sql::parse;
    use crate::tables::formats::{Mark, Types};

    fn calls(sql: &str) -> Result<(Statement, Vec<ReadCall>)> {
        let mut statement = parse(sql, &Default::default(), &Default::default())?;
        let found = prepare(&mut statement, &[], &CsvOptions::default(), sql)?;
        Ok((statement, found.into_values().collect()))
    }

    #[test]
    fn options_are_read_in_all_notations() {
        let sql = "from read_csv('a b.csv', delim => '\\t', sep = '|', quote := '', header = 0,
            escape => '\\', encoding => 'ISO-8859-1', skip => 3, all_varchar => true,
            nullstr => ['NA', ''], types => {'n': 'BIGINT'}, filename => true)";
        let (statement, found) = calls(sql).unwrap();
        let options = CsvOptions {
            delimiter: Some(b'|'),
            quote: Some(Mark(None)),
            escape: Some(Mark(Some(b'\\'))),
            header: Some(false),
            encoding: Some(Encoding::Latin1),
            skip: 3,
            all_varchar: true,
            nulls: Some(vec!["NA".to_owned(), String::new()]),
            types: Types::Names(vec![("n".to_owned(), DataType::Int64)]),
            ..CsvOptions::default()
        };
        let expected = ReadCall {
            locations: vec!["a b.csv".to_owned()],
            format: Some(Format::Csv),
            options,
            sheet: SheetOptions::default(),
            filename: Some("filename".to_owned()),
            function: "read_csv".to_owned(),
        };
        assert_eq!(found, [expected]);
        assert!(statement.query.to_string().contains("FROM \"read_csv('a b.csv', delim =>"));
    }

    #[test]
    fn the_platform_knows_the_functions_that_read() {
        assert_eq!(FUNCTIONS.map(|(name, _)| name), snowmelt_files::READERS);
    }

    #[test]
    fn calls_are_found_everywhere_in_from() {
        let sql = "select * from read_parquet(['x', 'w']) a, (select * from READ_JSON('y')) b
            where exists (select 1 from read_csv('z') c) and a.n in (select n from f(1))";
        let (_, found) = calls(sql).unwrap();
        let found: Vec<_> =
            found.iter().map(|found| (found.locations.join(","), found.format)).collect();
        let is = |text: &str, format| (text.to_owned(), Some(format));
        assert_eq!(
            found,
            [is("y", Format::Json), is("z", Format::Csv), is("x,w", Format::Parquet)],
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
            ("read_csv('x', skip => -1)", "is not a value of `skip`"),
            ("read_csv('x', delimm => ';')", "has no option `delimm`"),
            ("read_json('x', delim => ';')", "`read_json` has no option `delim`"),
            ("read_csv(1)", "is not a location"),
            ("read_csv([])", "is not a location"),
            ("read_csv('x', nullstr => upper('a'))", "is not a value of `nullstr`"),
            ("read_csv('x', filename => '')", "true, false or a column's name"),
            ("glob('x', filename => true)", "`glob` has no option"),
        ] {
            let Err(error) = calls(&format!("select * from {call}")) else { panic!("{call}") };
            let report = error.report().to_string();
            assert!(report.contains("SM-0110") && report.contains(why), "{call}: {report}");
            assert!(report.contains("--> query:1"), "{call}: {report}");
        }
    }
}
