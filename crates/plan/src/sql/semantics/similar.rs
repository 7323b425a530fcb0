//! The patterns of SIMILAR TO as regular expressions.
//!
//! A pattern is that of the whole text; `%` stands for any characters and `_` for one. `|`, `*`,
//! `+`, `?`, `{…}`, `(…)` and `[…]` are as in regular expressions, all else is itself. DataFusion
//! takes the pattern as a regular expression that may match anywhere.

use datafusion::sql::sqlparser::ast::{Expr, Value};

/// The text of a pattern in quotes.
pub(super) fn text(pattern: &Expr) -> Option<&str> {
    match pattern {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text)
            | Value::EscapedStringLiteral(text)
            | Value::NationalStringLiteral(text) => Some(text),
            _ => None,
        },
        Expr::Nested(inner) => self::text(inner),
        _ => None,
    }
}

/// True for a pattern in quotes, and for null.
pub(super) fn is_literal(pattern: &Expr) -> bool {
    let is_null = matches!(pattern, Expr::Value(value) if value.value == Value::Null);
    is_null || text(pattern).is_some()
}

/// The regular expression of a pattern; `None` if the pattern or its escape is not valid.
pub(super) fn expression(pattern: &str, escape: Option<&Value>) -> Option<String> {
    let escape = match escape {
        None => Some('\\'),
        Some(Value::SingleQuotedString(text)) => {
            let mut characters = text.chars();
            let first = characters.next();
            if characters.next().is_some() {
                return None;
            }
            first
        }
        Some(_) => return None,
    };
    let mut expression = String::from("(?s)^(?:");
    let mut rest = pattern.chars().peekable();
    while let Some(next) = rest.next() {
        match next {
            next if Some(next) == escape => push_itself(&mut expression, rest.next()?),
            '%' => expression.push_str(".*"),
            '_' => expression.push('.'),
            '(' => expression.push_str("(?:"),
            '[' => push_class(&mut expression, &mut rest, escape)?,
            '|' | '*' | '+' | '?' | '{' | '}' | ')' => expression.push(next),
            next => push_itself(&mut expression, next),
        }
    }
    expression.push_str(")$");
    Some(expression)
}

/// Adds a character that means itself.
pub(super) fn push_itself(expression: &mut String, character: char) {
    if character.is_ascii_punctuation() {
        expression.push('\\');
    }
    expression.push(character);
}

/// A class of characters, up to its bracket. Only `^`, `-` and names such as `[:alpha:]` have a
/// meaning in it.
fn push_class(
    expression: &mut String,
    rest: &mut std::iter::Peekable<std::str::Chars<'_>>,
    escape: Option<char>,
) -> Option<()> {
    expression.push('[');
    expression.extend(rest.next_if_eq(&'^'));
    let mut is_first = true;
    loop {
        let next = rest.next()?;
        match next {
            ']' if !is_first => break,
            next if Some(next) == escape => push_itself(expression, rest.next()?),
            '-' => expression.push('-'),
            '[' if rest.peek() == Some(&':') => {
                expression.push('[');
                loop {
                    let named = rest.next()?;
                    expression.push(named);
                    if named == ']' {
                        break;
                    }
                }
            }
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
            ("a%", "(?s)^(?:a.*)$"),
            ("_b|c", "(?s)^(?:.b|c)$"),
            ("(a|b)+c?{2}", "(?s)^(?:(?:a|b)+c?{2})$"),
            ("a.b^$", r"(?s)^(?:a\.b\^\$)$"),
            (r"100\%", r"(?s)^(?:100\%)$"),
            ("[a-z_%.]", r"(?s)^(?:[a-z\_\%\.])$"),
            ("[^]x][[:digit:]]", r"(?s)^(?:[^\]x][[:digit:]])$"),
        ] {
            assert_eq!(expression(pattern, None).unwrap(), expected, "{pattern}");
        }
    }

    #[test]
    fn another_character_may_be_the_escape_or_none() {
        let escape = |text: &str| Value::SingleQuotedString(text.to_owned());
        assert_eq!(expression("a#%", Some(&escape("#"))).unwrap(), r"(?s)^(?:a\%)$");
        assert_eq!(expression(r"a\%", Some(&escape(""))).unwrap(), r"(?s)^(?:a\\.*)$");
        assert!(expression("a", Some(&escape("##"))).is_none());
        assert!(expression(r"a\", None).is_none());
        assert!(expression("[a", None).is_none());
    }
}
