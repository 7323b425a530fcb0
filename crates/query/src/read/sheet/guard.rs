//! Checks the XML of a workbook's part as it is expanded, before anything of it is kept.
//!
//! The parser of workbooks keeps what a part says: an element of five bytes may become a style of
//! hundreds, and a text without an end one of gigabytes. So the guard measures what can be kept, and
//! refuses what no workbook has: declarations of entities, elements that are not closed, values that
//! are longer than those of any cell. It reads tags only, and is stricter than the parser: what both
//! could read differently is refused.

use super::super::quotes::position;

/// The most bytes of a tag, or of the text between two.
const MAX_EVENT_BYTES: u64 = 2 << 20;

/// The most bytes of a cell or a shared text, with its formatting.
const MAX_VALUE_BYTES: u64 = 2 << 20;

/// The most elements within each other.
const MAX_DEPTH: usize = 128;

/// Bytes of a tag that are looked at, and the most of a name.
const MAX_HEAD_BYTES: usize = 4096;
const MAX_NAME_BYTES: usize = 256;

/// The most shared texts that a part may say it has: their places are reserved.
const MAX_TEXTS: u64 = 16 << 20;

/// Bytes that the parser keeps for a shared text beside its bytes, and for a font, a fill, a border
/// or a format.
const TEXT_BYTES: u64 = 48;
const STYLE_BYTES: u64 = 512;

/// Where in the XML the next byte is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Text,
    /// Behind `<`, before it is known what follows.
    Open,
    /// In a tag, perhaps in a quoted value.
    Tag(Option<u8>),
    Comment,
    Data,
    Instruction,
}

/// What was found so far.
#[derive(Debug)]
pub(super) struct Guard {
    place: Place,
    /// Bytes of this tag or text.
    event: u64,
    /// The beginning of this tag.
    head: Vec<u8>,
    /// The two bytes before this one, within a comment and the like.
    last: [u8; 2],
    /// The names of the open elements behind each other, and where each begins.
    names: Vec<u8>,
    open: Vec<usize>,
    bytes: u64,
    /// Bytes since the last value or style began, and the most of them.
    since: u64,
    longest: u64,
    texts: u64,
    styles: u64,
    formats: u64,
    /// It is a sheet or the table of shared texts.
    has_values: bool,
}

impl Default for Guard {
    fn default() -> Self {
        Self {
            place: Place::Text,
            event: 0,
            head: Vec::new(),
            last: [0; 2],
            names: Vec::new(),
            open: Vec::new(),
            bytes: 0,
            since: 0,
            longest: 0,
            texts: 0,
            styles: 0,
            formats: 0,
            has_values: false,
        }
    }
}

impl Guard {
    /// The next bytes of the part. An error is why it is refused.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<(), String> {
        let mut rest = bytes;
        while let Some(first) = rest.first().copied() {
            let taken = match self.place {
                Place::Text => match position(rest, b'<') {
                    Some(found) => {
                        self.add(found as u64)?;
                        self.begin();
                        found + 1
                    }
                    None => {
                        self.add(rest.len() as u64)?;
                        rest.len()
                    }
                },
                _ => {
                    self.next(first)?;
                    1
                }
            };
            (self.bytes, self.since) = (self.bytes + taken as u64, self.since + taken as u64);
            rest = &rest[taken..];
        }
        match self.is_inside("sheetData") || self.is_inside("sst") {
            true if self.since > MAX_VALUE_BYTES => {
                Err(format!("a value has more than {} MiB", MAX_VALUE_BYTES >> 20))
            }
            _ => Ok(()),
        }
    }

    /// The part is complete: the bytes that a parser may keep of it.
    pub(super) fn end(&self) -> Result<u64, String> {
        if self.place != Place::Text || !self.open.is_empty() {
            return Err("a part of it ends within an element".to_owned());
        }
        let texts = if self.texts > 0 { self.bytes + self.texts * TEXT_BYTES } else { 0 };
        let of_format = self.longest.saturating_mul(2) + STYLE_BYTES;
        Ok(texts + self.styles * STYLE_BYTES + self.formats.saturating_mul(of_format))
    }

    /// True for a sheet and for the table of shared texts, which may be large.
    pub(super) fn has_values(&self) -> bool {
        self.has_values
    }

    fn add(&mut self, bytes: u64) -> Result<(), String> {
        self.event += bytes;
        match self.event > MAX_EVENT_BYTES {
            true => Err(format!("a tag or a text has more than {} MiB", MAX_EVENT_BYTES >> 20)),
            false => Ok(()),
        }
    }

    fn begin(&mut self) {
        (self.place, self.event) = (Place::Open, 1);
        self.head.clear();
    }

    fn next(&mut self, byte: u8) -> Result<(), String> {
        self.add(1)?;
        if matches!(self.place, Place::Open | Place::Tag(_)) && self.head.len() < MAX_HEAD_BYTES {
            self.head.push(byte);
        }
        match self.place {
            Place::Text => (),
            Place::Open => return self.opened(),
            Place::Tag(None) if byte == b'>' => self.tag()?,
            Place::Tag(None) if matches!(byte, b'"' | b'\'') => {
                // Parsers differ in whether they look for marks in the tag of an end.
                if self.head.first() == Some(&b'/') {
                    return Err(malformed());
                }
                self.place = Place::Tag(Some(byte));
            }
            Place::Tag(None) if byte == b'<' => return Err(malformed()),
            Place::Tag(Some(mark)) if byte == mark => self.place = Place::Tag(None),
            Place::Tag(_) => (),
            // Parsers differ in whether this ends it.
            Place::Comment | Place::Instruction if byte == b'>' && self.last[0] == 0 => {
                return Err(malformed());
            }
            Place::Comment => self.until(*b"--", byte),
            Place::Data => self.until(*b"]]", byte),
            Place::Instruction => self.until([self.last[0], b'?'], byte),
        }
        self.last = [self.last[1], byte];
        Ok(())
    }

    /// Ends a comment and the like behind these two bytes and `>`.
    fn until(&mut self, end: [u8; 2], byte: u8) {
        if byte == b'>' && self.last == end {
            (self.place, self.event) = (Place::Text, 0);
        }
    }

    fn opened(&mut self) -> Result<(), String> {
        self.last = [0; 2];
        // Behind a comment in the value of a number the parser does not go on.
        let refused = || Err("it declares entities, or a value has a comment".to_owned());
        match self.head.as_slice() {
            b"?" => self.place = Place::Instruction,
            b"!--" if self.innermost() != b"v" => self.place = Place::Comment,
            b"![CDATA[" if self.innermost() != b"v" => self.place = Place::Data,
            head if head.starts_with(b"!") => {
                let known = b"!--".starts_with(head) || b"![CDATA[".starts_with(head);
                if !known || head.len() == 8 || head == b"!--" {
                    return refused();
                }
            }
            b">" => return Err(malformed()),
            _ => self.place = Place::Tag(None),
        }
        Ok(())
    }

    /// A tag is complete.
    fn tag(&mut self) -> Result<(), String> {
        (self.place, self.event) = (Place::Text, 0);
        let head = std::mem::take(&mut self.head);
        let is_empty = self.last[1] == b'/';
        let text = head.strip_suffix(b">").unwrap_or(&head);
        let text = if is_empty { text.strip_suffix(b"/").unwrap_or(text) } else { text };
        let (is_end, text) = match text.split_first() {
            Some((b'/', rest)) => (true, rest),
            _ => (false, text),
        };
        let end = text.iter().position(u8::is_ascii_whitespace).unwrap_or(text.len());
        let name = &text[..end];
        if name.is_empty() || end >= MAX_NAME_BYTES || name.contains(&b'/') {
            return Err(malformed());
        }
        if is_end {
            let start = self.open.pop().filter(|start| self.names[*start..] == *name);
            self.names.truncate(start.ok_or_else(malformed)?);
        } else {
            self.element(name, text)?;
            if !is_empty {
                self.open.push(self.names.len());
                self.names.extend_from_slice(name);
            }
            if self.open.len() > MAX_DEPTH {
                return Err("its elements are nested too deeply".to_owned());
            }
        }
        self.head = head;
        Ok(())
    }

    /// Measures an element that begins.
    fn element(&mut self, name: &[u8], tag: &[u8]) -> Result<(), String> {
        let parent = self.innermost();
        let is_value = match local(name) {
            b"c" => parent == b"row",
            b"row" => parent == b"sheetData",
            b"si" => parent == b"sst",
            _ => false,
        };
        let is_style = matches!(local(name), b"font" | b"fill" | b"border" | b"xf" | b"numFmt");
        match local(name) {
            b"si" => self.texts += 1,
            b"xf" => self.formats += 1,
            b"sst" if said(tag) > MAX_TEXTS => {
                return Err("it says that it has more texts than it can have".to_owned());
            }
            _ => (),
        }
        self.styles += u64::from(is_style);
        self.has_values |= matches!(local(name), b"sheetData" | b"sst");
        if is_value || is_style {
            if is_style {
                self.longest = self.longest.max(self.since);
            }
            self.since = 0;
        }
        Ok(())
    }

    /// The local name of the innermost open element.
    fn innermost(&self) -> &[u8] {
        self.open.last().map_or(b"", |start| local(&self.names[*start..]))
    }

    fn is_inside(&self, name: &str) -> bool {
        let ends = self.open.iter().skip(1).copied().chain([self.names.len()]);
        let mut open = self.open.iter().zip(ends).take(4);
        open.any(|(start, end)| local(&self.names[*start..end]) == name.as_bytes())
    }
}

fn malformed() -> String {
    "a part of it is not well-formed XML".to_owned()
}

/// A name without its prefix.
fn local(name: &[u8]) -> &[u8] {
    position(name, b':').map_or(name, |colon| &name[colon + 1..])
}

/// The number of different texts that the tag of their table says.
fn said(tag: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(tag);
    let numbers = text.split("uniqueCount").skip(1).map(|rest| {
        let digits = rest.trim_start_matches([' ', '\t', '\r', '\n', '=', '"', '\'', '+', '0']);
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        if end == 0 { 0 } else { digits[..end].parse().unwrap_or(u64::MAX) }
    });
    numbers.max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is kept, with bytes in pieces of every length up to 3.
    fn kept(text: &str) -> Result<u64, String> {
        let results = (1..=3).map(|piece| {
            let mut guard = Guard::default();
            text.as_bytes().chunks(piece).try_for_each(|bytes| guard.push(bytes))?;
            guard.end()
        });
        let results: Vec<Result<u64, String>> = results.collect();
        assert!(results.windows(2).all(|pair| pair[0] == pair[1]), "{text}: {results:?}");
        results[0].clone()
    }

    #[test]
    fn usual_parts_are_accepted_and_measured() {
        let sheet = "<?xml version=\"1.0\"?>\n<!-- a > b --><worksheet><sheetData><row r='1'>\
                     <c r=\"A1\" t=\"s\"><v>0</v></c><c r=\"B>1\"/></row></sheetData></worksheet>";
        assert_eq!(kept(sheet), Ok(0));
        let texts = "<x:sst uniqueCount=\"2\"><x:si><x:t>a</x:t></x:si><x:si/></x:sst>";
        assert_eq!(kept(texts), Ok(texts.len() as u64 + 2 * TEXT_BYTES));
        let data = "<sst><si><t><![CDATA[a]]]>b<c></t></si></sst>";
        assert!(kept(&data.replace("b<c>", "")).is_ok() && kept(data).is_err());
        assert!(kept("<styleSheet><cellXfs><xf/><xf/></cellXfs></styleSheet>").unwrap() >= 2048);
    }

    #[test]
    fn what_parsers_could_read_differently_is_refused() {
        for text in [
            "<!DOCTYPE x [<!ENTITY a \"aaaa\">]><x/>",
            "<!ENTITY a 'b'><x/>",
            "<a><b></a></b>",
            "<a>",
            "<a",
            "</a>",
            "<a></a \">",
            "<a <b>></a>",
            "<>",
            "<c><v>1<!-- 2 -->3</v></c>",
            "<c><v><![CDATA[1]]></v></c>",
            "<a><!-- x --",
            "<sst uniqueCount=\"99999999999\"></sst>",
            "<sst uniqueCount = '0099999999999999999999999'></sst>",
        ] {
            assert!(kept(text).is_err(), "{text}");
        }
        assert!(kept(&"<a>".repeat(200)).is_err());
    }

    #[test]
    fn long_values_are_refused_however_they_are_written() {
        let long = |before: &str, piece: &str, after: &str| {
            let mut guard = Guard::default();
            guard.push(before.as_bytes())?;
            let pieces = piece.repeat((64 << 10) / piece.len());
            for _ in 0..36 {
                guard.push(pieces.as_bytes())?;
            }
            guard.push(after.as_bytes())?;
            guard.end()
        };
        let sheet = "<worksheet><sheetData><row><c><is>";
        for (before, piece) in [
            ("<a>", "text "),
            ("<a b=\"", "<x>"),
            ("<a><!--", "<x>"),
            (sheet, "<t>a</t>"),
            (sheet, "<c></c>"),
            ("<sst><si>", "<si></si>"),
        ] {
            let why = long(before, piece, "").unwrap_err();
            assert!(why.contains("more than"), "{piece}: {why}");
        }
        let many = long("<worksheet><sheetData><row>", "<c/>", "</row></sheetData></worksheet>");
        assert_eq!(many, Ok(0));
    }
}
