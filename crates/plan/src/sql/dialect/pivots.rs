//! The statements PIVOT and UNPIVOT of DuckDB.

use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    Expr, ExprWithAlias, GroupByExpr, Ident, PivotValueSource, Query, SetExpr, Statement,
    TableFactor, TableWithJoins, With,
};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;

use super::sorted_and_limited;
use crate::sql::pivot::{Unpivot, template, within};

/// PIVOT or UNPIVOT behind the tables of WITH. `None` if another statement is there.
pub(super) fn behind_with(parser: &mut Parser<'_>) -> Option<Result<Statement, ParserError>> {
    let word = |parser: &Parser<'_>| match &parser.peek_token_ref().token {
        Token::Word(word) => word.keyword,
        _ => Keyword::NoKeyword,
    };
    let with = parser.maybe_parse(|parser| {
        parser.expect_keyword_is(Keyword::WITH)?;
        let recursive = parser.parse_keyword(Keyword::RECURSIVE);
        let cte_tables = parser.parse_comma_separated(Parser::parse_cte)?;
        let with_token = AttachedToken::empty();
        match word(parser) {
            Keyword::PIVOT | Keyword::UNPIVOT => Ok(With { with_token, recursive, cte_tables }),
            _ => Err(ParserError::ParserError("another statement".to_owned())),
        }
    });
    let with = match with {
        Ok(Some(with)) => with,
        Ok(None) => return None,
        Err(error) => return Some(Err(error)),
    };
    let statement = match word(parser) {
        Keyword::PIVOT => pivot(parser),
        _ => unpivot(parser),
    };
    Some(statement.map(|mut statement| {
        if let Statement::Query(query) = &mut statement {
            query.with = Some(with);
        }
        statement
    }))
}

/// `PIVOT t ON c IN ('a', 'b') USING sum(x) GROUP BY k`, also without the values of `c`.
pub(super) fn pivot(parser: &mut Parser<'_>) -> Result<Statement, ParserError> {
    let table = table(parser)?;
    let value_column = parser.parse_comma_separated(Parser::parse_expr)?;
    let aggregates = match parser.parse_keyword(Keyword::USING) {
        true => parser.parse_comma_separated(with_alias)?,
        false => Vec::new(),
    };
    let groups = match parser.parse_optional_group_by()? {
        Some(GroupByExpr::Expressions(groups, _)) if !groups.is_empty() => Some(groups),
        _ => None,
    };
    // Later steps know the columns and groups by their forms in a table of the parser.
    let pivot = TableFactor::Pivot {
        table: Box::new(table),
        aggregate_functions: aggregates,
        value_column,
        value_source: PivotValueSource::Any(Vec::new()),
        default_on_null: groups.map(Expr::Tuple),
        alias: None,
    };
    let query = template("select * from t").map(|(mut query, mut select)| {
        select.from = vec![TableWithJoins { relation: pivot, joins: Vec::new() }];
        query.body = Box::new(SetExpr::Select(Box::new(select)));
        query
    });
    sorted(parser, query)
}

/// `UNPIVOT t ON a, b INTO NAME n VALUE v`.
pub(super) fn unpivot(parser: &mut Parser<'_>) -> Result<Statement, ParserError> {
    let table = table(parser)?;
    let with_nulls = parser.parse_keywords(&[Keyword::INCLUDE, Keyword::NULLS]);
    let columns = parser.parse_comma_separated(with_alias)?;
    let mut name = Ident::new("name");
    let mut value = Ident::new("value");
    if parser.parse_keyword(Keyword::INTO) {
        parser.expect_keyword_is(Keyword::NAME)?;
        name = parser.parse_identifier()?;
        parser.expect_keyword_is(Keyword::VALUE)?;
        value = parser.parse_identifier()?;
    }
    let unpivot = Unpivot { table, columns, name, value, with_nulls };
    sorted(parser, unpivot.query())
}

/// The statement with its ORDER BY and LIMIT, which are of its columns.
fn sorted(parser: &mut Parser<'_>, query: Result<Query, String>) -> Result<Statement, ParserError> {
    let mut query = query.and_then(within).map_err(ParserError::ParserError)?;
    sorted_and_limited(parser, &mut query)?;
    Ok(Statement::Query(Box::new(query)))
}

/// The table behind the word, up to ON.
fn table(parser: &mut Parser<'_>) -> Result<TableFactor, ParserError> {
    parser.advance_token();
    let table = parser.parse_table_factor()?;
    parser.expect_keyword_is(Keyword::ON)?;
    Ok(table)
}

/// An expression, with a name behind AS.
fn with_alias(parser: &mut Parser<'_>) -> Result<ExprWithAlias, ParserError> {
    let expr = parser.parse_expr()?;
    let alias = match parser.parse_keyword(Keyword::AS) {
        true => Some(parser.parse_identifier()?),
        false => None,
    };
    Ok(ExprWithAlias { expr, alias })
}
