//! Replaces the escapes of characters beyond U+FFFF in JSON by the characters.
//!
//! Such a character is escaped as two halves, a surrogate pair. The decoder joins them with OR where
//! a sum is needed: characters of planes 2, 4 and so on become others of the plane before.

use std::borrow::Cow;

use crate::read::dialect::quotes::position;

/// Length of the escape of one half.
const ESCAPE: usize = 6;

/// The text with characters instead of surrogate pairs. Unchanged if it has none.
pub(crate) fn joined(text: &[u8]) -> Cow<'_, [u8]> {
    let mut joined = Vec::new();
    let mut copied = 0;
    let mut at = 0;
    while let Some(found) = position(&text[at..], b'\\') {
        at += found;
        let Some(character) = pair(&text[at..]) else {
            // What is escaped does not begin another escape.
            at = text.len().min(at + 2);
            continue;
        };
        joined.extend_from_slice(&text[copied..at]);
        joined.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        at += 2 * ESCAPE;
        copied = at;
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    joined.extend_from_slice(&text[copied..]);
    Cow::Owned(joined)
}

/// The character of the pair that a text begins with.
fn pair(text: &[u8]) -> Option<char> {
    let units = [unit(text)?, unit(text.get(ESCAPE..)?)?];
    let mut decoded = char::decode_utf16(units);
    decoded.next()?.ok().filter(|character| character.len_utf16() == 2)
}

fn unit(text: &[u8]) -> Option<u16> {
    let digits = text.strip_prefix(b"\\u")?.get(..ESCAPE - 2)?;
    let digit = |unit: u16, digit: &u8| {
        let digit = char::from(*digit).to_digit(16)?;
        Some(unit << 4 | digit as u16)
    };
    digits.iter().try_fold(0, digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pairs_are_replaced() {
        for (text, expected) in [
            (r#"{"s":"\ud842\udfb7!"}"#, "{\"s\":\"\u{20bb7}!\"}"),
            (r"\uDBFF\uDFFF\ud83d\ude00", "\u{10ffff}\u{1f600}"),
            (r"\\ud842\udfb7", r"\\ud842\udfb7"),
            (r"\\\ud842\udfb7", "\\\\\u{20bb7}"),
            (r"\ud842 \udfb7", r"\ud842 \udfb7"),
            (r"\udfb7\ud842", r"\udfb7\ud842"),
            (r"\u00e9\u0041\ud842", r"\u00e9\u0041\ud842"),
            (r"\ud842\udfb", r"\ud842\udfb"),
            ("\\", "\\"),
            ("", ""),
        ] {
            assert_eq!(joined(text.as_bytes()), expected.as_bytes(), "{text}");
        }
        assert!(matches!(joined(b"{\"s\":\"\\n\"}"), Cow::Borrowed(_)));
    }
}
