//! Finds the ends of CSV records without decoding them.
//!
//! A line break inside quotation marks does not end a record. The rules are those of the decoder: a
//! mark opens a quotation only at the beginning of a value, and two marks inside are one.

/// The state of a CSV text behind the bytes that were scanned.
#[derive(Clone, Debug)]
pub(crate) struct Quotes {
    delimiter: u8,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// At the beginning of a value.
    Start,
    /// Inside a value without quotation marks.
    Plain,
    /// Inside quotation marks.
    Quoted,
    /// Behind a mark that ends the quotation, unless another one follows.
    Mark,
}

impl Quotes {
    pub(crate) fn new(delimiter: u8) -> Self {
        Self { delimiter, state: State::Start }
    }

    /// True if the text ends inside a quotation.
    pub(crate) fn is_open(&self) -> bool {
        self.state == State::Quoted
    }

    /// Scans the next bytes. Gives the index after the last line break among them that ends a
    /// record.
    pub(crate) fn scan(&mut self, bytes: &[u8]) -> Option<usize> {
        let (mut at, mut last) = (0, None);
        while at < bytes.len() {
            let rest = &bytes[at..];
            match self.state {
                State::Quoted => match position(rest, b'"') {
                    None => return last,
                    Some(mark) => {
                        at += mark + 1;
                        self.state = State::Mark;
                    }
                },
                State::Mark => {
                    if rest[0] == b'\n' {
                        last = Some(at + 1);
                    }
                    self.state = match rest[0] {
                        b'"' => State::Quoted,
                        byte if self.separates(byte) => State::Start,
                        _ => State::Plain,
                    };
                    at += 1;
                }
                State::Start | State::Plain => {
                    let plain = position(rest, b'"').unwrap_or(rest.len());
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
                        at += 1;
                    }
                }
            }
        }
        last
    }

    /// The index after the first line break that ends a record of a text. All of the text if there
    /// is none.
    pub(crate) fn first_record(&self, bytes: &[u8]) -> usize {
        let mut quotes = Self::new(self.delimiter);
        let mut at = 0;
        while let Some(end) = position(&bytes[at..], b'\n') {
            let line = &bytes[at..=at + end];
            at += line.len();
            if quotes.scan(line).is_some() {
                return at;
            }
        }
        bytes.len()
    }

    fn separates(&self, byte: u8) -> bool {
        byte == self.delimiter || byte == b'\n' || byte == b'\r'
    }
}

/// The index of the first such byte.
pub(super) fn position(bytes: &[u8], wanted: u8) -> Option<usize> {
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

    use super::*;

    fn last(text: &str) -> (Option<usize>, bool) {
        let mut quotes = Quotes::new(b',');
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

    proptest! {
        #[test]
        fn the_result_does_not_depend_on_the_chunks(
            text in "[a,\"\n\r]{0,40}",
            at in 0usize..40,
        ) {
            let whole = last(&text);
            let at = at.min(text.len());
            let mut quotes = Quotes::new(b',');
            let first = quotes.scan(&text.as_bytes()[..at]);
            let second = quotes.scan(&text.as_bytes()[at..]).map(|end| end + at);
            prop_assert_eq!((second.or(first), quotes.is_open()), whole);
        }
    }
}
