//! Finds the ends of CSV records without decoding them.
//!
//! A line break inside quotation marks does not end a record. The rules are the decoder's: a mark
//! opens a quotation only at the beginning of a value, and two marks inside are one. In a dialect
//! with escapes, a mark behind an escape does not end the quotation either.

use crate::read::Dialect;

/// The state of a CSV text behind the bytes that were scanned.
#[derive(Clone, Debug)]
pub struct Quotes {
    delimiter: u8,
    quote: Option<u8>,
    escape: Option<u8>,
    tolerant: bool,
    state: State,
    /// The byte before the next one, inside a quotation.
    before: u8,
    /// Behind a doubled mark, and spaces at most, where a dialect takes marks inside of values.
    behind_double: bool,
    /// True if the value has a mark that may have been meant as its end.
    in_doubt: bool,
    fault: Option<QuoteFault>,
}

/// Why the end of a value is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuoteFault {
    /// A value goes on behind a mark with a backslash before it, although the dialect has no escapes.
    Escaped,
    /// A value goes on over the end of a line, and has a mark before it that may have been meant as
    /// its end: the records behind it would become a part of the value.
    InDoubt,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// At the beginning of a value.
    Start,
    /// Inside a value without quotation marks.
    Plain,
    /// Inside quotation marks.
    Quoted,
    /// Behind an escape inside quotation marks.
    Escaped,
    /// Behind a mark that ends the quotation, unless another one follows.
    Mark,
    /// Behind such a mark and spaces, where a dialect takes marks inside of values.
    Spaces,
}

impl Quotes {
    /// Creates the state at the beginning of a record.
    pub fn new(dialect: &Dialect) -> Self {
        let Dialect { delimiter, quote, escape, tolerant, .. } = *dialect;
        Self {
            delimiter,
            quote,
            escape,
            tolerant,
            state: State::Start,
            before: 0,
            behind_double: false,
            in_doubt: false,
            fault: None,
        }
    }

    /// True if the text ends inside a quotation.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state, State::Quoted | State::Escaped)
    }

    /// Why the end of a value is not known, if it is not. Nothing behind that value was scanned.
    pub fn fault(&self) -> Option<QuoteFault> {
        self.fault
    }

    /// Scans the next bytes. Gives the index after the last line break among them that ends a
    /// record.
    pub fn scan(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        let mut last = None;
        while at < bytes.len() && self.fault.is_none() {
            let rest = &bytes[at..];
            match self.state {
                State::Quoted => {
                    let found = self.special(rest);
                    self.inside(&rest[..found.unwrap_or(rest.len())]);
                    let Some(found) = found else {
                        self.before = rest[rest.len() - 1];
                        return last;
                    };
                    let mark = Some(rest[found]) == self.quote;
                    self.state = if mark { State::Mark } else { State::Escaped };
                    self.before = found.checked_sub(1).map_or(self.before, |end| rest[end]);
                    at += found + 1;
                }
                State::Escaped => {
                    self.inside(&rest[..1]);
                    self.state = State::Quoted;
                    at += 1;
                }
                State::Mark | State::Spaces => {
                    if rest[0] == b'\n' {
                        last = Some(at + 1);
                    }
                    self.behind_mark(rest[0]);
                    at += 1;
                }
                State::Start | State::Plain => {
                    let plain = self.quote.and_then(|quote| position(rest, quote));
                    let plain = plain.unwrap_or(rest.len());
                    if let Some(end) = rest[..plain].iter().rposition(|byte| *byte == b'\n') {
                        last = Some(at + end + 1);
                    }
                    at += plain;
                    if let Some(before) = rest[..plain].last() {
                        let start = self.separates(*before);
                        self.state = if start { State::Start } else { State::Plain };
                    }
                    if plain < rest.len() {
                        let opens = self.state == State::Start;
                        self.state = if opens { State::Quoted } else { State::Plain };
                        self.before = rest[plain];
                        at += 1;
                    }
                }
            }
        }
        last
    }

    /// The next mark or escape inside a quotation.
    fn special(&self, bytes: &[u8]) -> Option<usize> {
        let quote = self.quote?;
        match self.escape {
            None => position(bytes, quote),
            Some(escape) => bytes.iter().position(|byte| *byte == quote || *byte == escape),
        }
    }

    /// Looks at a part of a quoted value that has neither marks nor escapes.
    fn inside(&mut self, part: &[u8]) {
        if self.behind_double {
            let next = part.iter().copied().find(|byte| *byte != b' ' || self.separates(b' '));
            self.in_doubt |= next.is_some_and(|byte| self.separates(byte));
            self.behind_double = next.is_none();
        }
        if self.in_doubt && part.contains(&b'\n') {
            self.fault = Some(QuoteFault::InDoubt);
        }
    }

    fn behind_mark(&mut self, byte: u8) {
        let before = self.state;
        self.state = match byte {
            // Behind spaces, it is a mark that may end the value itself.
            mark if Some(mark) == self.quote && self.state == State::Spaces => State::Mark,
            mark if Some(mark) == self.quote => State::Quoted,
            byte if self.separates(byte) => State::Start,
            b' ' if self.tolerant => State::Spaces,
            byte if self.tolerant && Some(byte) == self.escape => State::Escaped,
            _ if self.tolerant => State::Quoted,
            _ => State::Plain,
        };
        self.behind_double = false;
        match self.state {
            State::Quoted if before == State::Mark && Some(byte) == self.quote => {
                self.behind_double = self.tolerant;
            }
            // The mark before it is a part of the value.
            State::Quoted | State::Escaped => self.in_doubt = true,
            State::Mark => self.in_doubt = true,
            State::Plain if self.escape.is_none() && self.before == b'\\' => {
                self.fault = Some(QuoteFault::Escaped);
            }
            State::Start | State::Plain => self.in_doubt = false,
            State::Spaces => {}
        }
        self.before = byte;
    }

    /// The index after the first line break that ends a record of a text. All of the text if there
    /// is none.
    pub(crate) fn first_record(&self, bytes: &[u8]) -> usize {
        let mut quotes = Self {
            state: State::Start,
            behind_double: false,
            in_doubt: false,
            fault: None,
            ..self.clone()
        };
        let mut at = 0;
        while let Some(end) = position(&bytes[at..], b'\n') {
            let line = &bytes[at..=at + end];
            at += line.len();
            if quotes.scan(line).is_some() || quotes.fault.is_some() {
                return at;
            }
        }
        bytes.len()
    }

    fn separates(&self, byte: u8) -> bool {
        byte == self.delimiter || byte == b'\n' || byte == b'\r'
    }
}

/// Returns the index of the first byte that is `wanted`.
pub(crate) fn position(bytes: &[u8], wanted: u8) -> Option<usize> {
    // Most bytes are skipped by `contains`, which is vectorised.
    const STEP: usize = 4096;
    let steps = bytes.chunks(STEP).enumerate();
    let mut found = steps.filter(|(_, step)| step.contains(&wanted));
    let (index, step) = found.next()?;
    step.iter().position(|byte| *byte == wanted).map(|at| index * STEP + at)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use snowmelt_files::Format;

    use super::*;

    fn quotes() -> Quotes {
        Quotes::new(&Dialect::of(Format::Csv))
    }

    fn last(text: &str) -> (Option<usize>, bool) {
        let mut quotes = quotes();
        let last = quotes.scan(text.as_bytes());
        (last, quotes.is_open())
    }

    #[test]
    fn line_breaks_in_quotations_end_no_record() {
        for (text, expected) in [
            ("a,b\nc", (Some(4), false)),
            ("a,\"b\nc", (None, true)),
            ("a,\"b\nc\"\nd", (Some(8), false)),
            ("a,\"b\"\"\nc\"\n", (Some(10), false)),
            ("a,5\" b\nc\n", (Some(9), false)),
            ("\"\"\n\"x", (Some(3), true)),
            ("\"a\"b\"\nc", (Some(6), false)),
            ("", (None, false)),
        ] {
            assert_eq!(last(text), expected, "{text:?}");
        }
    }

    #[test]
    fn escapes_are_known_or_found() {
        let escape = Some(b'\\');
        let known = Dialect { escape, ..Dialect::of(Format::Csv) };
        for (text, end, is_escaped) in [
            ("1,\"a \\\"b\\\"\n\",2\n3\n", 17, Some(None)),
            ("1\n\"a \\\" b\"\n", 11, Some(Some(2))),
            ("\"C:\\\",2\n", 8, None),
        ] {
            let mut plain = quotes();
            let found = plain.scan(text.as_bytes());
            let fault = is_escaped.map(|_| QuoteFault::Escaped);
            assert_eq!(plain.fault(), fault, "{text}");
            assert_eq!(fault.map(|_| found), is_escaped, "{text}");
            let mut escaped = Quotes::new(&known);
            let found = escaped.scan(text.as_bytes());
            assert_eq!(escaped.fault(), None);
            assert_eq!(found, is_escaped.map(|_| end), "{text}");
        }
        let none = Dialect { quote: None, ..Dialect::of(Format::Csv) };
        assert_eq!(Quotes::new(&none).scan(b"\"a\nb"), Some(3));
    }

    #[test]
    fn marks_inside_of_values_may_be_parts_of_them() {
        let tolerant = Dialect { tolerant: true, ..Dialect::of(Format::Csv) };
        for (text, expected) in [
            ("\"a\n \"b\" c\",1\n2", (Some(13), false)),
            ("\"a\" ,1\nb", (Some(7), false)),
            ("\"a\" \"\n1\n", (Some(8), false)),
            ("\"a\"b\n", (None, true)),
        ] {
            for at in 0..text.len() {
                let mut quotes = Quotes::new(&tolerant);
                let first = quotes.scan(&text.as_bytes()[..at]);
                let last = quotes.scan(&text.as_bytes()[at..]).map(|end| end + at).or(first);
                assert_eq!((last, quotes.is_open()), expected, "{text:?} {at}");
            }
        }
    }

    #[test]
    fn a_value_that_may_have_ended_in_an_earlier_line_is_found() {
        let tolerant = Dialect { tolerant: true, ..Dialect::of(Format::Csv) };
        let doubt = Some(QuoteFault::InDoubt);
        for (text, fault) in [
            ("1\n\"27\"\",5\n\"28\"\",6\n", doubt),
            ("1\n\"27\"\" ,5\n\"x\",6\n", doubt),
            ("1\n\"27\" x,5\n\"x\",6\n", doubt),
            ("1\n\"27\" \" x,5\n\"x\",6\n", doubt),
            ("1\n\"27\"\"\r\n\"x\"\n", doubt),
            ("1\n\"27\"\",5\",6\n\"x\ny\"\n", None),
            ("1\n\"27\"\"\",5\n\"x\ny\"\n", None),
            ("1\n\"a \"\"b\"\" c\nd\",5\n", None),
            ("1\n\"a\n\"b\" c\",5\n\"x\ny\"\n", None),
            ("1\n\"\",5\n\"x\ny\",6\n", None),
        ] {
            for at in 0..text.len() {
                let mut quotes = Quotes::new(&tolerant);
                quotes.scan(&text.as_bytes()[..at]);
                quotes.scan(&text.as_bytes()[at..]);
                assert_eq!(quotes.fault(), fault, "{text:?} {at}");
            }
            let mut strict = quotes();
            strict.scan(text.as_bytes());
            assert_eq!(strict.fault(), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn the_result_does_not_depend_on_the_chunks(
            text in "[a,\"\n\r\\\\]{0,40}",
            at in 0usize..40,
        ) {
            let whole = last(&text);
            let at = at.min(text.len());
            let mut quotes = quotes();
            let first = quotes.scan(&text.as_bytes()[..at]);
            let second = quotes.scan(&text.as_bytes()[at..]).map(|end| end + at);
            prop_assert_eq!((second.or(first), quotes.is_open()), whole);
        }
    }
}
