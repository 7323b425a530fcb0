//! `json_contains(json, part)`: whether a value, or one inside of it, has all that a part has.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::error::Result;
use serde_json::Value;

use super::access::JsonText;

pub(super) fn all(columns: &[ArrayRef]) -> Result<ArrayRef> {
    let texts = cast(&columns[0], &DataType::Utf8)?;
    let parts = cast(&columns[1], &DataType::Utf8)?;
    let pairs = texts.as_string::<i32>().iter().zip(parts.as_string::<i32>());
    let found = pairs.map(|pair| match pair {
        (Some(text), Some(part)) => {
            let text = JsonText::of(text)?.value()?;
            let part = JsonText::of(part)?.value()?;
            Ok(Some(contains(&text, &part)))
        }
        _ => Ok(None),
    });
    Ok(Arc::new(found.collect::<Result<BooleanArray>>()?))
}

fn contains(value: &Value, part: &Value) -> bool {
    let is_inside = |inner: &Value| contains(inner, part);
    has(value, part)
        || match value {
            Value::Array(values) => values.iter().any(is_inside),
            Value::Object(members) => members.values().any(is_inside),
            _ => false,
        }
}

/// Whether a value has all members or elements of a part, in any order, or is the same scalar.
fn has(value: &Value, part: &Value) -> bool {
    match (value, part) {
        (Value::Array(values), Value::Array(parts)) => {
            parts.iter().all(|part| values.iter().any(|value| has(value, part)))
        }
        (Value::Object(members), Value::Object(parts)) => {
            parts.iter().all(|(name, part)| members.get(name).is_some_and(|value| has(value, part)))
        }
        (value, part) => value == part,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answers are DuckDB's.
    #[test]
    fn parts_are_found_at_every_depth() {
        for (value, part, found) in [
            (r#"{"a":{"b":1}}"#, r#"{"a":{}}"#, true),
            ("[1,[2,3]]", "[3]", true),
            (r#"{"a":[1,2]}"#, r#"{"a":[2]}"#, true),
            (r#"{"x":{"a":1}}"#, r#"{"a":1}"#, true),
            (r#"[{"a":1}]"#, r#"{"a":1}"#, true),
            ("[1,1]", "[1,1,1]", true),
            ("1.0", "1", false),
            ("[1]", "[2]", false),
            (r#"{"a":1}"#, r#"{"b":1}"#, false),
        ] {
            let json = |text| serde_json::from_str::<Value>(text).unwrap();
            assert_eq!(contains(&json(value), &json(part)), found, "{value} {part}");
        }
    }
}
