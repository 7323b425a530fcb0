//! GROUPING SETS inside of GROUPING SETS, which the parser reads at the top of GROUP BY only. ROLLUP and
//! CUBE there are read as calls of functions.

use datafusion::sql::sqlparser::ast::Expr;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;

/// Whether GROUPING SETS and its parenthesis are next. `grouping` is also a function.
pub(super) fn are_next(parser: &Parser<'_>) -> bool {
    let [first, second, third] = parser.peek_tokens_ref();
    let is = |token: &Token, keyword| matches!(token, Token::Word(word) if word.keyword == keyword);
    is(&first.token, Keyword::GROUPING)
        && is(&second.token, Keyword::SETS)
        && third.token == Token::LParen
}

/// Reads GROUPING SETS with its sets.
pub(super) fn sets(parser: &mut Parser<'_>) -> Result<Expr, ParserError> {
    parser.expect_keywords(&[Keyword::GROUPING, Keyword::SETS])?;
    parser.expect_token(&Token::LParen)?;
    let sets = parser.parse_comma_separated(set)?;
    parser.expect_token(&Token::RParen)?;
    Ok(Expr::GroupingSets(sets))
}

fn set(parser: &mut Parser<'_>) -> Result<Vec<Expr>, ParserError> {
    if !parser.consume_token(&Token::LParen) {
        return Ok(vec![parser.parse_expr()?]);
    }
    if parser.consume_token(&Token::RParen) {
        return Ok(Vec::new());
    }
    let set = parser.parse_comma_separated(Parser::parse_expr)?;
    parser.expect_token(&Token::RParen)?;
    Ok(set)
}
