//! `x BETWEEN SYMMETRIC a AND b`, and `ASYMMETRIC`, which is what BETWEEN is without a word.

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};

use crate::sql::meaning::{NOT_SYMMETRIC, SYMMETRIC};

/// Reads the words and the bounds. `None` if other words are next.
pub(super) fn behind(
    parser: &mut Parser<'_>,
    left: &Expr,
    precedence: u8,
) -> Option<Result<Expr, ParserError>> {
    use Keyword::{ASYMMETRIC, BETWEEN, NOT};
    if parser.parse_keywords(&[BETWEEN, Keyword::SYMMETRIC]) {
        return Some(bounds(parser, left, SYMMETRIC, precedence));
    }
    if parser.parse_keywords(&[NOT, BETWEEN, Keyword::SYMMETRIC]) {
        return Some(bounds(parser, left, NOT_SYMMETRIC, precedence));
    }
    let negated = parser.parse_keywords(&[NOT, BETWEEN, ASYMMETRIC]);
    let is_plain = negated || parser.parse_keywords(&[BETWEEN, ASYMMETRIC]);
    is_plain.then(|| parser.parse_between(left.clone(), negated))
}

fn bounds(
    parser: &mut Parser<'_>,
    left: &Expr,
    op: &str,
    precedence: u8,
) -> Result<Expr, ParserError> {
    let one = Box::new(parser.parse_subexpr(precedence)?);
    parser.expect_keyword_is(Keyword::AND)?;
    let other = Box::new(parser.parse_subexpr(precedence)?);
    let bounds = Expr::BinaryOp { left: one, op: BinaryOperator::And, right: other };
    let op = BinaryOperator::Custom(op.to_owned());
    Ok(Expr::BinaryOp { left: Box::new(left.clone()), op, right: Box::new(bounds) })
}
