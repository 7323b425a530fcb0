//! Lists that are made of others, as in DuckDB and Python: `[x + 1 for x in l if x > 1]`.
//!
//! They are `list_transform(list_filter(l, lambda x: x > 1), lambda x: x + 1)`.

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, LambdaFunction, LambdaFunctionParameter, LambdaSyntax, OneOrManyWithParens,
};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;

use crate::sql::semantics::call;

/// Whether such a list is next: brackets that have FOR between them, and not in parentheses.
pub(super) fn is_next(parser: &Parser<'_>) -> bool {
    let mut depth = 0_usize;
    for place in 0.. {
        // With whitespace: the parser skips it from here on for each place.
        match &parser.peek_nth_token_no_skip(place).token {
            Token::LBracket | Token::LParen | Token::LBrace => depth += 1,
            Token::RBracket | Token::RParen | Token::RBrace => depth = depth.saturating_sub(1),
            Token::Word(word)
                if depth == 1 && word.keyword == Keyword::FOR && word.quote_style.is_none() =>
            {
                return true;
            }
            Token::EOF | Token::SemiColon => return false,
            _ => (),
        }
        if depth == 0 {
            return false;
        }
    }
    false
}

pub(super) fn list(parser: &mut Parser<'_>) -> Result<Expr, ParserError> {
    parser.expect_token(&Token::LBracket)?;
    let item = parser.parse_expr()?;
    parser.expect_keyword_is(Keyword::FOR)?;
    let name = parser.parse_identifier()?;
    if parser.peek_token_ref().token == Token::Comma {
        let message = "a list of another one takes one name: [x + 1 for x in l]";
        return Err(ParserError::ParserError(message.to_owned()));
    }
    parser.expect_keyword_is(Keyword::IN)?;
    let mut of = parser.parse_expr()?;
    if parser.parse_keyword(Keyword::IF) {
        let condition = parser.parse_expr()?;
        of = call("list_filter", vec![of, lambda(&name, condition)]);
    }
    parser.expect_token(&Token::RBracket)?;
    Ok(call("list_transform", vec![of, lambda(&name, item)]))
}

fn lambda(name: &Ident, body: Expr) -> Expr {
    let parameter = LambdaFunctionParameter { name: name.clone(), data_type: None };
    Expr::Lambda(LambdaFunction {
        params: OneOrManyWithParens::One(parameter),
        body: Box::new(body),
        syntax: LambdaSyntax::LambdaKeyword,
    })
}
