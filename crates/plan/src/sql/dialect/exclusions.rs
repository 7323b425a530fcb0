//! EXCLUDE in the frame of a window, which the parser lacks.
//!
//! `OVER (ORDER BY k ROWS … EXCLUDE CURRENT ROW)` becomes a window that refers to another one, whose
//! name is that of the exclusion: no window of a query can have this name, which has spaces. EXCLUDE
//! NO OTHERS says nothing.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Whitespace, Word};

/// The kinds of exclusions, each with its words.
const KINDS: [(&str, &[&str]); 4] = [
    ("EXCLUDE CURRENT ROW", &["current", "row"]),
    ("EXCLUDE GROUP", &["group"]),
    ("EXCLUDE TIES", &["ties"]),
    ("EXCLUDE NO OTHERS", &["no", "others"]),
];

/// Marks the windows whose frames have EXCLUDE.
pub(super) fn marked(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    for index in (0..tokens.len()).rev() {
        let Some((kind, end)) = kind(&tokens, index) else { continue };
        let says_nothing = kind == "EXCLUDE NO OTHERS";
        let window = window(&tokens, index).filter(|_| !says_nothing);
        if window.is_none() && !says_nothing {
            // The parser refuses the word.
            continue;
        }
        for token in &mut tokens[index..end] {
            token.token = Token::Whitespace(Whitespace::Space);
        }
        if let Some(begin) = window {
            let span = tokens[begin].span;
            let keyword = Keyword::NoKeyword;
            let token = Token::Word(Word { value: kind.to_owned(), quote_style: None, keyword });
            tokens.insert(begin + 1, TokenWithSpan { token, span });
        }
    }
    tokens
}

/// The kind of the exclusion that begins at a word behind the bounds of a frame and ends its window,
/// and the place of the window's parenthesis.
fn kind(tokens: &[TokenWithSpan], index: usize) -> Option<(&'static str, usize)> {
    let before = near(tokens, (0..index).rev())?;
    if !is_word(&tokens[index].token, "exclude") {
        return None;
    }
    let ends = ["preceding", "following", "row"];
    let is_bound = ends.iter().any(|word| is_word(&tokens[before].token, word));
    KINDS.iter().filter(|_| is_bound).find_map(|(kind, words)| {
        let mut at = index;
        for word in *words {
            at = near(tokens, at + 1..tokens.len())?;
            is_word(&tokens[at].token, word).then_some(())?;
        }
        let end = near(tokens, at + 1..tokens.len())?;
        (tokens[end].token == Token::RParen).then_some((*kind, end))
    })
}

/// The parenthesis behind OVER that is open at a place, if the window has no name of another one.
fn window(tokens: &[TokenWithSpan], index: usize) -> Option<usize> {
    let mut depth = 0_usize;
    let open = (0..index).rev().find(|place| match tokens[*place].token {
        Token::RParen => {
            depth += 1;
            false
        }
        Token::LParen if depth > 0 => {
            depth -= 1;
            false
        }
        Token::LParen => true,
        _ => false,
    })?;
    let over = near(tokens, (0..open).rev())?;
    let first = near(tokens, open + 1..index)?;
    let has_name = matches!(&tokens[first].token, Token::Word(word)
        if word.keyword == Keyword::NoKeyword);
    (is_word(&tokens[over].token, "over") && !has_name).then_some(open)
}

fn near(tokens: &[TokenWithSpan], mut places: impl Iterator<Item = usize>) -> Option<usize> {
    places.find(|place| !matches!(tokens[*place].token, Token::Whitespace(_)))
}

fn is_word(token: &Token, text: &str) -> bool {
    matches!(token, Token::Word(word)
        if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(text))
}
