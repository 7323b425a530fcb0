//! Turns the text of a file into UTF-8 with line feeds and without comments, as its bytes arrive.

use bytes::Bytes;

use super::comments::Comments;
use crate::read::Dialect;
use crate::read::dialect::Encoding;

/// Windows-1252 from 0x80 on, where it differs from ISO 8859-1. Bytes that have no meaning are
/// control characters, as in browsers.
const WINDOWS: [char; 32] = [
    '€', '\u{81}', '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', '\u{8d}', 'Ž', '\u{8f}',
    '\u{90}', '‘', '’', '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', '\u{9d}', 'ž', 'Ÿ',
];

/// The byte that is written for bytes that are no character. No text in UTF-8 has it, so the
/// decoder refuses the value.
const INVALID: u8 = 0xff;

/// The text so far.
#[derive(Debug)]
pub struct Recoder {
    encoding: Encoding,
    carriage_returns: bool,
    quote: Option<u8>,
    /// Inside quotation marks, where a carriage return is part of a value.
    quoted: bool,
    /// The bytes of a character whose end has not arrived.
    rest: Vec<u8>,
    comments: Option<Comments>,
}

impl Recoder {
    /// Creates the conversion for a dialect; `None` if its text needs none. `skip` lines are no
    /// records and have no comments.
    pub fn of(dialect: &Dialect, skip: u64) -> Option<Self> {
        let comments = Comments::of(dialect, skip);
        let needed = dialect.encoding != Encoding::Utf8 || dialect.carriage_returns;
        (needed || comments.is_some()).then(|| Self {
            encoding: dialect.encoding,
            carriage_returns: dialect.carriage_returns,
            quote: dialect.quote,
            quoted: false,
            rest: Vec::new(),
            comments,
        })
    }

    /// The text of the next bytes.
    pub fn next(&mut self, bytes: &[u8]) -> Bytes {
        let text = match self.encoding {
            Encoding::Utf8 => bytes.to_vec(),
            Encoding::Latin1 => latin1(bytes),
            Encoding::Utf16Le => self.utf16(bytes, u16::from_le_bytes),
            Encoding::Utf16Be => self.utf16(bytes, u16::from_be_bytes),
        };
        let text = self.with_line_feeds(text);
        match &mut self.comments {
            Some(comments) => comments.next(&text),
            None => text,
        }
    }

    /// The text of bytes that are left at the end.
    pub fn end(&mut self) -> Bytes {
        match std::mem::take(&mut self.rest).is_empty() {
            true => Bytes::new(),
            false => Bytes::from_static(&[INVALID]),
        }
    }

    fn utf16(&mut self, bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Vec<u8> {
        self.rest.extend_from_slice(bytes);
        let all = std::mem::take(&mut self.rest);
        let mut units: Vec<u16> =
            all.chunks_exact(2).map(|pair| unit([pair[0], pair[1]])).collect();
        // The second half of a character may be in the next bytes.
        if units.last().is_some_and(|last| (0xd800..0xdc00).contains(last)) {
            units.pop();
        }
        self.rest.extend_from_slice(&all[2 * units.len()..]);
        let mut text = Vec::with_capacity(all.len());
        for character in char::decode_utf16(units) {
            match character {
                Ok(character) => {
                    text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                }
                Err(_) => text.push(INVALID),
            }
        }
        text
    }

    fn with_line_feeds(&mut self, mut text: Vec<u8>) -> Bytes {
        if self.carriage_returns {
            for byte in &mut text {
                if Some(*byte) == self.quote {
                    self.quoted = !self.quoted;
                } else if *byte == b'\r' && !self.quoted {
                    *byte = b'\n';
                }
            }
        }
        text.into()
    }
}

fn latin1(bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes.len() + bytes.len() / 8);
    for byte in bytes {
        let character = match byte {
            0x80..0xa0 => WINDOWS[usize::from(byte - 0x80)],
            byte => char::from(*byte),
        };
        text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
    }
    text
}

#[cfg(test)]
mod tests {
    use snowmelt_files::Format;

    use super::*;

    fn text(dialect: &Dialect, bytes: &[u8], step: usize) -> Vec<u8> {
        let mut recoder = Recoder::of(dialect, 0).unwrap();
        let mut text: Vec<u8> =
            bytes.chunks(step).flat_map(|part| recoder.next(part).to_vec()).collect();
        text.extend_from_slice(&recoder.end());
        text
    }

    #[test]
    fn text_becomes_utf_8_however_its_bytes_arrive() {
        let plain = Dialect::of(Format::Csv);
        assert!(Recoder::of(&plain, 0).is_none());
        let expected = "a,é€😀\n";
        let little: Vec<u8> = expected.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let big: Vec<u8> = expected.encode_utf16().flat_map(u16::to_be_bytes).collect();
        for step in 1..9 {
            for (encoding, bytes) in [(Encoding::Utf16Le, &little), (Encoding::Utf16Be, &big)] {
                let dialect = Dialect { encoding, ..plain.clone() };
                assert_eq!(text(&dialect, bytes, step), expected.as_bytes(), "by {step}");
                let cut = text(&dialect, &bytes[..bytes.len() - 1], step);
                assert_eq!(cut.last(), Some(&INVALID));
            }
        }
        let dialect = Dialect { encoding: Encoding::Latin1, ..plain.clone() };
        assert_eq!(text(&dialect, b"\xe9\x80\xff", 2), "é€ÿ".as_bytes());
        let lone = Dialect { encoding: Encoding::Utf16Le, ..plain };
        assert_eq!(text(&lone, &[0x00, 0xdc, b'a', 0], 4), [INVALID, b'a']);
    }

    #[test]
    fn carriage_returns_in_values_stay() {
        let dialect = Dialect { carriage_returns: true, ..Dialect::of(Format::Csv) };
        assert_eq!(text(&dialect, b"a\r\"x\r\"\"y\"\rb\r", 3), b"a\n\"x\r\"\"y\"\nb\n");
    }
}
