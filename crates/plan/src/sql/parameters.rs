//! Values for the parameters of a statement.
//!
//! A value takes the place of its parameter in the syntax tree, as a literal of its type: no text is
//! written into the SQL. Columns of the answer keep the names that the SQL gives them, so the tree
//! that names them keeps its parameters, which are found again by their position.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{
    Array, CastKind, DataType, ExactNumberInfo, Expr, GroupByExpr, Interval, OrderByKind, Query,
    Select, TimezoneInfo, UnaryOperator, Value, ValueWithSpan, Visit, VisitMut, Visitor,
    VisitorMut,
};
use datafusion::sql::sqlparser::tokenizer::Location;
use snowmelt_types::{Code, ErrorReport};
use snowmelt_wire::{Parameter, ParameterType, Parameters, TypedText};

/// The most digits of a decimal: a number with more has no exact type.
const MAX_DIGITS: usize = 38;

const VALUE_HINT: &str = "pass it beside the SQL: --param NAME=VALUE (1=VALUE for the first ?), \
                          params= in Python, \"params\" in a request";

/// The values of a statement's parameters, by the parameters' positions.
#[derive(Clone, Debug, Default)]
pub(crate) struct ParameterValues(BTreeMap<Location, Expr>);

/// The error about the parameters of a statement, and the text of the parameter that it is about.
pub(crate) type ParameterError = (ErrorReport, Option<String>);

impl ParameterValues {
    /// The values for the parameters of a query.
    pub(crate) fn new(query: &Query, given: &Parameters) -> Result<Self, ParameterError> {
        let mut found = ParameterCollector::default();
        if let ControlFlow::Break(text) = Visit::visit(query, &mut found) {
            let message = format!("the parameter {text} is a whole key of ORDER BY or GROUP BY");
            let report = ErrorReport::new(Code::SQL_SYNTAX, message)
                .hint("a parameter is a value, not the name or the number of a column");
            return Err((report, Some(text)));
        }
        let mut values = BTreeMap::new();
        let mut used = BTreeSet::new();
        let mut place = 0;
        for (location, text) in &found.at {
            let value = match given {
                Parameters::Places(values) => at(text, values, &mut place, &mut used),
                Parameters::Names(values) => named(text, values, &mut used),
            };
            let value = value.and_then(literal);
            values.insert(*location, value.map_err(|report| (report, Some(text.clone())))?);
        }
        all_used(given, &used).map_err(|report| (report, None))?;
        Ok(Self(values))
    }

    /// Puts the values into the places of the parameters.
    pub(crate) fn put_into(&self, statement: &mut DfStatement) {
        if self.0.is_empty() {
            return;
        }
        if let DfStatement::Statement(inner) = statement {
            _ = VisitMut::visit(inner.as_mut(), &mut ParameterWriter(self));
        }
    }

    /// Returns the query with its values. An error if a parameter is where no value can be.
    pub(crate) fn of(&self, query: &Query) -> Result<Query, ParameterError> {
        let mut query = query.clone();
        _ = VisitMut::visit(&mut query, &mut ParameterWriter(self));
        let mut left = ParameterCollector::default();
        _ = Visit::visit(&query, &mut left);
        match left.at.pop_first() {
            None => Ok(query),
            Some((_, text)) => {
                let message = format!("the parameter {text} is where no value can be");
                let report = ErrorReport::new(Code::SQL_SYNTAX, message)
                    .hint("write a literal there, or cast the parameter: $1::date");
                Err((report, Some(text)))
            }
        }
    }
}

/// The parameters of a query. Breaks at one that a value would change in its meaning.
#[derive(Default)]
struct ParameterCollector {
    at: BTreeMap<Location, String>,
}

impl Visitor for ParameterCollector {
    type Break = String;

    fn pre_visit_value(&mut self, value: &ValueWithSpan) -> ControlFlow<String> {
        if let Value::Placeholder(text) = &value.value {
            self.at.insert(value.span.start, text.clone());
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<String> {
        match query.order_by.as_ref().map(|order| &order.kind) {
            Some(OrderByKind::Expressions(keys)) => not_alone(keys.iter().map(|key| &key.expr)),
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<String> {
        match &select.group_by {
            GroupByExpr::Expressions(keys, _) => not_alone(keys.iter()),
            GroupByExpr::All(_) => ControlFlow::Continue(()),
        }
    }
}

fn not_alone<'a>(mut keys: impl Iterator<Item = &'a Expr>) -> ControlFlow<String> {
    match keys.find_map(placeholder) {
        Some((_, text)) => ControlFlow::Break(text.to_owned()),
        None => ControlFlow::Continue(()),
    }
}

fn placeholder(expr: &Expr) -> Option<(Location, &str)> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::Placeholder(text) => Some((value.span.start, text)),
            _ => None,
        },
        _ => None,
    }
}

struct ParameterWriter<'a>(&'a ParameterValues);

impl VisitorMut for ParameterWriter<'_> {
    type Break = Infallible;

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Infallible> {
        if let Some(value) = placeholder(expr).and_then(|(location, _)| self.0.0.get(&location)) {
            *expr = value.clone();
        }
        ControlFlow::Continue(())
    }
}

/// Returns the value of a parameter by its number. A `?` is numbered by its order.
fn at<'a>(
    text: &str,
    values: &'a [Parameter],
    place: &mut usize,
    used: &mut BTreeSet<String>,
) -> Result<&'a Parameter, ErrorReport> {
    let number = match text {
        "?" => {
            *place += 1;
            *place
        }
        text => match text[1..].parse() {
            Ok(number) if *place == 0 => number,
            Ok(_) => return Err(wrong(format!("the SQL has both ? and {text}"), "use one form")),
            Err(_) if values.is_empty() => return Err(no_value(text)),
            Err(_) => {
                let message = format!("the parameter {text} has a name, and the values have none");
                return Err(wrong(message, "give the values with their names"));
            }
        },
    };
    used.insert(number.to_string());
    number.checked_sub(1).and_then(|index| values.get(index)).ok_or_else(|| match text {
        "?" => no_value(&format!("number {number} (?)")),
        text => no_value(text),
    })
}

fn named<'a>(
    text: &str,
    values: &'a BTreeMap<String, Parameter>,
    used: &mut BTreeSet<String>,
) -> Result<&'a Parameter, ErrorReport> {
    let name = &text[1..];
    if name.is_empty() {
        return Err(wrong(
            "a parameter ? has no name, and the values have".to_owned(),
            "give the values in their order, or write :name",
        ));
    }
    used.insert(name.to_owned());
    values.get(name).ok_or_else(|| no_value(text))
}

fn all_used(given: &Parameters, used: &BTreeSet<String>) -> Result<(), ErrorReport> {
    let unused = |name: &String| !used.contains(name);
    let name = match given {
        Parameters::Places(values) => (1..=values.len()).map(|n| n.to_string()).find(unused),
        Parameters::Names(values) => values.keys().find(|name| unused(name)).cloned(),
    };
    let Some(name) = name else { return Ok(()) };
    let message = match given {
        Parameters::Places(_) => format!("the SQL has no parameter number {name}"),
        Parameters::Names(_) => format!("the SQL has no parameter :{name}"),
    };
    let hint = "parameters are ?, $1 or :name in the SQL, where a value can be";
    Err(ErrorReport::new(Code::OPTION, message).hint(hint))
}

fn no_value(text: &str) -> ErrorReport {
    wrong(format!("the parameter {text} has no value"), VALUE_HINT)
}

fn wrong(message: String, hint: &str) -> ErrorReport {
    ErrorReport::new(Code::SQL_SYNTAX, message).hint(hint)
}

/// A value as a literal of its type.
fn literal(value: &Parameter) -> Result<Expr, ErrorReport> {
    Ok(match value {
        Parameter::Null => plain(Value::Null),
        Parameter::Boolean(value) => plain(Value::Boolean(*value)),
        Parameter::Bigint(value) => number(&value.to_string()),
        Parameter::Varchar(text) => quoted(text),
        Parameter::List(values) => {
            let elem = values.iter().map(literal).collect::<Result<_, _>>()?;
            Expr::Array(Array { elem, named: true })
        }
        Parameter::Typed(typed) => of_type(typed)?,
    })
}

fn of_type(TypedText { data_type, value }: &TypedText) -> Result<Expr, ErrorReport> {
    let text = value.trim();
    let invalid = || {
        let message = format!("the value of a parameter is not of its type {data_type}");
        ErrorReport::new(Code::SQL_TYPE, message).hint(form(*data_type))
    };
    Ok(match data_type {
        ParameterType::Varchar => quoted(value),
        ParameterType::Boolean => {
            plain(Value::Boolean(text.to_lowercase().parse().map_err(|_| invalid())?))
        }
        ParameterType::Bigint => number(&text.parse::<i64>().map_err(|_| invalid())?.to_string()),
        ParameterType::Double => {
            let value: f64 = text.parse().map_err(|_| invalid())?;
            match value.is_finite() {
                true => number(&format!("{value:?}")),
                false => cast(quoted(&value.to_string()), DataType::Double(ExactNumberInfo::None)),
            }
        }
        ParameterType::Decimal => decimal(text).ok_or_else(invalid)?,
        ParameterType::Blob => {
            let is_hex = text.len() % 2 == 0 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
            match is_hex {
                true => plain(Value::HexStringLiteral(text.to_owned())),
                false => return Err(invalid()),
            }
        }
        ParameterType::Date => cast(quoted(text), DataType::Date),
        ParameterType::Time => cast(quoted(text), DataType::Time(None, TimezoneInfo::None)),
        ParameterType::Timestamp => {
            cast(quoted(text), DataType::Timestamp(None, TimezoneInfo::None))
        }
        ParameterType::Timestamptz => {
            cast(quoted(text), DataType::Timestamp(None, TimezoneInfo::Tz))
        }
        ParameterType::Interval => Expr::Interval(Interval {
            value: Box::new(quoted(text)),
            leading_field: None,
            leading_precision: None,
            last_field: None,
            fractional_seconds_precision: None,
        }),
    })
}

/// How the text of a value is written.
fn form(data_type: ParameterType) -> &'static str {
    match data_type {
        ParameterType::Boolean => "write true or false",
        ParameterType::Bigint => "write a whole number; larger ones are decimals",
        ParameterType::Double => "write a number, such as 1.5 or 1e-3",
        ParameterType::Decimal => "write at most 38 digits, with or without a point",
        ParameterType::Blob => "write two hexadecimal digits for each byte",
        _ => "write the value as a cast from text takes it",
    }
}

/// A decimal with just the digits of its text.
fn decimal(text: &str) -> Option<Expr> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (whole, behind) = digits.split_once('.').unwrap_or((digits, ""));
    let plain = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let precision = whole.len() + behind.len();
    if !plain(whole) || !plain(behind) || !(1..=MAX_DIGITS).contains(&precision) {
        return None;
    }
    let scale = i64::try_from(behind.len()).ok()?;
    let exact = ExactNumberInfo::PrecisionAndScale(precision as u64, scale);
    Some(cast(quoted(text), DataType::Decimal(exact)))
}

/// A number as SQL has it: a sign is an operator.
fn number(text: &str) -> Expr {
    let digits = |text: &str| plain(Value::Number(text.to_owned(), false));
    match text.strip_prefix('-') {
        None => digits(text),
        Some(positive) => {
            Expr::UnaryOp { op: UnaryOperator::Minus, expr: Box::new(digits(positive)) }
        }
    }
}

fn plain(value: Value) -> Expr {
    Expr::Value(value.into())
}

fn quoted(text: &str) -> Expr {
    plain(Value::SingleQuotedString(text.to_owned()))
}

fn cast(expr: Expr, data_type: DataType) -> Expr {
    let kind = CastKind::Cast;
    Expr::Cast { kind, expr: Box::new(expr), data_type, array: false, format: None }
}
