//! `x BETWEEN SYMMETRIC a AND b`, and `ASYMMETRIC`, which is what BETWEEN is without a word.
//!
//! Each may also be the name of a column or of its table, which PostgreSQL and DuckDB do not allow:
//! `x BETWEEN symmetric AND b`. So they are where no bound follows.

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;

use crate::sql::semantics::{NOT_SYMMETRIC, SYMMETRIC};

/// Reads the words and the bounds. `None` if other words are next.
pub(super) fn behind(
    parser: &mut Parser<'_>,
    left: &Expr,
    precedence: u8,
) -> Option<Result<Expr, ParserError>> {
    use Keyword::{ASYMMETRIC, BETWEEN, NOT};
    if is_name(parser) {
        return None;
    }
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

/// Whether the word behind BETWEEN or NOT BETWEEN is itself a bound.
fn is_name(parser: &Parser<'_>) -> bool {
    let [first, second, third, fourth] = parser.peek_tokens_ref();
    let next = match &first.token {
        Token::Word(word) if word.keyword == Keyword::BETWEEN => [second, third],
        Token::Word(word) if word.keyword == Keyword::NOT => [third, fourth],
        _ => return false,
    };
    let [word, behind] = next.map(|token| &token.token);
    let is_word = matches!(word, Token::Word(word)
        if matches!(word.keyword, Keyword::SYMMETRIC | Keyword::ASYMMETRIC));
    is_word
        && match behind {
            Token::Word(word) => word.keyword == Keyword::AND,
            behind => matches!(behind, Token::Period | Token::DoubleColon),
        }
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
