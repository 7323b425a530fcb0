//! Literals of bytes: `'\x41ff'::bytea` as in PostgreSQL, `'a\xFF'::blob` as in DuckDB.
//!
//! The planner takes the bytes of the text as they are written.

use std::fmt::Write;

use datafusion::sql::sqlparser::ast::{CastKind, DataType, Expr, Value};

use super::cast;
use super::literal::text;

/// Whether a type is one of bytes.
pub(super) fn is_bytes(data_type: &DataType) -> bool {
    use DataType::*;
    matches!(data_type, Bytea | Blob(_) | Binary(_) | Varbinary(_) | Bytes(_))
}

/// Writes a cast to a type of bytes: of a text in quotes with a backslash as its bytes, and of
/// anything else as a cast to the type that the planner knows.
pub(super) fn cast_of(expr: &Expr, data_type: &DataType, kind: &CastKind) -> Option<Expr> {
    if !is_bytes(data_type) {
        return None;
    }
    match text(expr).and_then(digits) {
        Some(digits) => Some(Expr::Value(Value::HexStringLiteral(digits).into())),
        None => Some(cast(kind.clone(), expr.clone(), DataType::Bytea)),
    }
}

/// Whether a text with a backslash is one of bytes.
pub(super) fn is_valid(expr: &Expr) -> bool {
    text(expr).is_none_or(|text| !text.contains('\\') || digits(text).is_some())
}

/// The hexadecimal digits of bytes; `None` for a text without a backslash, and for one that is none.
fn digits(text: &str) -> Option<String> {
    if let Some(hex) = text.strip_prefix("\\x")
        && hex.len().is_multiple_of(2)
        && hex.bytes().all(|byte| byte.is_ascii_hexdigit())
    {
        return Some(hex.to_lowercase());
    }
    let mut digits = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('\\') {
        push(&mut digits, before);
        let (pair, left) = match behind.strip_prefix('\\') {
            Some(left) => ("5c", left),
            None => behind.strip_prefix('x')?.split_at_checked(2)?,
        };
        if !pair.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        digits.push_str(&pair.to_lowercase());
        rest = left;
    }
    push(&mut digits, rest);
    text.contains('\\').then_some(digits)
}

fn push(digits: &mut String, text: &str) {
    for byte in text.bytes() {
        _ = write!(digits, "{byte:02x}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backslashes_are_read() {
        for (text, expected) in [
            (r"\x41ff", Some("41ff")),
            (r"\x", Some("")),
            (r"a\xFFb", Some("61ff62")),
            (r"\x41\x42", Some("4142")),
            (r"a\\", Some("615c")),
            ("é", None),
            (r"\x4", None),
            (r"\z", None),
            (r"\xzz", None),
        ] {
            assert_eq!(digits(text).as_deref(), expected, "{text}");
        }
    }
}
