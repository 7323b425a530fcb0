//! `regexp_extract(text, pattern)`, the first match, and `regexp_extract(text, pattern, group)`,
//! the match of a group in it. Without a match, and for a group that took no part in it, the result
//! is empty.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringBuilder};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use datafusion::common::plan_err;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};
use regex::Regex;
use snowmelt_types::{Code, ErrorReport};

use crate::sql_functions::of_columns;

/// The function.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct RegexpExtract {
    signature: Signature,
}

impl Default for RegexpExtract {
    fn default() -> Self {
        let forms = vec![
            TypeSignature::Exact(vec![DataType::Utf8, DataType::Utf8]),
            TypeSignature::Exact(vec![DataType::Utf8, DataType::Utf8, DataType::Int64]),
        ];
        Self { signature: Signature::one_of(forms, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for RegexpExtract {
    fn name(&self) -> &str {
        "regexp_extract"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types.len() {
            2 | 3 => Ok(DataType::Utf8),
            _ => plan_err!("`regexp_extract` takes two or three arguments"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        of_columns(&args, extracted)
    }
}

fn extracted(columns: &[ArrayRef]) -> Result<ArrayRef> {
    let mut found = StringBuilder::new();
    for_each_row(columns, |row| {
        match row {
            Some(ExtractRow { pattern, text, group }) => {
                found.append_value(first(pattern, text, group)?)
            }
            None => found.append_null(),
        }
        Ok(())
    })?;
    Ok(Arc::new(found.finish()))
}

/// The arguments of a row.
pub(crate) struct ExtractRow<'a> {
    pub(super) pattern: &'a Regex,
    pub(super) text: &'a str,
    /// The number of a group; 0 is the whole match.
    pub(super) group: i64,
}

/// Calls a function for each row of texts, patterns and, if there is a third column, groups; with
/// `None` where one of them is null. A pattern is compiled once.
pub(crate) fn for_each_row(
    columns: &[ArrayRef],
    mut take: impl FnMut(Option<ExtractRow<'_>>) -> Result<()>,
) -> Result<()> {
    let text = |column: &ArrayRef| cast(column, &DataType::Utf8);
    let texts = text(&columns[0])?;
    let texts = texts.as_string::<i32>();
    let patterns = text(&columns[1])?;
    let patterns = patterns.as_string::<i32>();
    let groups = columns.get(2).map(|groups| cast(groups, &DataType::Int64)).transpose()?;
    let groups = groups.as_ref().map(|groups| groups.as_primitive::<Int64Type>());
    let mut known = HashMap::new();
    for row in 0..texts.len() {
        let is_null = texts.is_null(row)
            || patterns.is_null(row)
            || groups.is_some_and(|groups| groups.is_null(row));
        if is_null {
            take(None)?;
            continue;
        }
        let pattern = patterns.value(row);
        if !known.contains_key(pattern) {
            known.insert(pattern, compiled(pattern)?);
        }
        let group = groups.map_or(0, |groups| groups.value(row));
        take(Some(ExtractRow { pattern: &known[pattern], text: texts.value(row), group }))?;
    }
    Ok(())
}

fn first<'t>(pattern: &Regex, text: &'t str, group: i64) -> Result<&'t str> {
    let number = group_of(pattern, group)?;
    let captures = pattern.captures(text);
    Ok(captures.and_then(|found| found.get(number)).map_or("", |found| found.as_str()))
}

/// Checks that a pattern has a group, and returns the group's number.
pub(crate) fn group_of(pattern: &Regex, group: i64) -> Result<usize> {
    let number = usize::try_from(group).ok().filter(|number| *number < pattern.captures_len());
    number.ok_or_else(|| {
        let most = pattern.captures_len() - 1;
        let message = format!("the pattern `{pattern}` has no group {group}");
        wrong(message, &format!("its groups are 0, which is all of it, to {most}"))
    })
}

fn compiled(pattern: &str) -> Result<Regex> {
    Regex::new(pattern).map_err(|error| {
        let reason = error.to_string();
        let last = reason.lines().last().unwrap_or_default().trim_start_matches("error: ");
        let message = format!("`{pattern}` is no regular expression: {last}");
        wrong(message, "look-around and references to groups are not supported")
    })
}

fn wrong(message: String, hint: &str) -> DataFusionError {
    let report = ErrorReport::new(Code::SQL_VALUE, message).hint(hint);
    DataFusionError::External(Box::new(report))
}
