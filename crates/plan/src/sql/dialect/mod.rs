//! How the text of a statement is read, where the parser's generic dialect reads it with another
//! meaning than PostgreSQL.
//!
//! `IS DISTINCT FROM` binds tighter than AND and OR: the generic dialect takes all that follows as
//! its right side. `^` and `**` are powers and bind tighter than `*`, a sign tighter still: the generic
//! dialect takes it as an exclusive or that binds weaker than `+`. `->` and `->>` bind tighter than
//! comparisons. `1_000` is a number. `x GLOB 'a*'`, `lambda x: x + 1`, `[x + 1 for x in l]`, and
//! the statements PIVOT and UNPIVOT are read as in DuckDB, GROUPING SETS inside of GROUPING SETS as in
//! SQL, and `5!` is a factorial. All else is the generic dialect's.

mod between;
mod comprehensions;
mod exclusions;
mod forms;
mod groups;
mod pivots;
mod tokens;

use std::any::TypeId;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, LambdaFunction, LambdaFunctionParameter, LambdaSyntax, LimitClause,
    OneOrManyWithParens, Query, SelectFlavor, SetExpr, Statement, UnaryOperator,
};
use datafusion::sql::sqlparser::dialect::{Dialect, GenericDialect};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;

use super::semantics::GLOB_OPERATOR;

/// Precedence of `^`: above `*` and `AT TIME ZONE`, and below `::`.
const POWER: u8 = 45;

/// Precedence of GLOB: that of LIKE.
const GLOB: u8 = 19;

/// Precedence of access to members of JSON: between comparisons and `+`, as of all operators of
/// PostgreSQL without a precedence of their own.
const MEMBER: u8 = 25;

pub(crate) use tokens::of as tokens;

/// The dialect of all statements.
#[derive(Debug)]
pub(crate) struct PostgresLike;

const GENERIC: GenericDialect = GenericDialect;

/// The properties that the generic dialect has and a dialect without them has not.
macro_rules! as_generic {
    ($($property:ident)*) => { $(fn $property(&self) -> bool { GENERIC.$property() })* };
}

impl Dialect for PostgresLike {
    /// The parser asks for it where a dialect has no property of its own.
    fn dialect(&self) -> TypeId {
        TypeId::of::<GenericDialect>()
    }

    fn is_delimited_identifier_start(&self, ch: char) -> bool {
        GENERIC.is_delimited_identifier_start(ch)
    }

    fn is_identifier_start(&self, ch: char) -> bool {
        GENERIC.is_identifier_start(ch)
    }

    fn is_identifier_part(&self, ch: char) -> bool {
        GENERIC.is_identifier_part(ch)
    }

    fn supports_numeric_literal_underscores(&self) -> bool {
        true
    }

    /// `FROM t WHERE …`, of which the generic dialect reads FROM alone.
    fn parse_statement(&self, parser: &mut Parser<'_>) -> Option<Result<Statement, ParserError>> {
        let Token::Word(word) = &parser.peek_token_ref().token else { return None };
        match word.keyword {
            Keyword::FROM => Some(from_first(parser)),
            Keyword::WITH => pivots::behind_with(parser),
            Keyword::PIVOT => Some(pivots::pivot(parser)),
            Keyword::UNPIVOT => Some(pivots::unpivot(parser)),
            _ => None,
        }
    }

    fn parse_prefix(&self, parser: &mut Parser<'_>) -> Option<Result<Expr, ParserError>> {
        let op = match parser.peek_token_ref().token {
            Token::Minus => UnaryOperator::Minus,
            Token::Plus => UnaryOperator::Plus,
            Token::LBracket if comprehensions::is_next(parser) => {
                return Some(comprehensions::list(parser));
            }
            Token::Word(_) if is_lambda(parser) => return Some(lambda(parser)),
            Token::Word(_) if groups::are_next(parser) => return Some(groups::sets(parser)),
            _ => return None,
        };
        parser.advance_token();
        let signed = parser.parse_subexpr(POWER);
        Some(signed.map(|expr| Expr::UnaryOp { op, expr: Box::new(expr) }))
    }

    fn parse_infix(
        &self,
        parser: &mut Parser<'_>,
        left: &Expr,
        precedence: u8,
    ) -> Option<Result<Expr, ParserError>> {
        if let Some(between) = between::behind(parser, left, precedence) {
            return Some(between);
        }
        let left = || Box::new(left.clone());
        if let Some(negated) = glob(parser) {
            return Some(glob_of(parser, left(), negated));
        }
        if parser.consume_token(&Token::Caret) || consume_stars(parser) {
            let power = |right| Expr::BinaryOp {
                left: left(),
                op: BinaryOperator::PGExp,
                right: Box::new(right),
            };
            return Some(parser.parse_subexpr(POWER).map(power));
        }
        if parser.parse_keywords(&[Keyword::IS, Keyword::DISTINCT, Keyword::FROM]) {
            let right = parser.parse_subexpr(precedence);
            return Some(right.map(|right| Expr::IsDistinctFrom(left(), Box::new(right))));
        }
        if parser.parse_keywords(&[Keyword::IS, Keyword::NOT, Keyword::DISTINCT, Keyword::FROM]) {
            let right = parser.parse_subexpr(precedence);
            return Some(right.map(|right| Expr::IsNotDistinctFrom(left(), Box::new(right))));
        }
        None
    }

    fn get_next_precedence(&self, parser: &Parser<'_>) -> Option<Result<u8, ParserError>> {
        match parser.peek_token_ref().token {
            Token::Caret => Some(Ok(POWER)),
            Token::Mul if are_stars(parser) => Some(Ok(POWER)),
            Token::Arrow | Token::LongArrow => Some(Ok(MEMBER)),
            _ => glob(parser).map(|_| Ok(GLOB)),
        }
    }

    fn supports_order_by_all(&self) -> bool {
        true
    }

    fn supports_factorial_operator(&self) -> bool {
        true
    }

    as_generic! {
        supports_unicode_string_literal
        supports_partition_by_after_order_by
        supports_array_join_syntax
        supports_group_by_expr
        supports_group_by_with_modifier
        supports_left_associative_joins_without_parens
        supports_connect_by
        supports_match_recognize
        supports_pipe_operator
        supports_start_transaction_modifier
        supports_window_function_null_treatment_arg
        supports_dictionary_syntax
        supports_window_clause_named_window_reference
        supports_parenthesized_set_variables
        supports_select_wildcard_except
        support_map_literal_syntax
        allow_extract_custom
        allow_extract_single_quotes
        supports_extract_comma_syntax
        supports_create_view_comment_syntax
        supports_parens_around_table_factor
        supports_values_as_table_factor
        supports_create_index_with_clause
        supports_explain_with_utility_options
        supports_limit_comma
        supports_update_order_by
        supports_from_first_select
        supports_projection_trailing_commas
        supports_asc_desc_in_column_definition
        supports_try_convert
        supports_bitwise_shift_operators
        supports_comment_on
        supports_load_extension
        supports_named_fn_args_with_assignment_operator
        supports_struct_literal
        supports_empty_projections
        supports_nested_comments
        supports_multiline_comment_hints
        supports_user_host_grantee
        supports_string_escape_constant
        supports_array_typedef_with_brackets
        supports_match_against
        supports_set_names
        supports_comma_separated_set_assignments
        supports_filter_during_aggregation
        supports_select_wildcard_exclude
        supports_data_type_signed_suffix
        supports_interval_options
        supports_quote_delimited_string
        supports_select_wildcard_replace
        supports_select_wildcard_ilike
        supports_select_wildcard_rename
        supports_optimize_table
        supports_install
        supports_detach
        supports_prewhere
        supports_with_fill
        supports_limit_by
        supports_interpolate
        supports_settings
        supports_select_format
        supports_comment_optimizer_hint
        supports_constraint_keyword_without_name
        supports_key_column_option
        supports_comma_separated_trim
        supports_cte_without_as
        supports_select_item_multi_column_alias
        supports_xml_expressions
    }
}

fn from_first(parser: &mut Parser<'_>) -> Result<Statement, ParserError> {
    let mut query = parser.parse_query()?;
    if let SetExpr::Select(select) = query.body.as_mut()
        && select.flavor == SelectFlavor::FromFirstNoSelect
        && query.order_by.is_none()
        && query.limit_clause.is_none()
        && parser.parse_keyword(Keyword::WHERE)
    {
        select.selection = Some(parser.parse_expr()?);
        sorted_and_limited(parser, &mut query)?;
    }
    Ok(Statement::Query(query))
}

/// Reads ORDER BY, LIMIT and OFFSET of a query.
fn sorted_and_limited(parser: &mut Parser<'_>, query: &mut Query) -> Result<(), ParserError> {
    query.order_by = parser.parse_optional_order_by()?;
    let limit = match parser.parse_keyword(Keyword::LIMIT) {
        true => parser.parse_limit()?,
        false => None,
    };
    let offset = match parser.parse_keyword(Keyword::OFFSET) {
        true => Some(parser.parse_offset()?),
        false => None,
    };
    if limit.is_some() || offset.is_some() {
        let limit_by = Vec::new();
        query.limit_clause = Some(LimitClause::LimitOffset { limit, offset, limit_by });
    }
    Ok(())
}

/// `lambda x: …` and `lambda x, y: …`; `lambda` may also be the name of a column.
fn is_lambda(parser: &Parser<'_>) -> bool {
    let [first, second, third] = parser.peek_tokens_ref();
    matches!(&first.token, Token::Word(word) if word.keyword == Keyword::LAMBDA)
        && matches!(&second.token, Token::Word(word) if word.keyword != Keyword::FROM)
        && matches!(third.token, Token::Colon | Token::Comma)
}

fn lambda(parser: &mut Parser<'_>) -> Result<Expr, ParserError> {
    parser.advance_token();
    let parameter = |parser: &mut Parser<'_>| {
        Ok(LambdaFunctionParameter { name: parser.parse_identifier()?, data_type: None })
    };
    let mut params = parser.parse_comma_separated(parameter)?;
    parser.expect_token(&Token::Colon)?;
    let params = match params.len() {
        1 => OneOrManyWithParens::One(params.remove(0)),
        _ => OneOrManyWithParens::Many(params),
    };
    let body = Box::new(parser.parse_expr()?);
    Ok(Expr::Lambda(LambdaFunction { params, body, syntax: LambdaSyntax::LambdaKeyword }))
}

/// Whether GLOB or NOT GLOB is next, and which of them. `glob` may also be a name.
fn glob(parser: &Parser<'_>) -> Option<bool> {
    let [first, second, third] = parser.peek_tokens_ref();
    let is_glob = |token: &Token, next: &Token| {
        let is_word = matches!(token, Token::Word(word)
            if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(GLOB_OPERATOR));
        let is_value = match next {
            Token::Word(word) => matches!(word.keyword, Keyword::NoKeyword | Keyword::NULL),
            next => matches!(next, Token::SingleQuotedString(_) | Token::LParen),
        };
        is_word && is_value
    };
    let is_not = matches!(&first.token, Token::Word(word) if word.keyword == Keyword::NOT);
    if is_glob(&first.token, &second.token) {
        Some(false)
    } else {
        (is_not && is_glob(&second.token, &third.token)).then_some(true)
    }
}

fn glob_of(parser: &mut Parser<'_>, left: Box<Expr>, negated: bool) -> Result<Expr, ParserError> {
    if negated {
        parser.advance_token();
    }
    parser.advance_token();
    let right = Box::new(parser.parse_subexpr(GLOB)?);
    let op = BinaryOperator::Custom(GLOB_OPERATOR.to_owned());
    let matched = Expr::BinaryOp { left, op, right };
    Ok(match negated {
        true => Expr::UnaryOp {
            op: UnaryOperator::Not,
            expr: Box::new(Expr::Nested(Box::new(matched))),
        },
        false => matched,
    })
}

/// `**`, which has no token of its own.
fn are_stars(parser: &Parser<'_>) -> bool {
    let [first, second] = parser.peek_tokens_ref();
    first.token == Token::Mul && second.token == Token::Mul
}

fn consume_stars(parser: &mut Parser<'_>) -> bool {
    let found = are_stars(parser);
    if found {
        parser.advance_token();
        parser.advance_token();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(sql: &str) -> String {
        let parser = Parser::new(&PostgresLike).try_with_sql(sql);
        let expr = parser.and_then(|mut parser| parser.parse_expr()).unwrap();
        with_all_parentheses(&expr)
    }

    /// An expression with its order of evaluation.
    fn with_all_parentheses(expr: &Expr) -> String {
        let text = with_all_parentheses;
        match expr {
            Expr::BinaryOp { left, op, right } => format!("({} {op} {})", text(left), text(right)),
            Expr::UnaryOp { op, expr } => format!("({op} {})", text(expr)),
            Expr::IsDistinctFrom(left, right) => format!("({} <> {})", text(left), text(right)),
            Expr::IsNotDistinctFrom(left, right) => format!("({} == {})", text(left), text(right)),
            Expr::IsNull(inner) => format!("({} null)", text(inner)),
            other => other.to_string(),
        }
    }

    #[test]
    fn is_distinct_from_binds_tighter_than_and_or_and_not() {
        for (sql, order) in [
            ("a is distinct from b and c", "((a <> b) AND c)"),
            ("a is not distinct from b and c or d", "(((a == b) AND c) OR d)"),
            ("x and a is distinct from b or c", "((x AND (a <> b)) OR c)"),
            ("not a is distinct from b and c", "((NOT (a <> b)) AND c)"),
            ("a is distinct from b + 1 or c", "((a <> (b + 1)) OR c)"),
            ("a is distinct from b is null", "((a <> b) null)"),
            ("a is distinct from b is not distinct from c", "((a <> b) == c)"),
            // As in PostgreSQL, comparisons bind tighter.
            ("a is distinct from b = c", "(a <> (b = c))"),
        ] {
            assert_eq!(read(sql), order, "{sql}");
        }
    }

    #[test]
    fn a_power_binds_as_in_postgresql() {
        for (sql, order) in [
            ("a * 2 ^ 3 + 1", "((a * (2 ^ 3)) + 1)"),
            ("2 ^ 3 ^ 2", "((2 ^ 3) ^ 2)"),
            ("-2 ^ 2", "((- 2) ^ 2)"),
            ("2 ^ -1 * 3", "((2 ^ (- 1)) * 3)"),
            ("3 * 2 ** 3", "(3 * (2 ^ 3))"),
            ("a - -b::int", "(a - (- b::INT))"),
            ("- a * b", "((- a) * b)"),
            ("j -> 'a' ->> 'b' = 'x'", "(((j -> 'a') ->> 'b') = 'x')"),
            ("a glob 'x*' and b", "((a GLOB 'x*') AND b)"),
            ("j -> 'i' + 1", "(j -> ('i' + 1))"),
        ] {
            assert_eq!(read(sql), order, "{sql}");
        }
    }

    #[test]
    fn a_number_may_have_underscores() {
        assert_eq!(read("1_000 + 1"), "(1_000 + 1)");
    }

    #[test]
    fn a_property_of_the_generic_dialect_is_this_dialects() {
        // One of each kind that queries use.
        for sql in ["{'a': 1}", "[1, 2][1]", "count(*) filter (where a)", "map {'a': 1}", "0x1F"] {
            assert!(Parser::new(&PostgresLike).try_with_sql(sql).unwrap().parse_expr().is_ok());
        }
    }
}
