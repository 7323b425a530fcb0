//! A received signature, checked and converted to Arrow fields.
//!
//! The signature comes from a sandbox or a client and is not trusted: names go into SQL and types
//! into plans, so everything is checked here.

use std::time::Duration;

use arrow_schema::{DataType, Field, FieldRef, Fields};
use snowmelt_types::{ByteSize, parse_duration};
use snowmelt_wire::{OnError, Signature, UdfKind, schema_from_text};

use crate::sql_type::sql_type;
use crate::{BatchKind, Error, Result};

/// The maximum number of arguments, above any real function's. It bounds the size of a plan.
pub const MAX_ARGUMENTS: usize = 256;

/// The maximum nesting depth of lists and structs.
const MAX_DEPTH: usize = 16;

/// The arguments and the result of a UDF, and its settings, ready for a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsedSignature {
    /// The name of the function in SQL.
    pub name: String,
    /// The arguments in order. For nulls in a field that is not nullable the function is not
    /// called.
    pub arguments: Fields,
    /// The type of the result.
    pub returns: FieldRef,
    /// The unit for which the function is called: a row, a group, or a row for which it returns
    /// rows.
    pub kind: UdfKind,
    /// The format of the function's batches.
    pub batch: BatchKind,
    /// The handling of rows on which the function raises.
    pub on_error: OnError,
    /// Whether equal arguments give the same result throughout a query.
    pub deterministic: bool,
    /// Memory limit of an instance. `None` if the user gave none.
    pub memory: Option<ByteSize>,
    /// Time limit of one batch. `None` if the user gave none.
    pub timeout: Option<Duration>,
}

impl ParsedSignature {
    /// The columns of a table function; `None` for other functions.
    pub fn columns(&self) -> Option<&Fields> {
        match self.kind {
            UdfKind::Table => columns(self.returns.data_type()),
            _ => None,
        }
    }

    fn columns_text(&self) -> String {
        let column = |field: &FieldRef| format!("{} {}", field.name(), sql_type(field.data_type()));
        let columns = self.columns().map(|fields| fields.iter().map(column).collect::<Vec<_>>());
        format!("TABLE ({})", columns.unwrap_or_default().join(", "))
    }

    /// Writes the signature for people: `score(a DOUBLE, b DOUBLE NULL) DOUBLE`, `aggregate
    /// middle(a DOUBLE) DOUBLE`, `table words(text VARCHAR) TABLE (word VARCHAR)`, `country(phone
    /// VARCHAR) VARCHAR DETERMINISTIC`.
    pub fn text(&self) -> String {
        let argument = |field: &FieldRef| {
            let null = if field.is_nullable() { " NULL" } else { "" };
            format!("{} {}{null}", field.name(), sql_type(field.data_type()))
        };
        let arguments: Vec<_> = self.arguments.iter().map(argument).collect();
        let (kind, returns) = match self.kind {
            UdfKind::Scalar => ("", sql_type(self.returns.data_type())),
            UdfKind::Aggregate => ("aggregate ", sql_type(self.returns.data_type())),
            UdfKind::Table => ("table ", self.columns_text()),
        };
        let deterministic = if self.deterministic { " DETERMINISTIC" } else { "" };
        format!("{kind}{}({}) {returns}{deterministic}", self.name, arguments.join(", "))
    }

    /// Checks a signature.
    pub fn parse(signature: &Signature) -> Result<Self> {
        Self::try_parse(signature)
            .map_err(|reason| Error::Signature { function: shown(&signature.name), reason })
    }

    fn try_parse(signature: &Signature) -> Result<Self, String> {
        check_name(&signature.name)?;
        let schema = schema_from_text(&signature.schema).map_err(|error| error.to_string())?;
        let (arguments, returns) = split(schema.fields())?;
        check_aggregate(signature, &arguments)?;
        check_table(signature, &returns)?;
        Ok(Self {
            name: signature.name.clone(),
            arguments,
            returns,
            kind: signature.kind,
            batch: signature.batch.parse()?,
            on_error: on_error(signature)?,
            deterministic: signature.deterministic,
            memory: signature.memory.as_deref().map(memory).transpose()?,
            timeout: signature.timeout.as_deref().map(timeout).transpose()?,
        })
    }
}

fn split(fields: &Fields) -> Result<(Fields, FieldRef), String> {
    let (returns, arguments) = fields.split_last().ok_or("its schema is empty")?;
    if returns.name() != "return" {
        return Err("its schema does not end with a field named `return`".to_owned());
    }
    if arguments.len() > MAX_ARGUMENTS {
        return Err(format!("it has {} arguments; the limit is {MAX_ARGUMENTS}", arguments.len()));
    }
    for (at, field) in arguments.iter().enumerate() {
        if field.name() == "return" || arguments[..at].iter().any(|one| one.name() == field.name())
        {
            return Err(format!("two fields are named `{}`", shown(field.name())));
        }
        check_type(field, MAX_DEPTH).map_err(|kind| refused(field, &kind))?;
    }
    check_type(returns, MAX_DEPTH).map_err(|kind| refused(returns, &kind))?;
    Ok((arguments.iter().cloned().collect(), returns.clone()))
}

fn refused(field: &Field, kind: &str) -> String {
    match field.name().as_str() {
        "return" => format!("its result has the type {kind}, which functions cannot return yet"),
        name => format!("`{}` has the type {kind}, which functions cannot take yet", shown(name)),
    }
}

/// Checks that SQL can call a function of this name: the name is an SQL identifier that needs no
/// quotes.
///
/// # Errors
/// A text that says what is wrong with the name.
pub fn check_name(name: &str) -> Result<(), String> {
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let allowed = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if begins && allowed && name.len() <= 64 {
        return Ok(());
    }
    Err("its name is not an SQL name: 1 to 64 letters, digits and `_`, not beginning with a digit"
        .into())
}

/// Checks that the runtime converts a type. The error is the unsupported type.
fn check_type(field: &Field, depth: usize) -> Result<(), String> {
    use DataType::*;
    if depth == 0 {
        return Err(format!("nested more than {MAX_DEPTH} deep"));
    }
    match field.data_type() {
        Boolean | Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 | UInt64 => Ok(()),
        Float16 | Float32 | Float64 | Decimal128(..) | Decimal256(..) => Ok(()),
        Utf8 | LargeUtf8 | Binary | LargeBinary | FixedSizeBinary(_) | Null => Ok(()),
        Date32 | Date64 | Time32(_) | Time64(_) | Timestamp(..) | Duration(_) => Ok(()),
        List(item) | LargeList(item) | FixedSizeList(item, _) => check_type(item, depth - 1),
        Struct(fields) => fields.iter().try_for_each(|field| check_type(field, depth - 1)),
        Map(entries, _) => check_type(entries, depth - 1),
        other => Err(other.to_string()),
    }
}

/// Checks the setting: only a function that is called row by row can fail for one row.
fn on_error(signature: &Signature) -> Result<OnError, String> {
    if signature.on_error == OnError::Null && signature.batch != BatchKind::Scalar.as_str() {
        return Err("on_error=\"null\" is for functions that are called row by row".to_owned());
    }
    Ok(signature.on_error)
}

fn check_aggregate(signature: &Signature, arguments: &Fields) -> Result<(), String> {
    if signature.kind != UdfKind::Aggregate {
        return Ok(());
    }
    if arguments.is_empty() {
        return Err("an aggregate function needs an argument".to_owned());
    }
    if signature.on_error != OnError::Raise {
        return Err("on_error is for functions that are called for each row".to_owned());
    }
    if signature.deterministic {
        return Err("deterministic is for functions that are called for each row".to_owned());
    }
    Ok(())
}

/// The columns in the result of a table function: a list of structs.
fn columns(returns: &DataType) -> Option<&Fields> {
    match returns {
        DataType::List(item) => match item.data_type() {
            DataType::Struct(columns) => Some(columns),
            _ => None,
        },
        _ => None,
    }
}

fn check_table(signature: &Signature, returns: &Field) -> Result<(), String> {
    if signature.kind != UdfKind::Table {
        return Ok(());
    }
    let columns = columns(returns.data_type()).filter(|columns| !columns.is_empty());
    let columns = columns.ok_or("a table function returns a list of structs with its columns")?;
    if columns.len() > MAX_ARGUMENTS {
        return Err(format!("it has {} columns; the limit is {MAX_ARGUMENTS}", columns.len()));
    }
    for (at, column) in columns.iter().enumerate() {
        let same = |other: &FieldRef| other.name().eq_ignore_ascii_case(column.name());
        if column.name().is_empty() || columns.iter().take(at).any(same) {
            return Err(format!(
                "the name `{}` of a column is empty or used",
                shown(column.name())
            ));
        }
    }
    if signature.batch != BatchKind::Scalar.as_str() {
        return Err("a table function is called row by row".to_owned());
    }
    if signature.on_error != OnError::Raise || signature.deterministic {
        return Err("on_error and deterministic are for functions that give one value".to_owned());
    }
    Ok(())
}

fn memory(text: &str) -> Result<ByteSize, String> {
    let limit: ByteSize = text.parse().map_err(|error| format!("memory={error}"))?;
    // With less the kernel cannot even make the process of an instance.
    match limit < ByteSize::mib(1) {
        true => Err(format!("memory={text:?} is too little, at least 1MiB is needed")),
        false => Ok(limit),
    }
}

fn timeout(text: &str) -> Result<Duration, String> {
    let limit = parse_duration(text).map_err(|error| format!("timeout={error}"))?;
    if limit.is_zero() { Err("timeout=0 is not allowed".to_owned()) } else { Ok(limit) }
}

/// Shortens an untrusted name for messages, and removes control characters.
fn shown(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(64).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_schema::{Schema, TimeUnit};
    use snowmelt_wire::schema_to_text;

    use super::*;

    pub(crate) fn signature(fields: Vec<Field>) -> Signature {
        Signature {
            name: "country".to_owned(),
            kind: UdfKind::Scalar,
            batch: "scalar".to_owned(),
            schema: schema_to_text(&Schema::new(fields)).unwrap(),
            on_error: OnError::Raise,
            deterministic: false,
            packages: vec![],
            memory: Some("256MiB".to_owned()),
            timeout: Some("30s".to_owned()),
        }
    }

    fn text(name: &str) -> Field {
        Field::new(name, DataType::Utf8, true)
    }

    fn reason(signature: &Signature) -> String {
        ParsedSignature::parse(signature).unwrap_err().to_string()
    }

    #[test]
    fn a_signature_is_parsed_to_fields_and_limits() {
        let parsed =
            ParsedSignature::parse(&signature(vec![text("phone"), text("return")])).unwrap();
        assert_eq!(parsed.arguments.len(), 1);
        assert_eq!(parsed.returns.data_type(), &DataType::Utf8);
        assert_eq!(parsed.memory, Some(ByteSize::mib(256)));
        assert_eq!(parsed.timeout, Some(Duration::from_secs(30)));
        assert!(ParsedSignature::parse(&signature(vec![text("return")])).is_ok());
        assert_eq!(parsed.text(), "country(phone VARCHAR NULL) VARCHAR");
        let deterministic =
            Signature { deterministic: true, ..signature(vec![text("phone"), text("return")]) };
        let parsed = ParsedSignature::parse(&deterministic).unwrap();
        assert_eq!(parsed.text(), "country(phone VARCHAR NULL) VARCHAR DETERMINISTIC");
    }

    #[test]
    fn signatures_that_do_not_fit_into_sql_are_refused() {
        let good = || signature(vec![text("phone"), text("return")]);
        let named = |name: &str| Signature { name: name.to_owned(), ..good() };
        for bad in ["", "1st", "a b", "a\";drop", "naïve", &"a".repeat(65)] {
            assert!(reason(&named(bad)).contains("not an SQL name"), "{bad}");
        }
        assert!(reason(&signature(vec![text("phone")])).contains("named `return`"));
        assert!(reason(&signature(vec![])).contains("empty"));
        let twice = signature(vec![text("a"), text("a"), text("return")]);
        assert!(reason(&twice).contains("two fields are named `a`"));
        let batch = Signature { batch: "polars".to_owned(), ..good() };
        assert!(reason(&batch).contains("polars"));
        let schema = Signature { schema: "AAAA".to_owned(), ..good() };
        assert!(!reason(&schema).is_empty());
        let null = Signature { batch: "arrow".to_owned(), on_error: OnError::Null, ..good() };
        assert!(reason(&null).contains("row by row"));
    }

    #[test]
    fn aggregate_functions_have_arguments_and_fail_as_a_whole() {
        let aggregate = |fields, on_error| Signature {
            kind: UdfKind::Aggregate,
            on_error,
            ..signature(fields)
        };
        let good = || vec![text("phone"), text("return")];
        let parsed = ParsedSignature::parse(&aggregate(good(), OnError::Raise)).unwrap();
        assert_eq!(parsed.text(), "aggregate country(phone VARCHAR NULL) VARCHAR");
        let bare = aggregate(vec![text("return")], OnError::Raise);
        assert!(reason(&bare).contains("needs an argument"), "{}", reason(&bare));
        let null = aggregate(good(), OnError::Null);
        assert!(reason(&null).contains("for each row"), "{}", reason(&null));
        let deterministic = Signature { deterministic: true, ..aggregate(good(), OnError::Raise) };
        assert!(reason(&deterministic).contains("deterministic is for"));
    }

    #[test]
    fn table_functions_have_named_columns() {
        let table = |columns: Vec<Field>| {
            let rows = Field::new("item", DataType::Struct(Fields::from(columns)), true);
            let returns = Field::new("return", DataType::List(Arc::new(rows)), true);
            Signature { kind: UdfKind::Table, ..signature(vec![text("phone"), returns]) }
        };
        let good = table(vec![text("word"), Field::new("n", DataType::Int64, true)]);
        let parsed = ParsedSignature::parse(&good).unwrap();
        assert_eq!(parsed.columns().unwrap().len(), 2);
        let shown = "table country(phone VARCHAR NULL) TABLE (word VARCHAR, n BIGINT)";
        assert_eq!(parsed.text(), shown);
        let scalar = Signature { kind: UdfKind::Scalar, ..good.clone() };
        assert_eq!(ParsedSignature::parse(&scalar).unwrap().columns(), None);
        for (bad, why) in [
            (table(vec![]), "list of structs"),
            (table(vec![text("a"), text("A")]), "`A`"),
            (table(vec![text("")]), "empty"),
            (Signature { deterministic: true, ..good.clone() }, "one value"),
            (Signature { batch: "arrow".to_owned(), ..good.clone() }, "row by row"),
            (
                Signature { schema: signature(vec![text("return")]).schema, ..good },
                "list of structs",
            ),
        ] {
            assert!(reason(&bad).contains(why), "{why}: {}", reason(&bad));
        }
    }

    #[test]
    fn invalid_limits_are_refused() {
        let good = || signature(vec![text("return")]);
        let memory = Signature { memory: Some("lots".to_owned()), ..good() };
        assert!(reason(&memory).contains("memory=`lots`"), "{}", reason(&memory));
        let little = Signature { memory: Some("256".to_owned()), ..good() };
        assert!(reason(&little).contains("at least 1MiB"), "{}", reason(&little));
        let timeout = Signature { timeout: Some("0".to_owned()), ..good() };
        assert!(reason(&timeout).contains("timeout=0"));
    }

    #[test]
    fn nested_types_are_accepted_but_not_all_types() {
        let list = DataType::List(text("item").into());
        let nested = DataType::Struct(Fields::from(vec![Field::new("tags", list, true)]));
        let time = DataType::Timestamp(TimeUnit::Microsecond, None);
        let fields = vec![Field::new("a", nested, true), Field::new("return", time, true)];
        assert!(ParsedSignature::parse(&signature(fields)).is_ok());
        let interval = DataType::Interval(arrow_schema::IntervalUnit::DayTime);
        let bad = signature(vec![Field::new("gap", interval, true), text("return")]);
        assert!(reason(&bad).contains("`gap` has the type Interval"), "{}", reason(&bad));
        let deep = (0..40)
            .fold(text("item"), |inner, _| Field::new("item", DataType::List(inner.into()), true));
        assert!(reason(&signature(vec![deep, text("return")])).contains("nested more than"));
    }
}
