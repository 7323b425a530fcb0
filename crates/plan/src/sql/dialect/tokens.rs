//! Words of a statement before they are parsed, where the parser's own words have another meaning
//! than PostgreSQL's or DuckDB's.
//!
//! - `0x1F`, `0o17` and `0b101` are integers. The parser takes the first for bytes, and of the others
//!   reads `0` with a name behind it.
//! - `x -> x + 1` as an argument of a function of lists is a lambda, and everywhere else an access to
//!   a member of JSON. The words of the lambda become those of `lambda x: x + 1`.
//! - `10%` of a sample is `10 PERCENT`, and USING SAMPLE behind the only table of FROM is TABLESAMPLE.
//! - ASOF before a join has the part of GLOBAL, a word of another database that marks a join of any
//!   kind: the parser knows ASOF only with a clause of its own. That other word is none here.
//! - Other forms of DuckDB are those of [`super::forms`].
//! - EXCLUDE in the frame of a window marks the window ([`super::exclusions`]).
//!
//! Every word keeps its place in the text.

use datafusion::error::Result;
use datafusion::sql::sqlparser::dialect::Dialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::ParserError;
use datafusion::sql::sqlparser::tokenizer::{
    Location, Token, TokenWithSpan, Tokenizer, Whitespace, Word,
};

use super::{exclusions, forms};

/// Functions whose arguments may be lambdas.
const TAKE_LAMBDAS: [&str; 16] = [
    "any_match",
    "apply",
    "array_any_match",
    "array_apply",
    "array_filter",
    "array_first",
    "array_reduce",
    "array_transform",
    "filter",
    "list_any_match",
    "list_apply",
    "list_filter",
    "list_first",
    "list_reduce",
    "list_transform",
    "reduce",
];

/// The words of a text.
pub(crate) fn of(sql: &str, dialect: &dyn Dialect) -> Result<Vec<TokenWithSpan>> {
    let tokens = Tokenizer::new(dialect, sql).tokenize_with_location();
    let tokens = forms::written(integers(tokens.map_err(ParserError::from)?, sql))?;
    Ok(exclusions::marked(lambdas(nearest(percent(samples(tokens))))))
}

/// Writes integers of other bases than ten as decimal numbers.
fn integers(tokens: Vec<TokenWithSpan>, sql: &str) -> Vec<TokenWithSpan> {
    let lines: Vec<&str> = sql.split('\n').collect();
    let mut written: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    for token in tokens {
        let number = match &token.token {
            // Also of `X'1F'`, which is bytes.
            Token::HexStringLiteral(digits) if at(&lines, token.span.start) == Some('0') => {
                value(digits, 16)
            }
            Token::Word(word) if word.quote_style.is_none() => match written.last() {
                Some(zero) if is_zero(zero) && zero.span.end == token.span.start => {
                    of_word(&word.value)
                }
                _ => None,
            },
            _ => None,
        };
        let Some(number) = number else {
            written.push(token);
            continue;
        };
        let mut token = TokenWithSpan { token: Token::Number(number, false), ..token };
        if let Some(zero) =
            written.pop_if(|before| before.span.end == token.span.start && is_zero(before))
        {
            token.span.start = zero.span.start;
        }
        written.push(token);
    }
    written
}

fn at(lines: &[&str], place: Location) -> Option<char> {
    let line = usize::try_from(place.line).ok()?.checked_sub(1)?;
    let column = usize::try_from(place.column).ok()?.checked_sub(1)?;
    lines.get(line)?.chars().nth(column)
}

fn is_zero(token: &TokenWithSpan) -> bool {
    matches!(&token.token, Token::Number(digits, false) if digits == "0")
}

/// `b101` and `o17`.
fn of_word(word: &str) -> Option<String> {
    let base = match word.chars().next()? {
        'b' | 'B' => 2,
        'o' | 'O' => 8,
        _ => return None,
    };
    value(&word[1..], base)
}

/// Digits in decimal. `None` if they are more than any type has, or none.
fn value(digits: &str, base: u32) -> Option<String> {
    u128::from_str_radix(&digits.replace('_', ""), base).ok().map(|value| value.to_string())
}

/// Writes `USING SAMPLE 10%` behind one table as its sample.
fn samples(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    for index in 0..tokens.len() {
        let is_using = matches!(&tokens[index].token, Token::Word(word)
            if word.keyword == Keyword::USING);
        let mut behind = (index + 1..tokens.len())
            .filter(|place| !matches!(tokens[*place].token, Token::Whitespace(_)));
        let sample = behind.next().filter(|place| {
            matches!(&tokens[*place].token, Token::Word(word) if word.keyword == Keyword::SAMPLE)
        });
        if let Some(sample) = sample.filter(|_| is_using && is_behind_one_table(&tokens[..index])) {
            tokens[index].token = word("TABLESAMPLE", Keyword::TABLESAMPLE);
            tokens[sample].token = Token::Whitespace(Whitespace::Space);
        }
    }
    tokens
}

/// Whether FROM with one table is before a place.
fn is_behind_one_table(before: &[TokenWithSpan]) -> bool {
    let mut depth = 0_usize;
    for token in before.iter().rev() {
        match &token.token {
            Token::RParen => depth += 1,
            Token::LParen if depth == 0 => return false,
            Token::LParen => depth -= 1,
            Token::Word(word) if depth == 0 => match word.keyword {
                Keyword::FROM => return true,
                Keyword::JOIN | Keyword::WHERE | Keyword::GROUP | Keyword::HAVING => return false,
                Keyword::ORDER | Keyword::LIMIT | Keyword::SELECT | Keyword::ON => return false,
                _ => (),
            },
            Token::Comma if depth == 0 => return false,
            _ => (),
        }
    }
    false
}

/// Writes the `%` of a sample as PERCENT.
fn percent(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    for index in 0..tokens.len() {
        if tokens[index].token != Token::Mod {
            continue;
        }
        let before: Vec<&Token> = tokens[..index]
            .iter()
            .rev()
            .map(|token| &token.token)
            .filter(|token| !matches!(token, Token::Whitespace(_)))
            .take(4)
            .collect();
        let is_number = matches!(before.first(), Some(Token::Number(..)));
        let is_sample = |token: &&Token| {
            matches!(token, Token::Word(word)
                if matches!(word.keyword, Keyword::TABLESAMPLE | Keyword::SAMPLE))
        };
        // Between them are at most a method and a parenthesis.
        if is_number && before.iter().skip(1).any(is_sample) {
            tokens[index].token = word("PERCENT", Keyword::PERCENT);
        }
    }
    tokens
}

/// Marks ASOF joins.
fn nearest(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    const KINDS: [Keyword; 6] = [
        Keyword::JOIN,
        Keyword::INNER,
        Keyword::LEFT,
        Keyword::RIGHT,
        Keyword::FULL,
        Keyword::CROSS,
    ];
    for index in 0..tokens.len() {
        let mut behind = tokens[index + 1..].iter().map(|token| &token.token);
        let next = behind.find(|token| !matches!(token, Token::Whitespace(_)));
        let is_join = matches!(next, Some(Token::Word(next)) if KINDS.contains(&next.keyword));
        if let Token::Word(word) = &mut tokens[index].token {
            word.keyword = match word.keyword {
                Keyword::ASOF if is_join => Keyword::GLOBAL,
                Keyword::GLOBAL => Keyword::NoKeyword,
                other => other,
            };
        }
    }
    tokens
}

fn word(text: &str, keyword: Keyword) -> Token {
    Token::Word(Word { value: text.to_owned(), quote_style: None, keyword })
}

/// Writes lambdas with arrows as those with the word.
fn lambdas(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut insertions = Vec::new();
    // Of each open parenthesis, whether it is that of the arguments of a function with lambdas.
    let mut open: Vec<bool> = Vec::new();
    for index in 0..tokens.len() {
        match &tokens[index].token {
            Token::LParen => {
                let before = previous(&tokens, index).map(|index| &tokens[index].token);
                let takes = matches!(before, Some(Token::Word(word))
                    if TAKE_LAMBDAS.contains(&word.value.to_lowercase().as_str()));
                open.push(takes);
            }
            Token::RParen => _ = open.pop(),
            Token::Arrow if open.last() == Some(&true) => {
                if let Some(begin) = parameters(&tokens, index) {
                    insertions.push((begin, index));
                }
            }
            _ => (),
        }
    }
    for (begin, arrow) in insertions.into_iter().rev() {
        tokens[arrow].token = Token::Colon;
        for token in &mut tokens[begin..arrow] {
            if matches!(token.token, Token::LParen | Token::RParen) {
                token.token = Token::Whitespace(Whitespace::Space);
            }
        }
        let span = tokens[begin].span;
        tokens.insert(begin, TokenWithSpan { token: word("lambda", Keyword::LAMBDA), span });
    }
    tokens
}

/// Returns the token at which the parameters before an arrow begin: a name, or names in parentheses,
/// as an argument.
fn parameters(tokens: &[TokenWithSpan], arrow: usize) -> Option<usize> {
    let mut begin = previous(tokens, arrow)?;
    match tokens[begin].token {
        Token::Word(_) => (),
        Token::RParen => loop {
            begin = previous(tokens, begin)?;
            match tokens[begin].token {
                Token::LParen => break,
                Token::Word(_) | Token::Comma => (),
                _ => return None,
            }
        },
        _ => return None,
    }
    let before = &tokens[previous(tokens, begin)?].token;
    // The first argument is the list.
    (*before == Token::Comma).then_some(begin)
}

fn previous(tokens: &[TokenWithSpan], index: usize) -> Option<usize> {
    (0..index).rev().find(|index| !matches!(tokens[*index].token, Token::Whitespace(_)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::dialect::PostgresLike;

    fn written(sql: &str) -> String {
        let tokens = of(sql, &PostgresLike).unwrap();
        tokens.iter().map(|token| token.token.to_string()).collect()
    }

    #[test]
    fn integers_of_other_bases_are_numbers() {
        for (sql, expected) in [
            ("select 0x1F, 0xff+1", "select 31, 255+1"),
            ("select 0b101 x, 0o17", "select 5 x, 15"),
            ("select\n  X'1F', 0x_1", "select\n  X'1F', 1"),
            ("select 0 b101, 10b1, 0b2, \"0x1\"", "select 0 b101, 10b1, 0b2, \"0x1\""),
        ] {
            assert_eq!(written(sql), expected, "{sql}");
        }
    }

    #[test]
    fn arrows_are_lambdas_where_a_function_takes_them() {
        for (sql, expected) in [
            ("list_filter(l, x -> x > 1)", "list_filter(l, lambdax : x > 1)"),
            ("reduce(l, (a, b) -> a)", "reduce(l, lambda a, b  : a)"),
            ("coalesce(j, j -> 'a')", "coalesce(j, j -> 'a')"),
            (
                "list_transform(l -> 'a', x -> (j -> 'a'))",
                "list_transform(l -> 'a', lambdax : (j -> 'a'))",
            ),
            ("list_transform(f(l) -> 'a', 1)", "list_transform(f(l) -> 'a', 1)"),
        ] {
            assert_eq!(written(sql), expected, "{sql}");
        }
    }

    #[test]
    fn a_sample_may_have_a_sign_for_percent() {
        assert_eq!(written("t tablesample system (10%)"), "t tablesample system (10PERCENT)");
        assert_eq!(written("t tablesample 5 %"), "t tablesample 5 PERCENT");
        assert_eq!(written("select 10 % 3"), "select 10 % 3");
    }
}
