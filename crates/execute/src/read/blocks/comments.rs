//! Removes comments from a CSV text as its bytes arrive.
//!
//! A comment begins with a character outside of quotation marks and ends with its line. The line
//! break stays, so that lines are counted as in the file. A line that has only spaces beside the
//! comment becomes empty.

use bytes::Bytes;

use crate::read::Dialect;

/// The state of a text behind the bytes so far.
#[derive(Debug)]
pub(crate) struct Comments {
    begins: u8,
    delimiter: u8,
    quote: Option<u8>,
    escape: Option<u8>,
    /// Number of lines that are kept as they are.
    kept: u64,
    tolerant: bool,
    state: State,
    /// Spaces at the beginning of a line, which may be one of a comment alone.
    spaces: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// At the beginning of a line, behind spaces at most.
    Line,
    /// At the beginning of a value.
    Start,
    Plain,
    Quoted,
    Escaped,
    Mark,
    /// Behind a mark and spaces, where a dialect takes marks inside of values.
    Spaces,
    Comment,
}

impl Comments {
    /// Creates the state for a dialect; `None` if it has no comments. `skip` lines are kept as they
    /// are.
    pub(crate) fn of(dialect: &Dialect, skip: u64) -> Option<Self> {
        let Dialect { delimiter, quote, escape, comment, tolerant, .. } = *dialect;
        let begins = comment?;
        let state = State::Line;
        Some(Self { begins, delimiter, quote, escape, tolerant, kept: skip, state, spaces: 0 })
    }

    /// Returns the text of the next bytes without comments.
    pub(crate) fn next(&mut self, bytes: &[u8]) -> Bytes {
        let mut text = Vec::with_capacity(bytes.len() + self.spaces);
        for byte in bytes.iter().copied() {
            if self.kept > 0 {
                text.push(byte);
                self.kept -= u64::from(byte == b'\n');
                continue;
            }
            if self.state == State::Line && byte == b' ' && self.delimiter != b' ' {
                self.spaces += 1;
                continue;
            }
            let comment = byte == self.begins
                && !matches!(self.state, State::Quoted | State::Escaped | State::Comment);
            if !comment {
                text.extend(std::iter::repeat_n(b' ', self.spaces));
            }
            let spaces = std::mem::take(&mut self.spaces);
            self.state = match comment {
                true => State::Comment,
                false => self.behind(byte, spaces > 0),
            };
            if self.state != State::Comment {
                text.push(byte);
            }
        }
        text.into()
    }

    fn behind(&self, byte: u8, spaces: bool) -> State {
        let is_mark = Some(byte) == self.quote;
        match self.state {
            State::Comment if byte != b'\n' => State::Comment,
            State::Quoted if Some(byte) == self.escape => State::Escaped,
            State::Quoted if is_mark => State::Mark,
            State::Quoted | State::Escaped => State::Quoted,
            State::Mark if is_mark => State::Quoted,
            _ if byte == b'\n' => State::Line,
            _ if byte == self.delimiter || byte == b'\r' => State::Start,
            State::Line | State::Start if is_mark && !spaces => State::Quoted,
            State::Spaces if is_mark => State::Mark,
            State::Mark | State::Spaces if self.tolerant => match byte {
                b' ' => State::Spaces,
                byte if Some(byte) == self.escape => State::Escaped,
                _ => State::Quoted,
            },
            _ => State::Plain,
        }
    }
}

#[cfg(test)]
mod tests {
    use snowmelt_files::Format;

    use super::*;

    #[test]
    fn comments_end_with_their_lines() {
        let dialect = Dialect { comment: Some(b'#'), ..Dialect::of(Format::Csv) };
        for (text, skip, expected) in [
            ("# hi, \"there\na,b\n", 0, "\na,b\n"),
            ("a,b # why\n1,\"x#y\"#z\n", 0, "a,b \n1,\"x#y\"\n"),
            ("  # indented\n  a#\n", 0, "\n  a\n"),
            ("#1\n#2\r\na\n", 1, "#1\n\na\n"),
            ("\"a\"\"#\"\n#\n", 0, "\"a\"\"#\"\n\n"),
            ("x\"#y\"\n#", 0, "x\"\n"),
        ] {
            for step in 1..9 {
                let mut comments = Comments::of(&dialect, skip).unwrap();
                let parts = text.as_bytes().chunks(step).map(|part| comments.next(part));
                let found = parts.collect::<Vec<_>>().concat();
                assert_eq!(String::from_utf8_lossy(&found), expected, "{text:?} by {step}");
            }
        }
        assert!(Comments::of(&Dialect::of(Format::Csv), 0).is_none());
    }
}
