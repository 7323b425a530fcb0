//! Parts of paths, as in DuckDB: `parse_filename`, `parse_path`, `parse_dirname` and `parse_dirpath`.
//!
//! `/` and `\` separate parts; the last argument may name one of them.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListBuilder, StringArray, StringBuilder};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field};
use datafusion::common::{ScalarValue, plan_err};
use datafusion::error::Result;

use crate::sql_functions::column_function::{Plain, wrong};

pub(crate) fn all() -> Vec<Plain> {
    let text = |types: &[DataType], _: &[Option<&ScalarValue>]| takes(types, DataType::Utf8);
    let list = |types: &[DataType], _: &[Option<&ScalarValue>]| {
        takes(types, DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true))))
    };
    vec![
        Plain::new("parse_filename", (1, 3), text, |columns, _| texts(columns, file_name)),
        Plain::new("parse_dirname", (1, 2), text, |columns, _| {
            texts(columns, |path, by, _| first_folder(path, by))
        }),
        Plain::new("parse_dirpath", (1, 2), text, |columns, _| {
            texts(columns, |path, by, _| folders(path, by))
        }),
        Plain::new("parse_path", (1, 2), list, |columns, _| {
            let mut lists = ListBuilder::new(StringBuilder::new());
            for_each_path(columns, |row| match row {
                Some((path, by, _)) => lists.append_value(parts(path, by).into_iter().map(Some)),
                None => lists.append_null(),
            })?;
            Ok(Arc::new(lists.finish()))
        }),
    ]
}

fn takes(types: &[DataType], returned: DataType) -> Result<DataType> {
    let is_text = |of: &DataType| of.is_string() || of.is_null();
    let is_path = types.first().is_some_and(is_text);
    let [further @ .., last] = types.get(1..).unwrap_or_default() else {
        return if is_path { Ok(returned) } else { no_path() };
    };
    let is_flag = |of: &DataType| matches!(of, DataType::Boolean | DataType::Null);
    match is_path && further.iter().all(is_flag) && (is_text(last) || is_flag(last)) {
        true => Ok(returned),
        false => no_path(),
    }
}

fn no_path() -> Result<DataType> {
    plan_err!("this function takes a path, and 'both_slash', 'forward_slash' or 'backslash'")
}

/// The characters that separate the parts of a path.
type Separators = &'static [char];

/// A path, its separators, and whether the extension is left out.
type Row<'a> = (&'a str, Separators, bool);

fn separators(name: &str) -> Result<Separators> {
    match name {
        "both_slash" => Ok(&['/', '\\']),
        "forward_slash" | "system" => Ok(&['/']),
        "backslash" => Ok(&['\\']),
        _ => {
            let message = format!("there are no separators `{name}`");
            Err(wrong(message, "they are 'both_slash', 'forward_slash', 'backslash' or 'system'"))
        }
    }
}

/// Calls a function with each path, and with `None` where an argument is null.
fn for_each_path(columns: &[ArrayRef], mut take: impl FnMut(Option<Row<'_>>)) -> Result<()> {
    let paths = cast(&columns[0], &DataType::Utf8)?;
    let paths = paths.as_string::<i32>();
    let further = &columns[1..];
    let flags = further.iter().find(|column| column.data_type() == &DataType::Boolean);
    let flags = flags.map(|column| column.as_boolean());
    let names = further.iter().find(|column| column.data_type().is_string());
    let names = names.map(|column| cast(column, &DataType::Utf8)).transpose()?;
    let names = names.as_ref().map(|names| names.as_string::<i32>());
    for row in 0..paths.len() {
        if paths.is_null(row) || further.iter().any(|column| column.is_null(row)) {
            take(None);
            continue;
        }
        let by = separators(names.map_or("both_slash", |names| names.value(row)))?;
        take(Some((paths.value(row), by, flags.is_some_and(|flags| flags.value(row)))));
    }
    Ok(())
}

fn texts(
    columns: &[ArrayRef],
    of: impl for<'a> Fn(&'a str, Separators, bool) -> &'a str,
) -> Result<ArrayRef> {
    let mut texts = Vec::with_capacity(columns[0].len());
    for_each_path(columns, |row| {
        texts.push(row.map(|(path, by, trims)| of(path, by, trims).to_owned()));
    })?;
    Ok(Arc::new(StringArray::from(texts)))
}

/// The part behind the last separator, perhaps without its last point and what is behind it.
fn file_name(path: &str, by: Separators, without_extension: bool) -> &str {
    let name = path.rfind(by).map_or(path, |place| &path[place + 1..]);
    match name.rfind('.').filter(|_| without_extension) {
        Some(point) => &name[..point],
        None => name,
    }
}

/// The first part, unless it is the name of the file. That of an absolute path is its separator.
fn first_folder(path: &str, by: Separators) -> &str {
    match path.find(by) {
        Some(place) => &path[..place.max(1)],
        None => "",
    }
}

/// The parts before the last separator.
fn folders(path: &str, by: Separators) -> &str {
    match path.rfind(by) {
        Some(0) if path.len() == 1 => path,
        Some(place) => &path[..place],
        None => "",
    }
}

/// All parts that are not empty, behind the separator of an absolute path.
fn parts(path: &str, by: Separators) -> Vec<&str> {
    let root = path.starts_with(by).then(|| &path[..1]);
    let parts = path.split(by).filter(|part| !part.is_empty());
    root.into_iter().chain(parts).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: Separators = &['/', '\\'];

    /// The answers are DuckDB's.
    #[test]
    fn paths_have_parts() {
        for (path, first, before, all) in [
            ("", "", "", &[][..]),
            ("a", "", "", &["a"]),
            ("/", "/", "/", &["/"]),
            ("a/", "a", "a", &["a"]),
            ("/a", "/", "", &["/", "a"]),
            ("/a/b", "/", "/a", &["/", "a", "b"]),
            ("a//b", "a", "a/", &["a", "b"]),
            (r"a\b/c", "a", r"a\b", &["a", "b", "c"]),
        ] {
            assert_eq!(first_folder(path, BOTH), first, "{path}");
            assert_eq!(folders(path, BOTH), before, "{path}");
            assert_eq!(parts(path, BOTH), all, "{path}");
        }
    }

    #[test]
    fn names_of_files_may_lose_their_extension() {
        for (path, by, whole, without) in [
            ("/a/b/c.txt", BOTH, "c.txt", "c"),
            ("a.b.c", BOTH, "a.b.c", "a.b"),
            (".x", BOTH, ".x", ""),
            ("a/", BOTH, "", ""),
            (r"a\b/c\d", BOTH, "d", "d"),
            (r"a\b/c\d.x", &['/'], r"c\d.x", r"c\d"),
        ] {
            assert_eq!(file_name(path, by, false), whole);
            assert_eq!(file_name(path, by, true), without);
        }
    }
}
