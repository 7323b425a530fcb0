//! Turns escaped quotation marks into doubled ones.
//!
//! The decoder has an option for escapes, but it drops each escape, whatever stands behind it:
//! `"C:\new"` would become `C:new`. Here, as in PostgreSQL, an escape only stands before a mark or
//! another escape; elsewhere it is a part of the value.

use std::borrow::Cow;

use crate::read::Dialect;

/// Whole records with doubled marks instead of escaped ones.
pub(crate) fn doubled<'r>(records: &'r [u8], dialect: &Dialect) -> Cow<'r, [u8]> {
    let (Some(quote), Some(escape)) = (dialect.quote, dialect.escape) else {
        return Cow::Borrowed(records);
    };
    let mut text = Vec::with_capacity(records.len() + 16);
    let mut starts = true;
    let mut quoted = false;
    let mut at = 0;
    while let Some(byte) = records.get(at).copied() {
        at += 1;
        if !quoted {
            text.push(byte);
            quoted = starts && byte == quote;
            starts = byte == dialect.delimiter || byte == b'\n' || byte == b'\r';
            continue;
        }
        let next = records.get(at).copied();
        match next {
            Some(next) if byte == escape && (next == quote || next == escape) => {
                at += 1;
                // A mark is doubled, an escape is not.
                text.push(next);
                if next == quote {
                    text.push(quote);
                }
            }
            Some(next) if byte == quote && next == quote => {
                at += 1;
                text.extend_from_slice(&[quote, quote]);
            }
            _ => {
                text.push(byte);
                quoted = byte != quote;
                starts = false;
            }
        }
    }
    Cow::Owned(text)
}

#[cfg(test)]
mod tests {
    use snowmelt_files::Format;

    use super::*;

    #[test]
    fn only_escapes_before_marks_and_escapes_are_replaced() {
        let plain = Dialect::of(Format::Csv);
        let escaped = Dialect { escape: Some(b'\\'), ..plain.clone() };
        for (text, expected) in [
            (r#""he said \"hi\"",2"#, r#""he said ""hi""",2"#),
            (r#""C:\new","a\\",3"#, r#""C:\new","a\",3"#),
            (r#"a\"b,"c""d""#, r#"a\"b,"c""d""#),
            ("\"x\\\"\n,\",\"y\"\n", "\"x\"\"\n,\",\"y\"\n"),
        ] {
            let found = doubled(text.as_bytes(), &escaped);
            assert_eq!(String::from_utf8_lossy(&found), expected, "{text}");
            assert!(matches!(doubled(text.as_bytes(), &plain), Cow::Borrowed(_)));
        }
    }
}
