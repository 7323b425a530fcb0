//! Conditions of the names of columns: `COLUMNS(lambda c: c LIKE 'a%')`, and `* LIKE 'a%'`, which is
//! written so.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Ident, LambdaFunction, OneOrManyWithParens, UnaryOperator, Value,
    ValueWithSpan,
};
use regex::{Regex, RegexBuilder};

/// Whether a condition holds for a name. `None` if it has other parts than comparisons of the name
/// with texts.
pub(super) fn holds(lambda: &LambdaFunction, name: &str) -> Option<bool> {
    let OneOrManyWithParens::One(parameter) = &lambda.params else { return None };
    Condition { parameter: &parameter.name, name }.holds(&lambda.body)
}

struct Condition<'a> {
    parameter: &'a Ident,
    name: &'a str,
}

impl Condition<'_> {
    fn holds(&self, condition: &Expr) -> Option<bool> {
        match condition {
            Expr::Nested(inner) => self.holds(inner),
            Expr::UnaryOp { op: UnaryOperator::Not, expr } => Some(!self.holds(expr)?),
            Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
                Some(self.holds(left)? && self.holds(right)?)
            }
            Expr::BinaryOp { left, op: BinaryOperator::Or, right } => {
                Some(self.holds(left)? || self.holds(right)?)
            }
            Expr::Like { negated, any: false, expr, pattern, escape_char: None } => {
                self.is_like(expr, pattern, false).map(|found| found != *negated)
            }
            Expr::ILike { negated, any: false, expr, pattern, escape_char: None } => {
                self.is_like(expr, pattern, true).map(|found| found != *negated)
            }
            Expr::BinaryOp { left, op, right } => {
                let text = text(right)?;
                self.is_name(left).then_some(())?;
                match op {
                    BinaryOperator::Eq => Some(self.name == text),
                    BinaryOperator::NotEq => Some(self.name != text),
                    // GLOB and SIMILAR TO have been written so.
                    BinaryOperator::PGRegexMatch => Some(self.has(text)?),
                    BinaryOperator::PGRegexNotMatch => Some(!self.has(text)?),
                    _ => None,
                }
            }
            Expr::InList { expr, list, negated } => {
                self.is_name(expr).then_some(())?;
                let texts: Vec<&str> = list.iter().map(text).collect::<Option<_>>()?;
                Some(texts.contains(&self.name) != *negated)
            }
            _ => None,
        }
    }

    fn is_name(&self, expr: &Expr) -> bool {
        matches!(expr, Expr::Identifier(name)
            if name.value.eq_ignore_ascii_case(&self.parameter.value))
    }

    fn has(&self, expression: &str) -> Option<bool> {
        Some(Regex::new(expression).ok()?.is_match(self.name))
    }

    fn is_like(&self, of: &Expr, pattern: &Expr, ignores_case: bool) -> Option<bool> {
        let pattern = text(pattern).filter(|_| self.is_name(of))?;
        let expression = RegexBuilder::new(&expression(pattern)?)
            .case_insensitive(ignores_case)
            .dot_matches_new_line(true)
            .build();
        Some(expression.ok()?.is_match(self.name))
    }
}

/// The regular expression of a pattern of LIKE. `None` if its last backslash escapes nothing.
fn expression(pattern: &str) -> Option<String> {
    let mut expression = String::from("^");
    let mut rest = pattern.chars();
    while let Some(next) = rest.next() {
        match next {
            '%' => expression.push_str(".*"),
            '_' => expression.push('.'),
            '\\' => expression.push_str(&regex::escape(rest.next()?.encode_utf8(&mut [0; 4]))),
            next => expression.push_str(&regex::escape(next.encode_utf8(&mut [0; 4]))),
        }
    }
    expression.push('$');
    Some(expression)
}

fn text(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), .. }) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_like_are_those_of_the_whole_name() {
        for (pattern, name, found) in [
            ("a%", "abc", true),
            ("b%", "abc", false),
            ("a_c", "abc", true),
            ("a.c", "abc", false),
            (r"a\_c", "abc", false),
            (r"a\_c", "a_c", true),
            ("%", "", true),
        ] {
            let expression = Regex::new(&expression(pattern).unwrap()).unwrap();
            assert_eq!(expression.is_match(name), found, "{pattern} {name}");
        }
        assert_eq!(expression(r"a\"), None);
    }
}
