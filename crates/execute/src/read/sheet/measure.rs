//! Measures what the parser of workbooks may keep of a part, by its elements.
//!
//! The parser finds elements by their names wherever they stand, and reads any part as any other one
//! if the workbook says so. So an element that holds values may stand only where every workbook has
//! it, and all that is kept of a part in any role is counted.

/// The most bytes of a cell or a shared text, with its formatting.
pub(super) const MAX_VALUE_BYTES: u64 = 2 << 20;

/// The most shared texts that a part may say it has: their places are reserved.
const MAX_TEXTS: u64 = 16 << 20;

/// Bytes that the parser keeps for a shared text beside its bytes.
pub(super) const TEXT_BYTES: u64 = 48;

/// Bytes that the parser keeps for a font, a fill, a border, a format, a relation or a name beside its
/// bytes.
const ITEM_BYTES: u64 = 512;

/// Bytes that the parser keeps for a sheet beside its name: most are the path of its part, which is
/// in the tags of two relations that are seen whole.
const SHEET_BYTES: u64 = 10 << 10;

/// The kind of a part, by its root element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartKind {
    Sheet,
    /// The table of shared texts.
    Texts,
    Styles,
    Workbook,
    Relations,
    /// A part with another root element, which the parser does not need.
    Unneeded,
}

impl PartKind {
    fn of(root: &[u8]) -> Self {
        match root {
            b"worksheet" => Self::Sheet,
            b"sst" => Self::Texts,
            b"styleSheet" => Self::Styles,
            b"workbook" => Self::Workbook,
            b"Relationships" => Self::Relations,
            _ => Self::Unneeded,
        }
    }

    /// True for the parts that may be large.
    pub(super) fn has_values(self) -> bool {
        matches!(self, Self::Sheet | Self::Texts)
    }
}

/// The open elements around the next one: how many, and the local names of the outermost ones.
#[derive(Clone, Copy, Debug)]
pub(super) struct Around<'n> {
    pub(super) depth: usize,
    pub(super) names: [&'n [u8]; 3],
}

impl Around<'_> {
    /// True in an element whose content the parser keeps as long as it reads one value.
    pub(super) fn is_value(&self) -> bool {
        match self.names {
            [b"worksheet", b"sheetData", _] => self.depth >= 2,
            [b"sst", ..] => self.depth >= 1,
            _ => false,
        }
    }
}

/// The sums over a part so far, from which the bytes follow that the parser may keep.
#[derive(Debug, Default)]
pub(super) struct Measure {
    kind: Option<PartKind>,
    bytes: u64,
    /// Bytes since the last value or style began, and the most of them.
    since: u64,
    longest: u64,
    texts: u64,
    items: u64,
    sheets: u64,
    /// Bytes of formats: each has a copy of a font and of a code.
    formats: u64,
}

impl Measure {
    pub(super) fn kind(&self) -> Option<PartKind> {
        self.kind
    }

    /// Counts bytes.
    pub(super) fn add(&mut self, bytes: u64) {
        (self.bytes, self.since) = (self.bytes + bytes, self.since + bytes);
    }

    /// Refuses a value that is too long.
    pub(super) fn check(&self, around: Around<'_>) -> Result<(), String> {
        match around.is_value() && self.since > MAX_VALUE_BYTES {
            true => Err(format!("a value has more than {} MiB", MAX_VALUE_BYTES >> 20)),
            false => Ok(()),
        }
    }

    /// Measures an element that begins. Its name is a local one; `is_cut` says that its tag is longer.
    pub(super) fn element(
        &mut self,
        name: &[u8],
        tag: &[u8],
        is_cut: bool,
        around: Around<'_>,
    ) -> Result<(), String> {
        let kind = match (around.depth, self.kind) {
            (0, Some(_)) => return Err("a part of it has two roots".to_owned()),
            (0, None) => *self.kind.insert(PartKind::of(name)),
            (_, kind) => kind.unwrap_or(PartKind::Unneeded),
        };
        let begins = begins_value(name, around);
        let is_misplaced = match name {
            b"sheetData" | b"sst" => !begins,
            b"sheet" | b"definedName" | b"Relationship" => kind.has_values(),
            _ => false,
        };
        if is_misplaced && kind != PartKind::Unneeded {
            return Err("an element of it stands where no workbook has it".to_owned());
        }
        match name {
            b"sst" if is_cut || said(tag) > MAX_TEXTS => {
                return Err("it says that it has more texts than it can have".to_owned());
            }
            b"Relationship" if is_cut && kind != PartKind::Unneeded => {
                return Err("a part of it has a path that is too long".to_owned());
            }
            b"si" => self.texts += 1,
            b"sheet" => self.sheets += 1,
            _ => (),
        }
        let is_style = matches!(name, b"font" | b"fill" | b"border" | b"xf" | b"numFmt");
        self.items += u64::from(is_style || matches!(name, b"definedName" | b"Relationship"));
        if begins || is_style {
            self.longest = self.longest.max(self.since);
        }
        if name == b"xf" {
            self.formats = self.formats.saturating_add(self.longest.saturating_mul(2));
            self.formats = self.formats.saturating_add(ITEM_BYTES);
        }
        if begins || is_style && !around.is_value() {
            self.since = 0;
        }
        Ok(())
    }

    /// The bytes that a parser may keep of the part.
    pub(super) fn kept(&self) -> u64 {
        let bytes = match self.kind {
            Some(PartKind::Sheet) => 0,
            Some(PartKind::Texts) if self.texts == 0 => 0,
            Some(PartKind::Texts) => self.bytes,
            // Names are kept twice.
            _ => self.bytes.saturating_mul(2),
        };
        let parts = [
            self.texts.saturating_mul(TEXT_BYTES),
            self.items.saturating_mul(ITEM_BYTES),
            self.sheets.saturating_mul(SHEET_BYTES),
            self.formats,
        ];
        parts.into_iter().fold(bytes, u64::saturating_add)
    }
}

/// True if an element begins a value, so that the parser keeps nothing of an earlier value any
/// more.
fn begins_value(name: &[u8], around: Around<'_>) -> bool {
    match (name, around.depth, around.names) {
        (b"sst", 0, _) => true,
        (b"si", 1, [b"sst", ..]) => true,
        (b"sheetData", 1, [b"worksheet", ..]) => true,
        (b"row", 2, [b"worksheet", b"sheetData", _]) => true,
        (b"c", 3, names) => names == [b"worksheet".as_slice(), b"sheetData", b"row"],
        _ => false,
    }
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
