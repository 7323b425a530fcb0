//! `regexp_split_to_array(text, pattern)`, and `regexp_extract_all(text, pattern, group)`, the list of
//! all matches.

use std::sync::Arc;

use arrow::array::{ArrayRef, ListBuilder, StringBuilder};
use arrow::datatypes::{DataType, Field};
use datafusion::common::{ScalarValue, plan_err};
use datafusion::error::Result;
use regex::Regex;

use super::regexp_extract::{ExtractRow, for_each_row, group_of};
use crate::sql_functions::column_function::Plain;

pub(crate) fn all() -> Vec<Plain> {
    vec![
        Plain::new("regexp_split_to_array", (2, 2), returns, |columns, _| {
            lists(columns, &|pattern, text, _| Ok(split(pattern, text)))
        }),
        Plain::new("regexp_extract_all", (2, 3), returns, |columns, _| {
            lists(columns, &|pattern, text, group| {
                let group = group_of(pattern, group)?;
                let of_match = |found: regex::Captures<'_>| {
                    found.get(group).map_or("", |part| part.as_str()).to_owned()
                };
                Ok(pattern.captures_iter(text).map(of_match).collect())
            })
        }),
    ]
}

fn returns(types: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
    let is_text = |of: &DataType| of.is_string() || of.is_null();
    let is_group = types.get(2).is_none_or(|of| of.is_integer() || of.is_null());
    match types.iter().take(2).all(is_text) && is_group {
        true => Ok(DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true)))),
        false => {
            plan_err!("this function takes a text, a regular expression, and a group's number")
        }
    }
}

type OfRow<'a> = &'a dyn Fn(&Regex, &str, i64) -> Result<Vec<String>>;

fn lists(columns: &[ArrayRef], of_row: OfRow<'_>) -> Result<ArrayRef> {
    let mut lists = ListBuilder::new(StringBuilder::new());
    for_each_row(columns, |row| {
        match row {
            Some(ExtractRow { pattern, text, group }) => {
                lists.append_value(of_row(pattern, text, group)?.into_iter().map(Some));
            }
            None => lists.append_null(),
        }
        Ok(())
    })?;
    Ok(Arc::new(lists.finish()))
}

/// Splits a text at the matches of a pattern as PostgreSQL: an empty match does not split at the
/// begin or the end of the text, nor behind another match.
fn split(pattern: &Regex, text: &str) -> Vec<String> {
    let mut parts = Vec::new();
    let mut begin = 0;
    for found in pattern.find_iter(text) {
        let is_kept = !found.is_empty() || (found.start() > begin && found.end() < text.len());
        if is_kept {
            parts.push(text[begin..found.start()].to_owned());
            begin = found.end();
        }
    }
    parts.push(text[begin..].to_owned());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_split_at_matches() {
        for (pattern, text, expected) in [
            (r"\s+", "a  b c", &["a", "b", "c"][..]),
            ("", "abc", &["a", "b", "c"]),
            (",", ",a,", &["", "a", ""]),
            (",", "", &[""]),
            ("x*", "axxb", &["a", "b"]),
        ] {
            assert_eq!(split(&Regex::new(pattern).unwrap(), text), expected, "{pattern}");
        }
    }
}
