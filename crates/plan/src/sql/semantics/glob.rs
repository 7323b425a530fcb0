//! The patterns of GLOB as regular expressions.
//!
//! A pattern is that of the whole text; `*` stands for any characters, `?` for one, `[a-z]` and
//! `[!a-z]` for one of a class or of its rest. Behind a backslash, a character is itself.

use super::similar::push_itself;

/// The name of the operator, for which the parser has none.
pub(crate) const OPERATOR: &str = "GLOB";

/// The regular expression of a pattern; `None` if the pattern is not valid.
pub(super) fn expression(pattern: &str) -> Option<String> {
    let mut expression = String::from("(?s)^(?:");
    let mut rest = pattern.chars().peekable();
    while let Some(next) = rest.next() {
        match next {
            '\\' => push_itself(&mut expression, rest.next()?),
            '*' => expression.push_str(".*"),
            '?' => expression.push('.'),
            '[' => push_class(&mut expression, &mut rest)?,
            next => push_itself(&mut expression, next),
        }
    }
    expression.push_str(")$");
    Some(expression)
}

/// A class of characters, up to its bracket, which may be the first of them.
fn push_class(
    expression: &mut String,
    rest: &mut std::iter::Peekable<std::str::Chars<'_>>,
) -> Option<()> {
    expression.push('[');
    if rest.next_if_eq(&'!').is_some() {
        expression.push('^');
    }
    let mut is_first = true;
    loop {
        match rest.next()? {
            ']' if !is_first => break,
            // A range, unless it is first or last.
            '-' if !is_first && rest.peek() != Some(&']') => expression.push('-'),
            '\\' => push_itself(expression, rest.next()?),
            next => push_itself(expression, next),
        }
        is_first = false;
    }
    expression.push(']');
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_of_the_whole_text() {
        for (pattern, expected) in [
            ("a*", Some("(?s)^(?:a.*)$")),
            ("a?.c", Some(r"(?s)^(?:a.\.c)$")),
            ("[a-c]x", Some("(?s)^(?:[a-c]x)$")),
            ("[!a-c]", Some("(?s)^(?:[^a-c])$")),
            ("[]^-]", Some(r"(?s)^(?:[\]\^\-])$")),
            (r"\*\[", Some(r"(?s)^(?:\*\[)$")),
            ("[a", None),
            ("a\\", None),
        ] {
            assert_eq!(expression(pattern).as_deref(), expected, "{pattern}");
        }
    }
}
