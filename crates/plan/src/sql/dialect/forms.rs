//! Forms of DuckDB that the parser reads as something else, or not at all.
//!
//! - `FILTER (x > 1)` of an aggregate has a WHERE.
//! - `* LIKE 'a%'` is `COLUMNS(lambda c: c LIKE 'a%')`, also inside of COLUMNS.
//! - Refused are a LIMIT of a percentage, POSITIONAL JOIN, which the parser takes for a table of that
//!   name, and statements in the place of a table: PIVOT, UNPIVOT, SUMMARIZE and DESCRIBE.

use datafusion::error::Result;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::ParserError;
use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan, Word};

/// The parameter of a condition of names of columns.
const COLUMN: &str = "column_name";

/// Writes the forms. An error is the reason why one is refused.
pub(super) fn written(tokens: Vec<TokenWithSpan>) -> Result<Vec<TokenWithSpan>> {
    for (place, token) in tokens.iter().enumerate() {
        if let Some(message) = refusal(&tokens, place) {
            let Location { line, column } = token.span.start;
            // As the parser's messages end.
            let message = format!("{message} at Line: {line}, Column: {column}");
            return Err(ParserError::ParserError(message).into());
        }
    }
    Ok(star_conditions(filters(tokens)))
}

/// Why the word at a place is refused.
fn refusal(tokens: &[TokenWithSpan], place: usize) -> Option<&'static str> {
    match &tokens[place].token {
        Token::Mod if is_limit(tokens, place) && ends(tokens, place) => Some(PERCENT),
        Token::Word(word) if is_plain(word, "percent") && is_limit(tokens, place) => Some(PERCENT),
        Token::Word(word) if is_plain(word, "positional") => {
            let is_join = is_word(tokens, next(tokens, place), &["join"]);
            let is_name = is_word(tokens, previous(tokens, place), &["as", "from", "join"]);
            (is_join && !is_name).then_some("POSITIONAL JOIN is not supported")
        }
        Token::Word(_) if is_statement(tokens, place) && is_in_place_of_table(tokens, place) => {
            match is_word(tokens, Some(place), &["pivot", "unpivot"]) {
                true => Some("PIVOT and UNPIVOT with ON are statements, and not tables"),
                false => Some("SUMMARIZE and DESCRIBE are statements, and not tables"),
            }
        }
        _ => None,
    }
}

const PERCENT: &str = "LIMIT takes a number of rows, and no percentage";

/// Words behind a table, before which another word is its name.
const AFTER_TABLE: [&str; 12] = [
    "as", "join", "inner", "left", "right", "full", "cross", "natural", "pivot", "unpivot", "semi",
    "anti",
];

/// Whether a number behind LIMIT is before a place.
fn is_limit(tokens: &[TokenWithSpan], place: usize) -> bool {
    let number =
        previous(tokens, place).filter(|number| matches!(tokens[*number].token, Token::Number(..)));
    number.is_some_and(|number| is_word(tokens, previous(tokens, number), &["limit"]))
}

/// Whether a query or its LIMIT ends behind a place.
fn ends(tokens: &[TokenWithSpan], place: usize) -> bool {
    let Some(next) = next(tokens, place) else { return true };
    matches!(tokens[next].token, Token::RParen | Token::SemiColon | Token::EOF)
        || is_word(tokens, Some(next), &["offset"])
}

/// Whether a word is the first one in the parentheses of a table in FROM or WITH.
fn is_in_place_of_table(tokens: &[TokenWithSpan], place: usize) -> bool {
    let open = previous(tokens, place).filter(|open| tokens[*open].token == Token::LParen);
    let before = open.and_then(|open| previous(tokens, open));
    is_word(tokens, before, &["from", "join", "as", "materialized"])
}

/// Whether a statement with its table or query is at a place. Its word may be the name of a table.
fn is_statement(tokens: &[TokenWithSpan], place: usize) -> bool {
    if !is_word(tokens, Some(place), &["describe", "pivot", "summarize", "unpivot"]) {
        return false;
    }
    let Some(next) = next(tokens, place) else { return false };
    match &tokens[next].token {
        Token::Word(_) => !is_word(tokens, Some(next), &AFTER_TABLE),
        token => matches!(token, Token::SingleQuotedString(_)),
    }
}

/// Puts WHERE into the FILTER of aggregates that has none.
fn filters(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let begins = |place: usize| {
        if tokens[place].token != Token::LParen {
            return None;
        }
        let filter = previous(&tokens, place);
        let filter = filter.filter(|filter| is_word(&tokens, Some(*filter), &["filter"]))?;
        let closed = previous(&tokens, filter)?;
        let has_where = is_word(&tokens, next(&tokens, place), &["where"]);
        (!has_where && is_call(&tokens, closed)).then_some(())
    };
    let places: Vec<usize> = (0..tokens.len()).filter(|place| begins(*place).is_some()).collect();
    let mut written = tokens;
    for place in places.into_iter().rev() {
        let span = written[place].span;
        written.insert(place + 1, TokenWithSpan { token: word("WHERE", Keyword::WHERE), span });
    }
    written
}

/// Whether a parenthesis ends the arguments of a call. Behind a table, `filter (a)` is its name.
fn is_call(tokens: &[TokenWithSpan], closed: usize) -> bool {
    if tokens[closed].token != Token::RParen {
        return false;
    }
    let mut depth = 0_usize;
    let open = (0..=closed).rev().find(|place| {
        match tokens[*place].token {
            Token::RParen => depth += 1,
            Token::LParen => depth -= 1,
            _ => (),
        }
        depth == 0
    });
    let name = open.and_then(|open| previous(tokens, open));
    let is_name = name.is_some_and(|name| matches!(tokens[name].token, Token::Word(_)));
    let before = name.and_then(|name| previous(tokens, name));
    let tables = ["from", "join", "lateral", "as", "table"];
    is_name && !is_word(tokens, name, &tables) && !is_word(tokens, before, &tables)
}

/// Writes `* LIKE 'a%'` as the columns whose names are so.
fn star_conditions(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut written = Vec::with_capacity(tokens.len());
    // Where the condition ends, and whether it is inside of COLUMNS already.
    let mut open: Option<(usize, bool)> = None;
    for (place, token) in tokens.iter().enumerate() {
        let end = star_condition(&tokens, place);
        let at = |token| TokenWithSpan { token, span: tokens[place].span };
        if let Some(end) = end {
            let is_inside = is_argument_of_columns(&tokens, place, end);
            open = Some((end, is_inside));
            if !is_inside {
                written.extend([word("COLUMNS", Keyword::NoKeyword), Token::LParen].map(at));
            }
            let column = || word(COLUMN, Keyword::NoKeyword);
            let lambda = [word("lambda", Keyword::LAMBDA), column(), Token::Colon, column()];
            written.extend(lambda.map(at));
            continue;
        }
        written.push(token.clone());
        if let Some((_, is_inside)) = open.take_if(|(end, _)| *end == place)
            && !is_inside
        {
            written.push(at(Token::RParen));
        }
    }
    written
}

/// The pattern that ends a condition of a star: `* [NOT] LIKE 'a%'`.
fn star_condition(tokens: &[TokenWithSpan], star: usize) -> Option<usize> {
    if tokens[star].token != Token::Mul {
        return None;
    }
    let first = next(tokens, star)?;
    let operator = match is_word(tokens, Some(first), &["not"]) {
        true => next(tokens, first)?,
        false => first,
    };
    let before = previous(tokens, star)?;
    let is_first = matches!(tokens[before].token, Token::Comma | Token::LParen)
        || is_word(tokens, Some(before), &["select", "distinct", "all"]);
    let pattern = match is_word(tokens, Some(operator), &["similar"]) {
        true => next(tokens, next(tokens, operator)?)?,
        false => next(tokens, operator)?,
    };
    let is_pattern = matches!(tokens[pattern].token, Token::SingleQuotedString(_));
    let is_operator = is_word(tokens, Some(operator), &["like", "ilike", "glob", "similar"]);
    (is_first && is_operator && is_pattern).then_some(pattern)
}

fn is_argument_of_columns(tokens: &[TokenWithSpan], star: usize, end: usize) -> bool {
    let open = previous(tokens, star).filter(|open| tokens[*open].token == Token::LParen);
    let is_closed = next(tokens, end).is_some_and(|end| tokens[end].token == Token::RParen);
    is_closed && is_word(tokens, open.and_then(|open| previous(tokens, open)), &["columns"])
}

fn is_plain(word: &Word, text: &str) -> bool {
    word.quote_style.is_none() && word.value.eq_ignore_ascii_case(text)
}

/// Whether one of some words is at a place.
fn is_word(tokens: &[TokenWithSpan], place: Option<usize>, words: &[&str]) -> bool {
    let token = place.and_then(|place| tokens.get(place)).map(|token| &token.token);
    matches!(token, Some(Token::Word(word)) if words.iter().any(|text| is_plain(word, text)))
}

fn next(tokens: &[TokenWithSpan], place: usize) -> Option<usize> {
    (place + 1..tokens.len()).find(|place| !is_space(&tokens[*place]))
}

fn previous(tokens: &[TokenWithSpan], place: usize) -> Option<usize> {
    (0..place).rev().find(|place| !is_space(&tokens[*place]))
}

fn is_space(token: &TokenWithSpan) -> bool {
    matches!(token.token, Token::Whitespace(_))
}

fn word(text: &str, keyword: Keyword) -> Token {
    Token::Word(Word { value: text.to_owned(), quote_style: None, keyword })
}

#[cfg(test)]
mod tests {
    use super::super::{PostgresLike, tokens};

    fn written(sql: &str) -> String {
        match tokens(sql, &PostgresLike) {
            Ok(tokens) => {
                let texts: Vec<String> =
                    tokens.iter().map(|token| token.token.to_string()).collect();
                texts.concat()
            }
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_filter_has_its_where() {
        for (sql, expected) in [
            ("count(*) filter (x > 1)", "count(*) filter (WHEREx > 1)"),
            ("f(a, (b)) FILTER(a)", "f(a, (b)) FILTER(WHEREa)"),
            ("count(*) filter (where x > 1)", "count(*) filter (where x > 1)"),
            ("from unnest(l) filter (a)", "from unnest(l) filter (a)"),
            ("from (select 1) filter (a)", "from (select 1) filter (a)"),
            ("filter(l, lambda x: x > 1)", "filter(l, lambda x: x > 1)"),
        ] {
            assert_eq!(written(sql), expected, "{sql}");
        }
    }

    #[test]
    fn a_star_may_have_a_condition() {
        let condition = "lambdacolumn_name:column_name";
        for (sql, expected) in [
            ("select * like 'a%'", format!("select COLUMNS({condition} like 'a%')")),
            (
                "select min(columns(* ilike 'a'))",
                format!("select min(columns({condition} ilike 'a'))"),
            ),
            (
                "select a, * not like 'a%', b",
                format!("select a, COLUMNS({condition} not like 'a%'), b"),
            ),
            ("select 2 * 3, t.* from t", "select 2 * 3, t.* from t".to_owned()),
            ("select count(*) like 'a'", "select count(*) like 'a'".to_owned()),
        ] {
            assert_eq!(written(sql), expected, "{sql}");
        }
    }

    #[test]
    fn other_forms_are_refused_by_name() {
        for (sql, part) in [
            ("from t limit 20%", "no percentage at Line: 1, Column: 16"),
            ("from t limit 20 percent offset 1", "no percentage"),
            ("from (from t limit 20 %)", "no percentage"),
            ("from t positional join u", "POSITIONAL JOIN is not supported"),
            ("from (summarize t)", "SUMMARIZE and DESCRIBE are statements"),
            ("with d as (describe select 1)", "SUMMARIZE and DESCRIBE are statements"),
            ("from (pivot t on c using sum(x))", "with ON are statements"),
        ] {
            let found = written(sql);
            assert!(found.contains(part), "{sql}: {found}");
        }
        for sql in [
            "from t limit 20 % 3",
            "from t as positional join u on true",
            "from positional join u on true",
            "from (describe join t on true)",
            "from (summarize) as s",
            "from (pivot as p)",
            "from (pivot)",
            "f(describe)",
        ] {
            assert_eq!(written(sql), sql);
        }
    }
}
