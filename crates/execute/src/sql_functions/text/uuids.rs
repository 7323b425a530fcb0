//! UUIDs, which are texts here: checked, and written in the one form that all databases print.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, StringArray, StringBuilder};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::{ScalarValue, plan_err};
use datafusion::error::Result;

use crate::sql_functions::column_function::{Plain, wrong};
use crate::sql_semantics::sql_name;

/// Digits of a UUID, and its bytes.
const DIGITS: usize = 32;
const BYTES: usize = 16;

pub(crate) fn all() -> Vec<Plain> {
    vec![
        Plain::new("as_uuid", (1, 1), text, |columns, _| uuids(&columns[0], false)),
        Plain::new("try_as_uuid", (1, 1), text, |columns, _| uuids(&columns[0], true)),
    ]
}

fn text(types: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
    let [of] = types else { return plan_err!("a UUID is made of one value") };
    match of {
        DataType::Dictionary(_, of) if of.is_string() => Ok(DataType::Utf8),
        of if of.is_string() || of.is_null() || is_bytes(of) => Ok(DataType::Utf8),
        of => plan_err!(
            "Cannot convert {} to a UUID, which is made of a text or of 16 bytes",
            sql_name(of)
        ),
    }
}

/// Parquet's UUIDs are 16 bytes.
fn is_bytes(of: &DataType) -> bool {
    of.is_binary() || matches!(of, DataType::FixedSizeBinary(16))
}

/// UUIDs of texts. A text that is none is an error, or null if `tries`.
fn uuids(column: &ArrayRef, tries: bool) -> Result<ArrayRef> {
    if is_bytes(column.data_type()) {
        let bytes = cast(column, &DataType::Binary)?;
        return of_bytes(bytes.as_binary::<i32>(), tries);
    }
    let texts = cast(column, &DataType::Utf8)?;
    let mut found = StringBuilder::with_capacity(texts.len(), texts.len() * 36);
    for text in texts.as_string::<i32>() {
        let uuid = text.and_then(uuid);
        if let Some(text) = text
            && uuid.is_none()
            && !tries
        {
            let shown: String = text.chars().take(64).collect();
            let message = format!("`{shown}` is no UUID");
            return Err(wrong(
                message,
                "a UUID has 32 hexadecimal digits; try_cast(x AS uuid) \
                                       gives null for other texts",
            ));
        }
        found.append_option(uuid);
    }
    Ok(Arc::new(found.finish()))
}

fn of_bytes(column: &BinaryArray, tries: bool) -> Result<ArrayRef> {
    let wrong_length = column.iter().flatten().find(|bytes| bytes.len() != BYTES);
    if let Some(bytes) = wrong_length.filter(|_| !tries) {
        let message = match bytes.len() {
            1 => "1 byte is no UUID".to_owned(),
            count => format!("{count} bytes are no UUID"),
        };
        return Err(wrong(
            message,
            "a UUID has 16 bytes; try_cast(x AS uuid) gives null for other values",
        ));
    }
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let text = |bytes: Option<&[u8]>| bytes.filter(|bytes| bytes.len() == BYTES).map(hex);
    let texts = column.iter().map(|bytes| text(bytes).map(|digits| written(&digits)));
    Ok(Arc::new(texts.collect::<StringArray>()))
}

/// The UUID of a text: its digits, of which each group of four may end with a hyphen, perhaps in
/// braces, as PostgreSQL reads it.
fn uuid(text: &str) -> Option<String> {
    let inner = match text.strip_prefix('{') {
        Some(rest) => rest.strip_suffix('}')?,
        None => text,
    };
    let mut digits = String::with_capacity(DIGITS);
    let mut before = '-';
    for c in inner.chars() {
        match c {
            '-' if before != '-' && digits.len().is_multiple_of(4) => (),
            c if c.is_ascii_hexdigit() => digits.push(c.to_ascii_lowercase()),
            _ => return None,
        }
        before = c;
    }
    (digits.len() == DIGITS && before != '-').then(|| written(&digits))
}

/// Digits with hyphens at the places where all databases write them.
fn written(digits: &str) -> String {
    let parts = [0..8, 8..12, 12..16, 16..20, 20..DIGITS];
    parts.map(|part| digits.get(part).unwrap_or_default()).join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_has_one_form() {
        const PLAIN: &str = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";
        for text in [
            PLAIN,
            "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11",
            "{a0eebc99-9c0b4ef8-bb6d6bb9-bd380a11}",
            "a0eebc999c0b4ef8bb6d6bb9bd380a11",
        ] {
            assert_eq!(uuid(text).as_deref(), Some(PLAIN), "{text}");
        }
        for text in ["", "x", "a0eebc99", "{a0eebc999c0b4ef8bb6d6bb9bd380a11", "-", " "] {
            assert_eq!(uuid(text), None, "{text}");
        }
        assert_eq!(uuid(&format!("{PLAIN}-")), None);
        assert_eq!(uuid(&PLAIN.replacen("-", "--", 1)), None);
        assert_eq!(uuid(&format!("-{PLAIN}")), None);
        assert_eq!(uuid(&format!("{PLAIN}0")), None);
    }
}
