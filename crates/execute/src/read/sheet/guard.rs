//! Checks the XML of a workbook's part as it is expanded, before anything of it is kept.
//!
//! The parser of workbooks keeps what a part says: an element of five bytes may become a style of
//! hundreds, and a text without an end one of gigabytes. So the guard measures the bytes that can
//! be kept, and refuses parts that no workbook has: with declarations of entities, elements that
//! are not closed, or values that are longer than any cell's. The guard reads tags only, and is
//! stricter than the parser: text that both could read differently is refused.

use super::measure::{Around, Measure, PartKind};
use crate::read::dialect::quotes::position;

/// The most bytes of a tag, or of the text between two.
const MAX_EVENT_BYTES: u64 = 2 << 20;

/// The most elements within each other.
const MAX_DEPTH: usize = 128;

/// Bytes of a tag that are looked at, and the most of a name.
const MAX_HEAD_BYTES: usize = 4096;
const MAX_NAME_BYTES: usize = 256;

/// The place of the next byte in the XML.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum XmlPlace {
    #[default]
    Text,
    /// Behind `<`, before it is known what follows.
    Open,
    /// In a tag, perhaps in a quoted value.
    Tag(Option<u8>),
    Comment,
    Data,
    Instruction,
}

/// The state of the check of a part, after its bytes so far.
#[derive(Debug, Default)]
pub(super) struct Guard {
    place: XmlPlace,
    /// Bytes of the current tag or text so far.
    event: u64,
    /// The beginning of the current tag.
    head: Vec<u8>,
    /// The two bytes before the next one, within a comment and the like.
    last: [u8; 2],
    /// The names of the open elements behind each other, and where each begins.
    names: Vec<u8>,
    open: Vec<usize>,
    measure: Measure,
}

impl Guard {
    /// Checks the next bytes of the part. An error says why the part is refused.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<(), String> {
        let mut rest = bytes;
        while let Some(first) = rest.first().copied() {
            let taken = match self.place {
                XmlPlace::Text => match position(rest, b'<') {
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
            self.measure.add(taken as u64);
            rest = &rest[taken..];
        }
        self.measure.check(self.around())
    }

    /// Ends the part. Returns the bytes that a parser may keep of it.
    pub(super) fn end(&self) -> Result<u64, String> {
        if self.place != XmlPlace::Text || !self.open.is_empty() {
            return Err("a part of it ends within an element".to_owned());
        }
        Ok(self.measure.kept())
    }

    /// Returns the kind of the part, once its root has begun.
    pub(super) fn kind(&self) -> Option<PartKind> {
        self.measure.kind()
    }

    fn add(&mut self, bytes: u64) -> Result<(), String> {
        self.event += bytes;
        match self.event > MAX_EVENT_BYTES {
            true => Err(format!("a tag or a text has more than {} MiB", MAX_EVENT_BYTES >> 20)),
            false => Ok(()),
        }
    }

    fn begin(&mut self) {
        (self.place, self.event) = (XmlPlace::Open, 1);
        self.head.clear();
    }

    fn next(&mut self, byte: u8) -> Result<(), String> {
        self.add(1)?;
        if matches!(self.place, XmlPlace::Open | XmlPlace::Tag(_))
            && self.head.len() < MAX_HEAD_BYTES
        {
            self.head.push(byte);
        }
        match self.place {
            XmlPlace::Text => (),
            XmlPlace::Open => return self.opened(),
            XmlPlace::Tag(None) if byte == b'>' => self.tag()?,
            XmlPlace::Tag(None) if matches!(byte, b'"' | b'\'') => {
                // Parsers differ in whether they look for marks in the tag of an end.
                if self.head.first() == Some(&b'/') {
                    return Err(malformed());
                }
                self.place = XmlPlace::Tag(Some(byte));
            }
            XmlPlace::Tag(None) if byte == b'<' => return Err(malformed()),
            XmlPlace::Tag(Some(mark)) if byte == mark => self.place = XmlPlace::Tag(None),
            XmlPlace::Tag(_) => (),
            // Parsers differ in whether this ends it.
            XmlPlace::Comment | XmlPlace::Instruction if byte == b'>' && self.last[0] == 0 => {
                return Err(malformed());
            }
            XmlPlace::Comment => self.until(*b"--", byte),
            XmlPlace::Data => self.until(*b"]]", byte),
            XmlPlace::Instruction => self.until([self.last[0], b'?'], byte),
        }
        self.last = [self.last[1], byte];
        Ok(())
    }

    /// Ends a comment and the like behind these two bytes and `>`.
    fn until(&mut self, end: [u8; 2], byte: u8) {
        if byte == b'>' && self.last == end {
            (self.place, self.event) = (XmlPlace::Text, 0);
        }
    }

    fn opened(&mut self) -> Result<(), String> {
        self.last = [0; 2];
        // Behind a comment in the value of a number the parser does not go on.
        let refused = || Err("it declares entities, or a value has a comment".to_owned());
        match self.head.as_slice() {
            b"?" => self.place = XmlPlace::Instruction,
            b"!--" if self.innermost() != b"v" => self.place = XmlPlace::Comment,
            b"![CDATA[" if self.innermost() != b"v" => self.place = XmlPlace::Data,
            head if head.starts_with(b"!") => {
                let known = b"!--".starts_with(head) || b"![CDATA[".starts_with(head);
                if !known || head.len() == 8 || head == b"!--" {
                    return refused();
                }
            }
            b">" => return Err(malformed()),
            _ => self.place = XmlPlace::Tag(None),
        }
        Ok(())
    }

    /// Handles a tag that is complete.
    fn tag(&mut self) -> Result<(), String> {
        (self.place, self.event) = (XmlPlace::Text, 0);
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
            let is_cut = head.len() >= MAX_HEAD_BYTES;
            let around = around(&self.names, &self.open);
            self.measure.element(local(name), text, is_cut, around)?;
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

    /// The local name of the innermost open element.
    fn innermost(&self) -> &[u8] {
        self.open.last().map_or(b"", |start| local(&self.names[*start..]))
    }

    fn around(&self) -> Around<'_> {
        around(&self.names, &self.open)
    }
}

/// The outermost open elements, from their names behind each other and where each begins.
fn around<'n>(names: &'n [u8], open: &[usize]) -> Around<'n> {
    let name = |index: usize| match open.get(index) {
        Some(start) => local(&names[*start..open.get(index + 1).copied().unwrap_or(names.len())]),
        None => &[],
    };
    Around { depth: open.len(), names: [name(0), name(1), name(2)] }
}

fn malformed() -> String {
    "a part of it is not well-formed XML".to_owned()
}

/// A name without its prefix.
fn local(name: &[u8]) -> &[u8] {
    position(name, b':').map_or(name, |colon| &name[colon + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::sheet::measure::TEXT_BYTES;

    /// Returns the bytes that are kept, and checks that it is the same in pieces of every length up
    /// to 3.
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
    fn values_stand_only_where_workbooks_have_them() {
        for text in [
            "<worksheet><a><b><c><sheetData/></c></b></a></worksheet>",
            "<worksheet><sheetData><sheetData/></sheetData></worksheet>",
            "<workbook><sheetData/></workbook>",
            "<workbook><x:sst/></workbook>",
            "<worksheet><sheets><sheet name='a'/></sheets></worksheet>",
            "<sst><definedName name='a'/></sst>",
            "<worksheet/><sst/>",
        ] {
            let why = kept(text).unwrap_err();
            assert!(why.contains("no workbook") || why.contains("two roots"), "{text}: {why}");
        }
        assert!(kept("<externalLink><a><sheetData/></a></externalLink>").is_ok());
        let spaces = " ".repeat(5000);
        let cut = format!("<sst {spaces} uniqueCount=\"99999999999\"></sst>");
        assert!(kept(&cut).unwrap_err().contains("more texts"));
    }

    #[test]
    fn what_is_kept_of_other_parts_is_counted() {
        let sheets = "<sheet name='a' id='b'/>".repeat(100);
        let workbook = format!("<workbook><sheets>{sheets}</sheets></workbook>");
        assert!(kept(&workbook).unwrap() > 100 * (8 << 10));
        let names = "<definedName name='a'>b</definedName>".repeat(100);
        let workbook = format!("<workbook>{names}</workbook>");
        assert!(kept(&workbook).unwrap() > 100 * 512 + workbook.len() as u64);
        let path = format!("<Relationships><Relationship Target='{}'/></Relationships>", {
            "a".repeat(5000)
        });
        assert!(kept(&path).is_err());
        // A format is as large as the longest code before it, wherever values stand between them.
        let code = "a".repeat(5000);
        let styles = format!(
            "<worksheet><numFmt formatCode='{code}'/><sheetData/><xf/><xf/><xf/></worksheet>"
        );
        assert!(kept(&styles).unwrap() > 3 * 2 * 5000);
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
            (sheet, "<t>a</t><font/><xf/>"),
            (sheet, "<worksheet><row><c/></row></worksheet>"),
            ("<worksheet><sheetData><x>", "<row><c/></row>"),
            ("<sst><si>", "<si></si>"),
            ("<sst><si>", "<t>a</t><numFmt/>"),
        ] {
            let why = long(before, piece, "").unwrap_err();
            assert!(why.contains("more than"), "{piece}: {why}");
        }
        let many = long("<worksheet><sheetData><row>", "<c/>", "</row></sheetData></worksheet>");
        assert_eq!(many, Ok(0));
    }
}
