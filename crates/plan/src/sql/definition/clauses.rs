//! The clauses of `CREATE FUNCTION` behind its result: language, options and code, in any order and
//! each at most once.

use std::collections::BTreeMap;
use std::ops::Range;

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan};
use snowmelt_wire::OnError;

const OPTIONS: &str = "one of the options packages, secrets, memory, timeout, batch, on_error and image, or AS $$ code \
     $$";

/// The clauses of a statement.
pub(crate) struct Clauses {
    /// Whether the function is called for nulls; absent where the statement does not say it.
    pub(crate) called_on_null: Option<bool>,
    /// Whether equal arguments give equal results in a query; absent where the statement does not say
    /// it.
    pub(crate) deterministic: Option<bool>,
    pub(crate) options: Options,
    /// The bytes of the statement that are the code.
    pub(crate) code: Range<usize>,
}

/// The options of a function. Their values are checked by the platform.
#[derive(Default)]
pub(crate) struct Options {
    pub(crate) packages: Option<Vec<String>>,
    pub(crate) secrets: Option<BTreeMap<String, String>>,
    pub(crate) memory: Option<String>,
    pub(crate) timeout: Option<String>,
    pub(crate) batch: Option<String>,
    pub(crate) on_error: Option<OnError>,
    pub(crate) image: Option<String>,
}

#[derive(Default)]
struct DefinitionClauses {
    language: bool,
    called_on_null: Option<bool>,
    deterministic: Option<bool>,
    options: Options,
    code: Option<Range<usize>>,
}

impl Clauses {
    /// Parses all clauses up to the end of the statement.
    pub(crate) fn parse(parser: &mut Parser<'_>, sql: &str) -> Result<Self, ParserError> {
        let mut found = DefinitionClauses::default();
        while !matches!(parser.peek_token_ref().token, Token::EOF | Token::SemiColon) {
            found.clause(parser, sql)?;
        }
        let last = parser.peek_token();
        if !found.language {
            return parser.expected("LANGUAGE python", last);
        }
        let Some(code) = found.code else {
            return parser.expected("the code: AS $$ code $$", last);
        };
        let DefinitionClauses { called_on_null, deterministic, options, .. } = found;
        Ok(Self { called_on_null, deterministic, options, code })
    }
}

impl DefinitionClauses {
    fn clause(&mut self, parser: &mut Parser<'_>, sql: &str) -> Result<(), ParserError> {
        let first = parser.peek_token();
        if parser.parse_keyword(Keyword::LANGUAGE) {
            once(std::mem::replace(&mut self.language, true), &first)?;
            return language(parser);
        }
        if parser.parse_keyword(Keyword::AS) {
            let code = code(parser, sql)?;
            return once(self.code.replace(code).is_some(), &first);
        }
        if parser.parse_keywords(&[Keyword::CALLED, Keyword::ON, Keyword::NULL, Keyword::INPUT]) {
            return once(self.called_on_null.replace(true).is_some(), &first);
        }
        let returns_null =
            [Keyword::RETURNS, Keyword::NULL, Keyword::ON, Keyword::NULL, Keyword::INPUT];
        if parser.parse_keywords(&returns_null) || parser.parse_keyword(Keyword::STRICT) {
            return once(self.called_on_null.replace(false).is_some(), &first);
        }
        if let Some(deterministic) = deterministic(parser) {
            return once(self.deterministic.replace(deterministic).is_some(), &first);
        }
        if parser.parse_keyword(Keyword::WITH) {
            parser.expect_token(&Token::LParen)?;
            parser.parse_comma_separated0(|parser| self.options.read(parser), Token::RParen)?;
            return parser.expect_token(&Token::RParen).map(drop);
        }
        self.options.read(parser)?;
        _ = parser.consume_token(&Token::Comma);
        Ok(())
    }
}

/// Whether a function is deterministic in a query, in the words of standard SQL and of PostgreSQL.
fn deterministic(parser: &mut Parser<'_>) -> Option<bool> {
    if parser.parse_keywords(&[Keyword::NOT, Keyword::DETERMINISTIC])
        || parser.parse_keyword(Keyword::VOLATILE)
    {
        return Some(false);
    }
    let words = [Keyword::DETERMINISTIC, Keyword::IMMUTABLE, Keyword::STABLE];
    parser.parse_one_of_keywords(&words).map(|_| true)
}

fn once(before: bool, clause: &TokenWithSpan) -> Result<(), ParserError> {
    if before {
        return Err(wrong(&format!("{} is given twice", clause.token), clause));
    }
    Ok(())
}

/// The position is read back from the text, as that of all errors of the parser.
fn wrong(message: &str, at: &TokenWithSpan) -> ParserError {
    ParserError::ParserError(format!("{message}{}", at.span.start))
}

fn language(parser: &mut Parser<'_>) -> Result<(), ParserError> {
    let named = parser.peek_token();
    match parser.parse_identifier()?.value {
        name if name.eq_ignore_ascii_case("python") => Ok(()),
        _ => parser.expected("the language python", named),
    }
}

fn code(parser: &mut Parser<'_>, sql: &str) -> Result<Range<usize>, ParserError> {
    let found = parser.next_token();
    let Token::DollarQuotedString(quoted) = &found.token else {
        return parser.expected("the code between $$ and $$", found);
    };
    let marks = 2 + quoted.tag.as_ref().map_or(0, String::len);
    let begin = offset(sql, found.span.start) + marks;
    let end = offset(sql, found.span.end).saturating_sub(marks);
    Ok(begin..end.max(begin))
}

/// The byte at a position: line and column, counted from 1 in characters.
fn offset(sql: &str, at: Location) -> usize {
    let lines_before = usize::try_from(at.line.saturating_sub(1)).unwrap_or(usize::MAX);
    let mut ends = sql.match_indices('\n').map(|(end, _)| end + 1);
    let line = match lines_before {
        0 => 0,
        many => ends.nth(many - 1).unwrap_or(sql.len()),
    };
    let column = usize::try_from(at.column.saturating_sub(1)).unwrap_or(usize::MAX);
    sql[line..].char_indices().nth(column).map_or(sql.len(), |(byte, _)| line + byte)
}

impl Options {
    /// Reads `key = value`.
    fn read(&mut self, parser: &mut Parser<'_>) -> Result<(), ParserError> {
        let key = parser.next_token();
        let Token::Word(word) = &key.token else { return parser.expected(OPTIONS, key) };
        let name = word.value.to_ascii_lowercase();
        let before = match name.as_str() {
            "packages" => {
                parser.expect_token(&Token::Eq)?;
                self.packages.replace(texts(parser)?).is_some()
            }
            "secrets" => {
                parser.expect_token(&Token::Eq)?;
                self.secrets.replace(secrets(parser)?).is_some()
            }
            "on_error" => {
                parser.expect_token(&Token::Eq)?;
                self.on_error.replace(on_error(parser)?).is_some()
            }
            "memory" => replaced(&mut self.memory, parser)?,
            "timeout" => replaced(&mut self.timeout, parser)?,
            "batch" => replaced(&mut self.batch, parser)?,
            "image" => replaced(&mut self.image, parser)?,
            _ => return parser.expected(OPTIONS, key),
        };
        once(before, &key)
    }
}

fn replaced(option: &mut Option<String>, parser: &mut Parser<'_>) -> Result<bool, ParserError> {
    parser.expect_token(&Token::Eq)?;
    Ok(option.replace(text(parser)?).is_some())
}

fn on_error(parser: &mut Parser<'_>) -> Result<OnError, ParserError> {
    let value = parser.peek_token();
    match text(parser)?.to_ascii_lowercase().as_str() {
        "raise" => Ok(OnError::Raise),
        "null" => Ok(OnError::Null),
        _ => parser.expected("'raise' or 'null'", value),
    }
}

/// `('NAME=env:VARIABLE', 'OTHER=file:NAME')`. The error does not have the text, which may be a
/// secret by mistake.
fn secrets(parser: &mut Parser<'_>) -> Result<BTreeMap<String, String>, ParserError> {
    let first = parser.peek_token();
    let mut found = BTreeMap::new();
    for text in texts(parser)? {
        let named = text.split_once('=').filter(|(name, _)| !name.is_empty());
        let Some((name, reference)) = named else {
            let at = first.span.start;
            let message =
                format!("secrets are written 'NAME=env:VARIABLE' or 'NAME=file:NAME'{at}");
            return Err(ParserError::ParserError(message));
        };
        if found.insert(name.to_owned(), reference.to_owned()).is_some() {
            let message = format!("secrets has {name} twice{}", first.span.start);
            return Err(ParserError::ParserError(message));
        }
    }
    Ok(found)
}

/// A text in quotes, or a number.
fn text(parser: &mut Parser<'_>) -> Result<String, ParserError> {
    let found = parser.next_token();
    match found.token {
        Token::SingleQuotedString(text) => Ok(text),
        Token::Number(number, _) => Ok(number),
        _ => parser.expected("a text in quotes", found),
    }
}

/// Parses a text, or several: `('a', 'b')` or `['a', 'b']`.
fn texts(parser: &mut Parser<'_>) -> Result<Vec<String>, ParserError> {
    let end = if parser.consume_token(&Token::LParen) {
        Token::RParen
    } else if parser.consume_token(&Token::LBracket) {
        Token::RBracket
    } else {
        return Ok(vec![text(parser)?]);
    };
    let all = parser.parse_comma_separated0(text, end.clone())?;
    parser.expect_token(&end)?;
    Ok(all)
}
