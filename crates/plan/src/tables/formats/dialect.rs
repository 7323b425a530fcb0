//! Recognises the dialect of a CSV file from its beginning.
//!
//! A dialect that divides all records of the sample into the same number of values, more than one, is
//! the file's; the usual one of the format is preferred. Whether there is a header line is known only
//! with the types of the columns.

use std::borrow::Cow;

use snowmelt_execute::read::{
    Dialect, Encoding, QuoteFault, Quotes, Recoder, without_lines, without_mark,
};

use super::options::CsvOptions;
use super::sample::Sample;

/// Delimiters that are tried, after the usual one of the format.
const DELIMITERS: [u8; 4] = [b',', b';', b'\t', b'|'];

/// The most records that are looked at.
const RECORDS: usize = 4096;

/// A sample as the reader sees it.
#[derive(Debug)]
pub(super) struct Recognised {
    pub(super) dialect: Dialect,
    /// UTF-8, behind the lines that are skipped.
    pub(super) text: Vec<u8>,
}

/// Recognises what the options leave open. `usual` is the dialect of the format.
pub(super) fn recognise(sample: &Sample, usual: &Dialect, options: &CsvOptions) -> Recognised {
    let encoding = options.encoding.unwrap_or_else(|| encoding(sample));
    let mut dialect = Dialect {
        encoding,
        skip: options.skip,
        notation: options.notation.clone(),
        nulls: options.nulls.clone(),
        pads: options.null_padding,
        ignores_errors: options.ignore_errors,
        tolerant: options.tolerant,
        ..usual.clone()
    };
    let text = recoded(&sample.text, &dialect, sample.whole);
    dialect.carriage_returns = has_carriage_returns(&text, sample.whole);
    // Comments end with lines, so line ends are known first.
    dialect.comment = options.comment.and_then(|mark| mark.0);
    let quote = options.quote.map_or(dialect.quote, |mark| mark.0);
    let utf8 = Dialect { encoding: Encoding::Utf8, quote, ..dialect.clone() };
    let text = recoded(&text, &utf8, sample.whole);
    let text = without_lines(without_mark(&text), options.skip).unwrap_or_default();
    let comments = comments_before(text, sample.whole, &dialect, options);
    dialect.skip += comments;
    let text = without_lines(text, comments).unwrap_or_default();
    dialect.escape = options.escape.and_then(|mark| mark.0);
    let mut found = divided(text, sample.whole, &dialect, options);
    let mut quotes = Quotes::new(&found);
    quotes.scan(text);
    if quotes.fault() == Some(QuoteFault::Escaped) && options.escape.is_none() {
        dialect.escape = Some(b'\\');
        found = divided(text, sample.whole, &dialect, options);
    }
    Recognised { dialect: found, text: text.to_vec() }
}

fn recoded<'t>(text: &'t [u8], dialect: &Dialect, whole: bool) -> Cow<'t, [u8]> {
    let Some(mut recoder) = Recoder::of(dialect, dialect.skip) else { return Cow::Borrowed(text) };
    let mut recoded = recoder.next(text).to_vec();
    if whole {
        recoded.extend_from_slice(&recoder.end());
    }
    Cow::Owned(recoded)
}

/// UTF-16 has a byte order mark. What cannot be UTF-8 has one byte for each character.
fn encoding(sample: &Sample) -> Encoding {
    match sample.text.as_slice() {
        [0xff, 0xfe, ..] => Encoding::Utf16Le,
        [0xfe, 0xff, ..] => Encoding::Utf16Be,
        text if is_latin1(text, sample.whole) => Encoding::Latin1,
        _ => Encoding::Utf8,
    }
}

/// True if no sequence of bytes beyond ASCII is a character of UTF-8: a text with some is damaged.
fn is_latin1(text: &[u8], whole: bool) -> bool {
    let mut chunks = text.utf8_chunks().peekable();
    let mut any = false;
    while let Some(chunk) = chunks.next() {
        if !chunk.valid().is_ascii() || chunk.valid().contains('\0') {
            return false;
        }
        // The last character may be cut.
        let is_cut = chunks.peek().is_none() && !whole;
        any |= !chunk.invalid().is_empty() && !is_cut;
    }
    any
}

fn has_carriage_returns(text: &[u8], whole: bool) -> bool {
    // A line feed may follow the last byte.
    let known = if whole { text } else { &text[..text.len().saturating_sub(1)] };
    known.contains(&b'\r') && !text.contains(&b'\n')
}

/// The number of lines before the records that are comments: they begin with `#`, and the records are
/// divided evenly without them only. A later line that begins so may be a record, and stays.
fn comments_before(text: &[u8], whole: bool, dialect: &Dialect, options: &CsvOptions) -> u64 {
    if options.comment.is_some() || !text.starts_with(b"#") {
        return 0;
    }
    let lines = text.split_inclusive(|byte| *byte == b'\n');
    let comments = lines.take_while(|line| line.starts_with(b"#") || line.trim_ascii().is_empty());
    let (count, bytes) =
        comments.fold((0, 0), |(count, bytes), line| (count + 1, bytes + line.len()));
    let strict = Dialect { pads: false, ignores_errors: false, ..dialect.clone() };
    let is_even = |text: &[u8]| {
        let found = divided(text, whole, &strict, options);
        columns(text, whole, &found, false).is_some_and(|columns| columns >= 2)
    };
    if is_even(text) || !is_even(&text[bytes..]) { 0 } else { count }
}

/// The dialect with the delimiter and the quotation mark that divide the text evenly.
fn divided(text: &[u8], whole: bool, dialect: &Dialect, options: &CsvOptions) -> Dialect {
    let with = |delimiter, quote| Dialect { delimiter, quote, ..dialect.clone() };
    let mut delimiters: Vec<u8> = match options.delimiter {
        Some(given) => vec![given],
        None => [&[dialect.delimiter], DELIMITERS.as_slice()].concat(),
    };
    delimiters.dedup();
    if options.delimiter.is_none() {
        let decimal = options.notation.decimal;
        delimiters.retain(|delimiter| char::from(*delimiter) != decimal);
    }
    let best = |quote, strict| {
        let mut best: Option<(usize, Dialect)> = None;
        for (index, delimiter) in delimiters.iter().enumerate() {
            let dialect = with(*delimiter, quote);
            let Some(columns) = columns(text, whole, &dialect, strict) else { continue };
            if columns >= 2 && best.as_ref().is_none_or(|(most, _)| columns > *most) {
                best = Some((columns, dialect));
            }
            if index == 0 && best.is_some() {
                break;
            }
        }
        best.map(|(_, dialect)| dialect)
    };
    let quote = options.quote.map_or(dialect.quote, |mark| mark.0);
    let apostrophes = options.quote.is_none() && text.contains(&b'\'') && !text.contains(&b'"');
    let quoted_otherwise = apostrophes.then(|| best(Some(b'\''), true)).flatten();
    quoted_otherwise.or_else(|| best(quote, false)).unwrap_or_else(|| with(delimiters[0], quote))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Start,
    Plain,
    Quoted,
    Escaped,
    Mark,
    Spaces,
}

/// The state behind a byte after a mark, if the value goes on there. `None` if it may have ended.
fn behind_mark(state: State, byte: u8, dialect: &Dialect) -> Option<State> {
    let is_mark = Some(byte) == dialect.quote;
    let separates = byte == dialect.delimiter || matches!(byte, b'\n' | b'\r');
    match state {
        State::Mark if is_mark => Some(State::Quoted),
        State::Spaces if is_mark => Some(State::Mark),
        State::Mark | State::Spaces if dialect.tolerant && !separates => Some(match byte {
            b' ' => State::Spaces,
            byte if Some(byte) == dialect.escape => State::Escaped,
            _ => State::Quoted,
        }),
        _ => None,
    }
}

/// The number of values that all records have; `None` if they differ, unless the dialect takes such
/// records: then it is that of the longest or of the first one. With `strict`, some value must be
/// quoted, and nothing may stand behind the mark that ends one.
pub(super) fn columns(text: &[u8], whole: bool, dialect: &Dialect, strict: bool) -> Option<usize> {
    let mut all = None;
    let mut records = 0;
    let mut quoted = false;
    let ragged = dialect.pads || dialect.ignores_errors;
    let limit = if dialect.pads { usize::MAX } else { RECORDS };
    let mut values = 1;
    let mut is_blank = true;
    let mut state = State::Start;
    for byte in text.iter().copied() {
        let is_mark = Some(byte) == dialect.quote;
        match state {
            State::Quoted => {
                state = match byte {
                    _ if Some(byte) == dialect.escape => State::Escaped,
                    _ if is_mark => State::Mark,
                    _ => State::Quoted,
                };
                continue;
            }
            State::Escaped => {
                state = State::Quoted;
                continue;
            }
            _ => {}
        }
        if let Some(behind) = behind_mark(state, byte, dialect) {
            state = behind;
            continue;
        }
        match byte {
            b'\n' => {
                if !is_blank {
                    let all = all.get_or_insert(values);
                    match dialect.pads {
                        true => *all = values.max(*all),
                        false if *all != values && !ragged => return None,
                        false => {}
                    }
                    records += 1;
                }
                if records == limit {
                    break;
                }
                (values, is_blank, state) = (1, true, State::Start);
            }
            b'\r' => {}
            _ if byte == dialect.delimiter => {
                (values, is_blank, state) = (values + 1, false, State::Start);
            }
            _ if is_mark && state == State::Start => {
                (is_blank, state, quoted) = (false, State::Quoted, true);
            }
            _ if strict && state == State::Mark => return None,
            _ => (is_blank, state) = (false, State::Plain),
        }
    }
    let is_open = matches!(state, State::Quoted | State::Escaped);
    if is_open && (whole || strict) || strict && !quoted {
        return None;
    }
    match (whole && !is_blank && records < limit, all) {
        (true, Some(all)) if dialect.pads => Some(values.max(all)),
        (true, Some(all)) if ragged => Some(all),
        (true, all) => Some(values).filter(|values| all.is_none_or(|all| all == *values)),
        (false, all) => all,
    }
}

#[cfg(test)]
mod tests {
    use snowmelt_files::Format;

    use super::*;
    use crate::tables::formats::options::Mark;

    fn of(text: &[u8], format: Format, options: &CsvOptions) -> Dialect {
        let sample = Sample { text: text.to_vec(), whole: true, last: true };
        recognise(&sample, &Dialect::of(format), options).dialect
    }

    fn csv(text: &[u8]) -> Dialect {
        of(text, Format::Csv, &CsvOptions::default())
    }

    #[test]
    fn delimiters_divide_all_records_evenly() {
        for (text, delimiter) in [
            ("a,b;c\n1,2;3\n", b','),
            ("id;name\n1;a,b\n2;c\n", b';'),
            ("a;b\n1,5;2,5\n", b';'),
            ("a\tb\n1\t2\n\n", b'\t'),
            ("a|b|c\n1|\"2|\n3\"|4", b'|'),
            ("a\n1\n", b','),
            ("a,b\n1,2\n3\n", b','),
            ("x;y\n1;2\n3\n", b','),
            ("", b','),
        ] {
            assert_eq!(csv(text.as_bytes()).delimiter, delimiter, "{text:?}");
        }
        let tabs = of(b"a,b\tc\n1,2\t3\n", Format::Tsv, &CsvOptions::default());
        assert_eq!(tabs.delimiter, b'\t');
        let given = CsvOptions { delimiter: Some(b':'), ..CsvOptions::default() };
        assert_eq!(of(b"a,b:c\n1,2\n", Format::Csv, &given).delimiter, b':');
    }

    #[test]
    fn marks_and_escapes_are_recognised() {
        let of = |text: &str| csv(text.as_bytes());
        assert_eq!(of("a;b\n'x;y';2\n'it''s';3\n").quote, Some(b'\''));
        assert_eq!(of("a,b\nit's,'tis\n").quote, Some(b'"'));
        assert_eq!(of("a,b\n\"'x'\",'y'\n").quote, Some(b'"'));
        assert_eq!(of("a,b\n1,\"he said \\\"hi, you\\\"\"\n").escape, Some(b'\\'));
        assert_eq!(of("a,b\n\"C:\\\",2\n").escape, None);
        assert_eq!(of("a,b\n1,\"he \"\"x\"\" \\\"\n").escape, None);
    }

    #[test]
    fn encodings_and_line_ends_are_recognised() {
        assert_eq!(csv("a,é\n".as_bytes()).encoding, Encoding::Utf8);
        assert_eq!(csv(b"a,\xe9\n").encoding, Encoding::Latin1);
        assert_eq!(csv(b"\xc3\xa9,\xe9\n").encoding, Encoding::Utf8, "damaged");
        let utf16 = csv(b"\xff\xfea\0;\0b\0\n\0");
        assert_eq!((utf16.encoding, utf16.delimiter), (Encoding::Utf16Le, b';'));
        assert_eq!(csv(b"\xfe\xff\0a\0\n").encoding, Encoding::Utf16Be);
        let returns = csv(b"a;b\r1;2\r");
        assert_eq!((returns.carriage_returns, returns.delimiter), (true, b';'));
        assert!(!csv(b"a;b\r\n1;2\r\n").carriage_returns);
        let cut = Sample { text: b"a,b\n1,\xc3".to_vec(), whole: false, last: false };
        let cut = recognise(&cut, &Dialect::of(Format::Csv), &CsvOptions::default());
        assert_eq!(cut.dialect.encoding, Encoding::Utf8);
    }

    #[test]
    fn comments_before_the_records_are_recognised() {
        for (text, skip) in [
            ("# made by x\n# on, a, day\nid,name\n1,a\n", 2),
            ("# it's\n\n#\n\nid;name\n1;a\n", 4),
            ("#id,name\n1,a\n", 0),
            ("# id,name\n1,a\n#2,b\n", 0),
            ("# made by x\nid,name\n#1,a\n", 1),
            ("# made by x\nid\n1\n", 0),
            ("# only\n# comments\n", 0),
            ("id,name\n# no, comment, here\n", 0),
        ] {
            assert_eq!(csv(text.as_bytes()).skip, skip, "{text:?}");
        }
        let none = CsvOptions { comment: Some(Mark(None)), ..CsvOptions::default() };
        assert_eq!(of(b"# x\na,b\n", Format::Csv, &none).skip, 0);
        let padded = CsvOptions { null_padding: true, ..CsvOptions::default() };
        assert_eq!(of(b"# x\na,b\n1,2\n", Format::Csv, &padded).skip, 1);
        let skipped = CsvOptions { skip: 1, ..CsvOptions::default() };
        assert_eq!(of(b"about\n# x\na,b\n1,2\n", Format::Csv, &skipped).skip, 2);
    }

    #[test]
    fn options_are_not_overruled() {
        let options = CsvOptions {
            quote: Some(Mark(None)),
            escape: Some(Mark(None)),
            encoding: Some(Encoding::Latin1),
            skip: 1,
            ..CsvOptions::default()
        };
        let sample = Sample { text: b"x\n\"a;b\n1;2\n".to_vec(), whole: true, last: true };
        let found = recognise(&sample, &Dialect::of(Format::Csv), &options);
        let expected = Dialect {
            delimiter: b';',
            quote: None,
            encoding: Encoding::Latin1,
            skip: 1,
            ..Dialect::of(Format::Csv)
        };
        assert_eq!((found.dialect, found.text.as_slice()), (expected, &b"\"a;b\n1;2\n"[..]));
    }
}
