//! Finds the quoted texts of a query that stand where SQL can have a table.
//!
//! The search is not a parser: it recognises punctuation, words and quotations, and which of them a
//! table can follow. It errs to one side only: it omits no table, and may return a text that is not
//! one.

use std::iter::Peekable;
use std::str::Chars;

use snowmelt_files::READERS;

/// Words that begin a list of tables.
const LISTS: [&str; 2] = ["FROM", "JOIN"];

/// Other words that a table can follow.
const BEFORE_TABLES: [&str; 10] = [
    "APPLY",
    "DESC",
    "DESCRIBE",
    "EXPLAIN",
    "EXTENDED",
    "FORMATTED",
    "LATERAL",
    "ONLY",
    "SUMMARIZE",
    "TABLE",
];

/// Words that end a list of tables. None of them can be the name of a table in it.
const BEHIND_TABLES: [&str; 12] = [
    "SELECT",
    "WHERE",
    "GROUP",
    "HAVING",
    "ORDER",
    "LIMIT",
    "OFFSET",
    "FETCH",
    "WINDOW",
    "UNION",
    "INTERSECT",
    "EXCEPT",
];

/// The most letters of a word that changes how the quotation directly behind it is read.
const LONGEST_PREFIX: usize = 2;

/// Returns the quoted texts that can be tables, or `None` where only a parser can decide: texts
/// with escapes or prefixes, and unterminated ones.
pub(super) fn tables(sql: &str) -> Option<Vec<String>> {
    let mut tokens = Tokens { rest: sql.chars().peekable(), prefix: false };
    let mut place = TokenPosition::default();
    let mut around = Vec::new();
    let mut found = Vec::new();
    while let Some(token) = tokens.next()? {
        let is_point = matches!(token, StatementToken::Mark('.'));
        let behind_reader = std::mem::take(&mut place.behind_reader);
        match token {
            StatementToken::Quoted(text) if place.expects => {
                (place.expects, place.behind_reader) = (false, is_reader(&text));
                found.push(text);
            }
            StatementToken::Word(word) => place.word(&word),
            StatementToken::Mark('(') => {
                let tables = place.tables && place.expects;
                around.push(place);
                let expects = tables || behind_reader;
                place = TokenPosition {
                    tables,
                    expects,
                    reads: behind_reader,
                    ..TokenPosition::default()
                };
            }
            StatementToken::Mark(')') => {
                place = TokenPosition { expects: false, ..around.pop().unwrap_or_default() }
            }
            StatementToken::Mark('[') if place.reads && place.expects => place.locations = true,
            StatementToken::Mark(']') => (place.expects, place.locations) = (false, false),
            StatementToken::Mark(',' | '.') => place.expects = place.tables || place.locations,
            StatementToken::Quoted(_) | StatementToken::Mark(_) => place.expects = false,
        }
        place.behind_point = is_point;
    }
    Some(found)
}

/// The position of a token in a statement, within its parentheses.
#[derive(Clone, Copy, Default)]
struct TokenPosition {
    /// True in a list of tables.
    tables: bool,
    /// True if a table can come next.
    expects: bool,
    /// True behind a point, where every word is a name.
    behind_point: bool,
    /// True behind the name of a function that reads the locations in its first argument.
    behind_reader: bool,
    /// True in the arguments of such a function.
    reads: bool,
    /// True in a list of locations in such arguments.
    locations: bool,
}

impl TokenPosition {
    fn word(&mut self, word: &str) {
        let is_one_of = |words: &[&str]| words.iter().any(|known| known.eq_ignore_ascii_case(word));
        self.behind_reader = self.expects && is_reader(word);
        let list = is_one_of(&LISTS);
        self.tables |= list;
        self.expects = list || is_one_of(&BEFORE_TABLES);
        if !self.behind_point && is_one_of(&BEHIND_TABLES) {
            self.tables = false;
        }
    }
}

fn is_reader(name: &str) -> bool {
    READERS.iter().any(|reader| reader.eq_ignore_ascii_case(name))
}

enum StatementToken {
    Word(String),
    Quoted(String),
    Mark(char),
}

struct Tokens<'s> {
    rest: Peekable<Chars<'s>>,
    // What was read last can be part of a quotation that follows: `e'\\n'`.
    prefix: bool,
}

impl Tokens<'_> {
    /// Reads the next token, if there is one. The outer `None` means that the token cannot be
    /// decided.
    fn next(&mut self) -> Option<Option<StatementToken>> {
        loop {
            let prefixed = std::mem::take(&mut self.prefix);
            let Some(next) = self.rest.next() else { return Some(None) };
            let then = self.rest.peek().copied();
            return match (next, then) {
                ('\\' | '$', _) => None,
                ('-', Some('-')) => {
                    _ = self.rest.by_ref().find(|next| *next == '\n');
                    continue;
                }
                ('/', Some('*')) => {
                    self.comment()?;
                    continue;
                }
                ('\'' | '"' | '`', _) => match prefixed {
                    true => None,
                    false => self.quoted(next).map(StatementToken::Quoted).map(Some),
                },
                (space, _) if space.is_whitespace() => continue,
                (letter, _) if in_words(letter) => {
                    let word = self.word(letter);
                    self.prefix = word.chars().count() <= LONGEST_PREFIX;
                    Some(Some(StatementToken::Word(word)))
                }
                (mark, _) => Some(Some(StatementToken::Mark(mark))),
            };
        }
    }

    fn word(&mut self, first: char) -> String {
        let mut word = String::from(first);
        while let Some(next) = self.rest.next_if(|next| in_words(*next)) {
            word.push(next);
        }
        word
    }

    /// Reads the text up to the mark that ends it; inside, such a mark is written twice.
    fn quoted(&mut self, mark: char) -> Option<String> {
        let mut text = String::new();
        loop {
            match self.rest.next()? {
                '\\' | '$' => return None,
                next if next == mark => match self.rest.next_if_eq(&mark) {
                    Some(twice) => text.push(twice),
                    None => return Some(text),
                },
                next => text.push(next),
            }
        }
    }

    /// Skips a comment. Comments can be nested. `None` for one that begins with `/*!`, which is not
    /// a comment in every dialect.
    fn comment(&mut self) -> Option<()> {
        self.rest.next();
        if self.rest.peek() == Some(&'!') {
            return None;
        }
        let mut depth = 1;
        while depth > 0 {
            match self.rest.next()? {
                '/' if self.rest.next_if_eq(&'*').is_some() => depth += 1,
                '*' if self.rest.next_if_eq(&'/').is_some() => depth -= 1,
                _ => (),
            }
        }
        Some(())
    }
}

fn in_words(letter: char) -> bool {
    letter.is_alphanumeric() || matches!(letter, '_' | '#' | '@')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(sql: &str, expected: &[&str]) {
        assert_eq!(tables(sql).unwrap_or_else(|| panic!("{sql}")), expected, "{sql}");
    }

    #[test]
    fn a_text_where_a_table_can_stand_is_one() {
        check("select * from 'data/*.parquet' where a > 1", &["data/*.parquet"]);
        check("SELECT * FROM \"it's\"", &["it's"]);
        check("from `x` limit 2", &["x"]);
        check("select 1 from 'o''clock'", &["o'clock"]);
        check("select * from 'a' x, 'b' as y join 'c' on true", &["a", "b", "c"]);
        check("select * from ('a'), (('b' t join 'c' on 1 = 1))", &["a", "b", "c"]);
        check("with t as (from 'a' union all select * from'b') from t", &["a", "b"]);
        check("select (select max(x) from 'a') from 'b' group by all", &["a", "b"]);
        check("describe 'a'", &["a"]);
        check("explain select * from -- 'x'\n 'a' /* from 'y' /* ' */ */", &["a"]);
        check("select * from public.'a'", &["a"]);
        check("select t.where, 1 from a t join 'b' on t.order = 1, 'c'", &["b", "c"]);
    }

    #[test]
    fn a_location_of_a_function_that_reads_is_one() {
        check("select * from read_csv('a', delim => ';') where b = '/x'", &["a"]);
        check(
            "from READ_PARQUET ( 'a' ) t, \"glob\"('b') join read_json('c') on true",
            &["a", "glob", "b", "c"],
        );
        check(
            "from read_csv(['a', 'b'], nullstr => ['/x', '/y'], quote => '/z'), 'c'",
            &["a", "b", "c"],
        );
        check("select glob('/x'), read_csv from 'a' where read_csv('/y') = 1", &["a"]);
        check("from t, read_csv(f('/x'), '/y', ['/z'])", &[]);
    }

    #[test]
    fn a_text_anywhere_else_is_not_a_table() {
        check("select '/etc', 'x' as \"y\" from t", &[]);
        check("select replace(a, '/etc', 'b') from 'a'", &["a"]);
        check("select * from 'a' where path = '/etc' and b in ('/x', '/y')", &["a"]);
        check("select * from 'a' order by replace(b, '/x'), '/y'", &["a"]);
        check("select * from f('/x', '/y') t, 'a'", &["a"]);
        check("select * from 'a' order by b desc, '/y'", &["a"]);
        check("select case when a then '/x' else '/y' end from 'a' 'alias'", &["a"]);
        check("select 'from ''x''' from 'a'", &["a"]);
        check("from 'a' select b, '/x'", &["a"]);
    }

    #[test]
    fn ambiguous_quotations_are_left_to_the_parser() {
        for sql in [
            "select e'\\'' from 'a'",
            "select $$it's$$ from 'a'",
            "select q'[it's]' from 'a'",
            "select n'x' from 'a'",
            "select 1 /*! from 'a' */",
            "select 'a",
            "select 1 /* from 'a'",
        ] {
            assert_eq!(tables(sql), None, "{sql}");
        }
    }
}
