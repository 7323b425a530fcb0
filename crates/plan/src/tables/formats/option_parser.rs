//! Reads the options for CSV files, as a query gives them.
//!
//! Each has a name and texts: one, those of a list, or those of names. So options have the same
//! meaning in the SQL, in the command and in Python.

use arrow::datatypes::{DataType, TimeUnit};
use snowmelt_execute::read::{Encoding, MAX_COLUMNS};
use snowmelt_types::{Code, ErrorReport};
use snowmelt_wire::CsvOption;

use super::option_value::{one, truth};
use super::options::{CsvOptions, Mark, TimeFormat, Types};

/// The names of all options, of which each may have others.
const NAMES: [&str; 19] = [
    "delim",
    "quote",
    "escape",
    "header",
    "encoding",
    "skip",
    "all_varchar",
    "decimal",
    "thousands",
    "nullstr",
    "dateformat",
    "timestampformat",
    "comment",
    "null_padding",
    "ignore_errors",
    "strict_mode",
    "names",
    "types",
    "columns",
];

/// The owner, in errors, of options that are for all CSV files of a query.
const ALL: &str = "csv";

/// The most lines that are skipped.
const MAX_SKIP: u64 = 1_000_000;

/// The most words for null, and the most bytes of one.
const MAX_NULLS: usize = 64;
const MAX_WORD_BYTES: usize = 256;

/// A description of the values that an option accepts, for errors.
type What = &'static str;

/// The options that a query gives for all its CSV files.
pub(crate) fn options(given: &[CsvOption]) -> Result<CsvOptions, ErrorReport> {
    let mut options = CsvOptions::default();
    given.iter().try_for_each(|option| set(&mut options, option, ALL))?;
    check(&options, ALL)?;
    options.for_all_tables = true;
    options.formats.iter_mut().for_each(|format| format.for_all_tables = true);
    Ok(options)
}

/// Sets an option. `of` is the owner of the option, for errors.
pub(crate) fn set(
    options: &mut CsvOptions,
    given: &CsvOption,
    of: &str,
) -> Result<(), ErrorReport> {
    let name = given.name.to_ascii_lowercase();
    if !given.keys.is_empty() && given.keys.len() != given.values.len() {
        let message = format!("`{name}` of `{of}` has not one value for each name");
        return Err(wrong(message, "give each column one value"));
    }
    match set_known(options, &name, given) {
        Ok(true) => Ok(()),
        Ok(false) => Err(unknown(of, &given.name)),
        Err(what) => {
            let value = given.values.join(", ");
            let message = format!("`{name}` of `{of}` is {what}, and `{value}` is not");
            Err(wrong(message, &known(of)))
        }
    }
}

/// Refuses options that contradict each other.
pub(crate) fn check(options: &CsvOptions, of: &str) -> Result<(), ErrorReport> {
    let decimal = options.notation.decimal;
    let thousands = options.notation.thousands;
    let delimiter = options.delimiter.map(char::from);
    let same = |a: &str, b: &str| {
        let message = format!("`{a}` and `{b}` of `{of}` are the same character");
        Err(wrong(message, "give each its own character"))
    };
    if thousands == Some(decimal) {
        return same("decimal", "thousands");
    }
    if delimiter == Some(decimal) {
        return same("delim", "decimal");
    }
    let comment = options.comment.and_then(|mark| mark.0);
    if comment.is_some() && comment == options.delimiter {
        return same("delim", "comment");
    }
    Ok(())
}

/// The error for a name that no option has.
fn unknown(of: &str, name: &str) -> ErrorReport {
    wrong(format!("`{of}` has no option `{name}`"), &known(of))
}

fn known(of: &str) -> String {
    // A column of names belongs to one table.
    let of_calls = if of == ALL { "" } else { ", filename" };
    format!("the options of {of} are {}{of_calls}", NAMES.join(", "))
}

fn wrong(message: String, hint: &str) -> ErrorReport {
    ErrorReport::new(Code::OPTION, message).hint(hint)
}

/// False if there is no such option. An error is what its value is.
fn set_known(options: &mut CsvOptions, name: &str, given: &CsvOption) -> Result<bool, What> {
    const FLAG: What = "true or false";
    let flag = || truth(given).ok_or(FLAG);
    match name {
        "delim" | "sep" | "delimiter" => {
            let byte = mark(given).and_then(|mark| mark.0);
            let byte = byte.filter(|byte| !matches!(byte, b'\n' | b'\r' | b'"'));
            options.delimiter = Some(byte.ok_or("one ASCII character")?);
        }
        "quote" => options.quote = Some(mark(given).ok_or("one ASCII character, or none")?),
        "escape" => options.escape = Some(mark(given).ok_or("one ASCII character, or none")?),
        "header" => options.header = Some(flag()?),
        "all_varchar" => options.all_varchar = flag()?,
        "null_padding" => options.null_padding = flag()?,
        "ignore_errors" => options.ignore_errors = flag()?,
        "strict_mode" => options.tolerant = !flag()?,
        "encoding" => {
            let known = one(given).and_then(encoding);
            options.encoding = Some(known.ok_or("'utf-8', 'utf-16' or 'latin-1'")?);
        }
        "skip" => {
            let lines = one(given).and_then(|digits| digits.parse().ok());
            options.skip = lines.filter(|count| *count <= MAX_SKIP).ok_or("a number of lines")?;
        }
        "comment" => {
            let byte = mark(given).map(|mark| mark.0);
            let fits = |byte: &Option<u8>| {
                byte.is_none_or(|byte| !byte.is_ascii_alphanumeric() && byte > b' ' && byte != b'"')
            };
            options.comment = Some(Mark(byte.filter(fits).ok_or("one ASCII mark, or none")?));
        }
        "decimal" | "decimal_separator" => {
            let known = one(given).filter(|text| matches!(*text, "." | ","));
            let known = known.and_then(|text| text.chars().next());
            options.notation.decimal = known.ok_or("'.' or ','")?;
        }
        "thousands" | "thousands_separator" => {
            options.notation.thousands = match one(given) {
                Some("") => None,
                Some("." | "," | "'" | " " | "_") => one(given).and_then(|one| one.chars().next()),
                _ => return Err("'.', ',', an apostrophe, a space or '_'"),
            };
        }
        "nullstr" | "null" => {
            options.nulls = Some(words(given).ok_or("a text or a list of up to 64")?)
        }
        "dateformat" | "date_format" => {
            set_formats(options, given, false).ok_or(DATE_FORMAT)?;
        }
        "timestampformat" | "timestamp_format" => {
            set_formats(options, given, true).ok_or(TIME_FORMAT)?;
        }
        "names" | "types" | "dtypes" | "column_types" | "columns" => {
            set_columns(options, name, given)?
        }
        _ => return Ok(false),
    }
    Ok(true)
}

const DATE_FORMAT: What = "a format, or formats of columns by name, such as '%d.%m.%Y' of %d, %m, %b, %B, %j, %y, %Y, %a, %A";
const TIME_FORMAT: What =
    "a format such as '%d.%m.%Y %H:%M:%S' of these of dates and of %H, %I, %M, %S, .%f, %p, %z";

/// Sets the format of all columns, or formats of columns by their names.
fn set_formats(options: &mut CsvOptions, given: &CsvOption, has_clock: bool) -> Option<()> {
    let formats = given.values.iter().map(|text| format(text, has_clock));
    let mut formats: Vec<String> = formats.collect::<Option<_>>()?;
    if given.keys.is_empty() {
        let only = formats.pop().filter(|_| formats.is_empty())?;
        let notation = &mut options.notation;
        *(if has_clock { &mut notation.time } else { &mut notation.date }) = Some(only);
        return Some(());
    }
    for (column, format) in given.keys.iter().cloned().zip(formats) {
        let format = TimeFormat { column, format, has_clock, for_all_tables: false };
        options.formats.push(format);
    }
    Some(())
}

fn set_columns(options: &mut CsvOptions, name: &str, given: &CsvOption) -> Result<(), What> {
    if given.values.is_empty() || given.values.len() > MAX_COLUMNS {
        return Err("a list of columns");
    }
    let types = || -> Result<Vec<DataType>, What> {
        let types = given.values.iter().map(|text| sql_type(text));
        types.collect::<Option<_>>().ok_or(TYPES)
    };
    let keys = || given.keys.clone();
    options.for_all_tables &= name == "names";
    match name {
        "names" if given.keys.is_empty() => options.names = given.values.clone(),
        "names" => return Err("a list of names"),
        "columns" if given.keys.is_empty() => return Err("{'name': 'TYPE', ...}, of all columns"),
        "columns" => {
            options.types = Types::Places(types()?);
            (options.names, options.all_columns) = (keys(), true);
        }
        _ if given.keys.is_empty() => options.types = Types::Places(types()?),
        _ => options.types = Types::Names(keys().into_iter().zip(types()?).collect()),
    }
    let mut names: Vec<String> = options.names.iter().map(|name| name.to_lowercase()).collect();
    names.sort_unstable();
    match names.windows(2).any(|pair| pair[0] == pair[1]) || names.iter().any(String::is_empty) {
        true => Err("a list of different names"),
        false => Ok(()),
    }
}

const TYPES: What = "of the types BOOLEAN, TINYINT, SMALLINT, INTEGER, BIGINT, REAL, DOUBLE, \
                     DECIMAL(p, s), VARCHAR, DATE, TIME, TIMESTAMP and TIMESTAMPTZ";

/// A character of one byte, or an empty text for none. A tab may also be written as `\t`.
fn mark(given: &CsvOption) -> Option<Mark> {
    match one(given)?.as_bytes() {
        [] => Some(Mark(None)),
        br"\t" => Some(Mark(Some(b'\t'))),
        [byte] if byte.is_ascii() => Some(Mark(Some(*byte))),
        _ => None,
    }
}

fn words(given: &CsvOption) -> Option<Vec<String>> {
    let short = given.values.iter().all(|word| word.len() <= MAX_WORD_BYTES);
    let fits = given.keys.is_empty() && (1..=MAX_NULLS).contains(&given.values.len()) && short;
    fits.then(|| given.values.clone())
}

/// A format of chrono, from one of `strptime`. `None` for one that says no whole date, or more.
fn format(text: &str, time: bool) -> Option<String> {
    // A fraction in chrono's form has its point.
    let text = text.replace(".%f", "%.f").replace("%-", "%");
    let mut found = Vec::new();
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c == '%' {
            found.push(rest.next()?);
        }
    }
    let has = |some: &[char]| found.iter().any(|c| some.contains(c));
    let fraction = text.matches("%.f").count() == 1;
    let known = |c: &char| match c {
        'd' | 'm' | 'b' | 'B' | 'j' | 'y' | 'Y' | 'a' | 'A' => true,
        'H' | 'I' | 'M' | 'S' | 'p' | 'z' => time,
        '.' => time && fraction,
        '%' => true,
        _ => false,
    };
    let day = has(&['j']) || has(&['d']) && has(&['m', 'b', 'B']);
    let clock = has(&['H']) && has(&['M']) || has(&['I']) && has(&['p']) && has(&['M']);
    let fits = found.iter().all(known) && has(&['y', 'Y']) && day && (clock || !time);
    fits.then_some(text)
}

/// The type of a column, from its name in SQL.
fn sql_type(text: &str) -> Option<DataType> {
    let name: String = text.to_uppercase().split_whitespace().collect::<Vec<_>>().join(" ");
    let (base, digits) = match name.split_once('(') {
        Some((base, digits)) => (base.trim(), Some(digits.strip_suffix(')')?)),
        None => (name.as_str(), None),
    };
    let of_digits = matches!(base, "DECIMAL" | "NUMERIC" | "VARCHAR" | "CHAR");
    if digits.is_some() && !of_digits {
        return None;
    }
    Some(match base {
        "BOOLEAN" | "BOOL" => DataType::Boolean,
        "TINYINT" => DataType::Int8,
        "SMALLINT" | "INT2" => DataType::Int16,
        "INTEGER" | "INT" | "INT4" => DataType::Int32,
        "BIGINT" | "INT8" => DataType::Int64,
        "REAL" | "FLOAT" | "FLOAT4" => DataType::Float32,
        "DOUBLE" | "DOUBLE PRECISION" | "FLOAT8" => DataType::Float64,
        "VARCHAR" | "TEXT" | "STRING" | "CHAR" => DataType::Utf8,
        "DATE" => DataType::Date32,
        "TIME" => DataType::Time64(TimeUnit::Microsecond),
        "TIMESTAMP" | "DATETIME" => DataType::Timestamp(TimeUnit::Microsecond, None),
        "TIMESTAMPTZ" | "TIMESTAMP WITH TIME ZONE" => {
            DataType::Timestamp(TimeUnit::Microsecond, Some("+00:00".into()))
        }
        "HUGEINT" => DataType::Decimal128(38, 0),
        "DECIMAL" | "NUMERIC" => decimal(digits.unwrap_or("18, 3"))?,
        _ => return None,
    })
}

fn decimal(digits: &str) -> Option<DataType> {
    let (precision, scale) = digits.split_once(',').unwrap_or((digits, "0"));
    let (precision, scale): (u8, i8) = (precision.trim().parse().ok()?, scale.trim().parse().ok()?);
    let fits = (1..=38).contains(&precision) && scale >= 0 && scale.unsigned_abs() <= precision;
    fits.then_some(DataType::Decimal128(precision, scale))
}

/// The encoding of a name, as other programs write it.
fn encoding(name: &str) -> Option<Encoding> {
    let plain: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    Some(match plain.to_ascii_lowercase().as_str() {
        "utf8" | "ascii" | "usascii" => Encoding::Utf8,
        "latin1" | "iso88591" | "windows1252" | "cp1252" => Encoding::Latin1,
        "utf16" | "utf16le" => Encoding::Utf16Le,
        "utf16be" => Encoding::Utf16Be,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(name: &str, keys: &[&str], values: &[&str]) -> CsvOption {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        CsvOption { name: name.to_owned(), keys: texts(keys), values: texts(values) }
    }

    #[test]
    fn formats_say_a_whole_date() {
        for (text, time, expected) in [
            ("%d.%m.%Y", false, Some("%d.%m.%Y")),
            ("%-d/%-m/%y", false, Some("%d/%m/%y")),
            ("%d %B %Y", false, Some("%d %B %Y")),
            ("%d.%m.%Y %H:%M:%S.%f", true, Some("%d.%m.%Y %H:%M:%S%.f")),
            ("%m/%d/%Y %I:%M %p", true, Some("%m/%d/%Y %I:%M %p")),
            ("%m/%d/%Y %I:%M", true, None),
            ("%m/%Y", false, None),
            ("%d.%m.%Y %H", false, None),
            ("%d.%m.%Y", true, None),
            ("%d.%m.%Y %Q", false, None),
            ("%d.%m.%Y %", false, None),
            ("%d.%m.%Y %H:%M%.3f", true, None),
            ("", false, None),
        ] {
            assert_eq!(format(text, time).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn types_are_those_of_sql() {
        for (text, expected) in [
            ("bigint", Some(DataType::Int64)),
            ("decimal(10,2)", Some(DataType::Decimal128(10, 2))),
            ("NUMERIC (5)", Some(DataType::Decimal128(5, 0))),
            ("timestamp  with time zone", sql_type("timestamptz")),
            ("varchar(20)", Some(DataType::Utf8)),
            ("decimal(50,2)", None),
            ("decimal(5,6)", None),
            ("bigint(5)", None),
            ("money", None),
        ] {
            assert_eq!(sql_type(text), expected, "{text}");
        }
    }

    #[test]
    fn wrong_options_are_refused_with_what_is_right() {
        for (option, part) in [
            (given("delimm", &[], &[";"]), "`csv` has no option `delimm`"),
            (given("thousands", &[], &["x"]), "is '.', ','"),
            (given("nullstr", &["a"], &["b"]), "a text or a list"),
            (given("types", &["a"], &["money"]), "BIGINT"),
            (given("columns", &[], &["a"]), "of all columns"),
            (given("names", &[], &["a", "A"]), "different names"),
            (given("comment", &[], &["x"]), "one ASCII mark"),
            (given("header", &[], &["maybe"]), "true or false"),
            (given("skip", &[], &["1", "2"]), "a number of lines"),
        ] {
            let report = options(std::slice::from_ref(&option)).unwrap_err().to_string();
            assert!(report.contains("SM-0110") && report.contains(part), "{option:?}: {report}");
            assert!(report.contains("the options of csv are delim, quote"), "{report}");
        }
        let both = [given("decimal", &[], &[","]), given("thousands", &[], &[","])];
        assert!(options(&both).unwrap_err().to_string().contains("same character"));
    }
}
