//! Functions of JSON. A value of JSON is a text here: a member keeps the digits and escapes of its
//! text, without the spaces between its parts.

mod access;
mod contains;
mod path;
mod writer;

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int64Array, ListBuilder, StringArray, StringBuilder,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field};
use datafusion::common::{ScalarValue, plan_err};
use datafusion::error::Result;

use super::column_function::{Plain, wrong};
use crate::sql_semantics::sql_name;
use access::{JsonKind, JsonText};
use path::Path;

/// The largest number of arguments of a function that takes any number of them.
const ANY: usize = usize::MAX;

pub(super) fn all() -> Vec<Plain> {
    vec![
        Plain::new("json", (1, 1), member, |columns, _| {
            texts(columns, |value| Some(value.minified()))
        }),
        Plain::new(
            "json_valid",
            (1, 1),
            |types, _| of_json(types, DataType::Boolean),
            |columns, _| valid(&columns[0]),
        ),
        Plain::new("json_extract", (2, 2), one_or_all, |columns, returned| {
            extract(columns, returned, |value| Some(value.minified()))
        }),
        Plain::new("json_extract_string", (2, 2), one_or_all, |columns, returned| {
            extract(columns, returned, |value| value.text())
        }),
        Plain::new("json_value", (2, 2), member, |columns, _| {
            let is_scalar =
                |it: &JsonText<'_>| !matches!(it.kind(), JsonKind::Object | JsonKind::Array);
            texts(columns, |value| Some(value).filter(is_scalar).map(|value| value.minified()))
        }),
        Plain::new("json_type", (1, 2), member, |columns, _| {
            texts(columns, |value| Some(value.kind().name().to_owned()))
        }),
        Plain::new(
            "json_exists",
            (2, 2),
            |types, _| of_json(types, DataType::Boolean),
            |columns, _| {
                let found = each(columns, |value| Ok(Some(value.is_some())))?;
                Ok(Arc::new(BooleanArray::from(found)))
            },
        ),
        Plain::new(
            "json_array_length",
            (1, 2),
            |types, _| of_json(types, DataType::Int64),
            |columns, _| {
                let lengths = each(columns, |value| value.map(|value| value.length()).transpose())?;
                Ok(Arc::new(Int64Array::from(lengths)))
            },
        ),
        Plain::new(
            "json_keys",
            (1, 2),
            |types, _| of_json(types, list()),
            |columns, _| lists(each(columns, |value| value.map(|value| value.keys()).transpose())?),
        ),
        Plain::new(
            "json_contains",
            (2, 2),
            |types, _| {
                of_json(&types[..1], DataType::Boolean)?;
                of_json(&types[1..], DataType::Boolean)
            },
            |columns, _| contains::all(columns),
        ),
        Plain::new("to_json", (1, 1), text, |columns, _| writer::values(&columns[0])),
        Plain::new("json_array", (0, ANY), text, |columns, _| writer::arrays(columns)),
        Plain::new("json_object", (0, ANY), text, |columns, _| writer::objects(columns)),
    ]
}

/// The type of a function whose first argument is a text of JSON.
fn of_json(types: &[DataType], returned: DataType) -> Result<DataType> {
    match types.first() {
        Some(DataType::Dictionary(_, value)) if value.is_string() => Ok(returned),
        Some(of) if of.is_string() || of.is_null() => Ok(returned),
        Some(of) => plan_err!("a text of JSON has a type of texts, not {}", sql_name(of)),
        None => Ok(returned),
    }
}

fn member(types: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
    of_json(types, DataType::Utf8)
}

fn text(_: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
    Ok(DataType::Utf8)
}

fn list() -> DataType {
    DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true)))
}

/// Returns the type of `json_extract` and the like: a list for a path with `*`, which must be a
/// constant, and a single value otherwise.
fn one_or_all(types: &[DataType], constants: &[Option<&ScalarValue>]) -> Result<DataType> {
    if let Some(of) = types.get(1)
        && !(of.is_string() || of.is_integer() || of.is_null())
    {
        return plan_err!("a path of JSON has the type VARCHAR or BIGINT");
    }
    of_json(types, DataType::Utf8)?;
    let Some(Some(Some(path))) =
        constants.get(1).map(|constant| constant.map(|value| value.try_as_str()))
    else {
        return Ok(DataType::Utf8);
    };
    match path.map(Path::parse) {
        Some(Ok(path)) if path.finds_many() => Ok(list()),
        _ => Ok(DataType::Utf8),
    }
}

/// The first argument as texts, and the second, if there is one, as paths.
struct Arguments {
    texts: ArrayRef,
    paths: Option<ArrayRef>,
}

impl Arguments {
    fn of(columns: &[ArrayRef]) -> Result<Self> {
        let texts = cast(&columns[0], &DataType::Utf8)?;
        let paths = columns.get(1).map(|paths| cast(paths, &DataType::Utf8)).transpose()?;
        Ok(Self { texts, paths })
    }

    /// Calls a function with the text and the path of each row that has no null.
    fn each<T>(
        &self,
        indexes: bool,
        mut row: impl FnMut(&str, &Path) -> Result<Option<T>>,
    ) -> Result<Vec<Option<T>>> {
        let texts = self.texts.as_string::<i32>();
        let paths = self.paths.as_ref().map(|paths| paths.as_string::<i32>());
        let mut known: Option<(&str, Path)> = None;
        let mut all = Vec::with_capacity(texts.len());
        for index in 0..texts.len() {
            if texts.is_null(index) || paths.is_some_and(|paths| paths.is_null(index)) {
                all.push(None);
                continue;
            }
            let written = paths.map_or("$", |paths| paths.value(index));
            if known.as_ref().is_none_or(|(text, _)| *text != written) {
                let path = if indexes { Path::of_index(written)? } else { Path::parse(written)? };
                known = Some((written, path));
            }
            all.push(match &known {
                Some((_, path)) => row(texts.value(index), path)?,
                None => None,
            });
        }
        Ok(all)
    }
}

fn indexes(columns: &[ArrayRef]) -> bool {
    columns.get(1).is_some_and(|paths| paths.data_type().is_integer())
}

/// Applies `compute` to the JSON value at the path of each row, or to `None` where there is no such
/// value. A path with `*` is an error.
fn each<T>(
    columns: &[ArrayRef],
    compute: impl Fn(Option<JsonText<'_>>) -> Result<Option<T>>,
) -> Result<Vec<Option<T>>> {
    Arguments::of(columns)?.each(indexes(columns), |text, path| {
        if path.finds_many() {
            let hint = "write the path with * as a constant of json_extract";
            return Err(wrong("a path with * is not a single value".to_owned(), hint));
        }
        compute(JsonText::of(text)?.one(path)?)
    })
}

fn texts(
    columns: &[ArrayRef],
    compute: impl Fn(JsonText<'_>) -> Option<String>,
) -> Result<ArrayRef> {
    let texts = each(columns, |found| Ok(found.and_then(&compute)))?;
    Ok(Arc::new(StringArray::from(texts)))
}

fn extract(
    columns: &[ArrayRef],
    returned: &DataType,
    compute: impl Fn(JsonText<'_>) -> Option<String>,
) -> Result<ArrayRef> {
    if !matches!(returned, DataType::List(_)) {
        return texts(columns, compute);
    }
    lists(Arguments::of(columns)?.each(false, |text, path| {
        let all = JsonText::of(text)?.all(path)?;
        Ok(Some(all.into_iter().map(&compute).collect()))
    })?)
}

fn lists(rows: Vec<Option<Vec<Option<String>>>>) -> Result<ArrayRef> {
    let mut lists = ListBuilder::new(StringBuilder::new());
    for row in rows {
        let is_there = row.is_some();
        row.into_iter().flatten().for_each(|value| lists.values().append_option(value));
        lists.append(is_there);
    }
    Ok(Arc::new(lists.finish()))
}

fn valid(column: &ArrayRef) -> Result<ArrayRef> {
    let texts = cast(column, &DataType::Utf8)?;
    let texts = texts.as_string::<i32>().iter();
    let all: BooleanArray = texts.map(|text| text.map(|text| JsonText::of(text).is_ok())).collect();
    Ok(Arc::new(all))
}
