//! Turns escaped quotation marks, and marks that a dialect takes inside of values, into doubled ones.
//!
//! The decoder has an option for escapes, but it drops each escape, whatever stands behind it:
//! `"C:\new"` would become `C:new`. Here, as in PostgreSQL, an escape only stands before a mark or
//! another escape; elsewhere it is a part of the value.

use std::borrow::Cow;

use crate::read::Dialect;

/// Whole records with doubled marks instead of escaped ones.
pub(crate) fn doubled<'r>(records: &'r [u8], dialect: &Dialect) -> Cow<'r, [u8]> {
    let Some(quote) = dialect.quote.filter(|_| dialect.escape.is_some() || dialect.tolerant) else {
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
            Some(next)
                if Some(byte) == dialect.escape
                    && (next == quote || Some(next) == dialect.escape) =>
            {
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
            _ if byte == quote && dialect.tolerant => match end(&records[at..], dialect) {
                None => text.extend_from_slice(&[quote, quote]),
                Some(spaces) => {
                    text.push(quote);
                    at += spaces;
                    (quoted, starts) = (false, false);
                }
            },
            _ => {
                text.push(byte);
                quoted = byte != quote;
                starts = false;
            }
        }
    }
    Cow::Owned(text)
}

/// Returns the number of spaces behind a mark before the next value or record. `None` if the value
/// goes on behind the mark.
fn end(rest: &[u8], dialect: &Dialect) -> Option<usize> {
    let is_space = |byte: &&u8| **byte == b' ' && dialect.delimiter != b' ';
    let spaces = rest.iter().take_while(is_space).count();
    let ends = |byte: u8| byte == dialect.delimiter || byte == b'\n' || byte == b'\r';
    rest.get(spaces).copied().is_none_or(ends).then_some(spaces)
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

    #[test]
    fn marks_inside_of_values_are_doubled() {
        let tolerant = Dialect { tolerant: true, ..Dialect::of(Format::Csv) };
        for (text, expected) in [
            (r#""a "b" c",1"#, r#""a ""b"" c",1"#),
            (r#""a ""b" c","d" ,e"#, r#""a ""b"" c","d",e"#),
            (r#""a" "b",x "y" z"#, r#""a"" ""b",x "y" z"#),
            ("\"a\"b\"\r\n\"\"\n", "\"a\"\"b\"\r\n\"\"\n"),
        ] {
            let found = doubled(text.as_bytes(), &tolerant);
            assert_eq!(String::from_utf8_lossy(&found), expected, "{text}");
        }
    }
}
