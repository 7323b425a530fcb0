//! The version of a file: its size, and what its server says of it.
//!
//! The version is sent to workers as a text, with the size in the first line, in the place of the
//! entity tag of a bucket's object.

use reqwest::header::{
    CONTENT_LENGTH, ETAG, HeaderMap, HeaderName, IF_MATCH, IF_UNMODIFIED_SINCE, LAST_MODIFIED,
};

/// The most bytes of a version's entity tag or date that a server sends.
const MAX_BYTES: usize = 1024;

/// The version of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FileVersion {
    pub(super) size: u64,
    pub(super) tag: Option<String>,
    pub(super) modified: Option<String>,
}

impl FileVersion {
    /// Reads the version of a file of `size` bytes from the headers of an answer.
    pub(super) fn of(headers: &HeaderMap, size: u64) -> Self {
        let of = |name: HeaderName| {
            let text = headers.get(name)?.to_str().ok()?.trim();
            (!text.is_empty() && text.len() <= MAX_BYTES).then(|| text.to_owned())
        };
        Self { size, tag: of(ETAG), modified: of(LAST_MODIFIED) }
    }

    /// The text of a version.
    pub(super) fn text(&self) -> String {
        let tag = self.tag.as_deref();
        let modified = self.modified.as_deref();
        format!("{}\n{}\n{}", self.size, tag.unwrap_or_default(), modified.unwrap_or_default())
    }

    /// Reads a version from its text.
    pub(super) fn parsed(text: &str) -> Option<Self> {
        let mut lines = text.split('\n');
        let size = lines.next()?.parse().ok()?;
        let mut some = || lines.next().filter(|line| !line.is_empty()).map(str::to_owned);
        Some(Self { size, tag: some(), modified: some() })
    }

    /// True if the file may be this version, given what an answer says.
    pub(super) fn may_be(&self, answer: &Self) -> bool {
        let same = |own: &Option<String>, other: &Option<String>| match (own, other) {
            (Some(own), Some(other)) => Some(own == other),
            _ => None,
        };
        let by_tag = same(&self.tag, &answer.tag);
        let same = by_tag.or_else(|| same(&self.modified, &answer.modified));
        self.size == answer.size && same.unwrap_or(true)
    }

    /// Returns the header by which a server refuses another version. A weak tag is left out,
    /// because it does not identify the bytes of a range.
    pub(super) fn condition(&self) -> Option<(HeaderName, &str)> {
        match (&self.tag, &self.modified) {
            (Some(tag), _) if tag.starts_with('"') => Some((IF_MATCH, tag)),
            (None, Some(modified)) => Some((IF_UNMODIFIED_SINCE, modified)),
            _ => None,
        }
    }
}

/// The length that an answer says.
pub(super) fn length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_sent_as_a_text() {
        let some = |text: &str| Some(text.to_owned());
        for version in [
            FileVersion {
                size: 7,
                tag: some("\"a\""),
                modified: some("Wed, 21 Oct 2015 07:28:00 GMT"),
            },
            FileVersion { size: 0, tag: None, modified: some("x") },
            FileVersion { size: 1, ..FileVersion::default() },
        ] {
            assert_eq!(FileVersion::parsed(&version.text()), Some(version));
        }
        assert_eq!(FileVersion::parsed("x"), None);
    }

    #[test]
    fn versions_differ_in_what_both_say() {
        let some = |text: &str| Some(text.to_owned());
        let version = FileVersion { size: 7, tag: some("\"a\""), modified: some("x") };
        let other = |tag: Option<&str>, modified: Option<&str>, size| FileVersion {
            size,
            tag: tag.map(str::to_owned),
            modified: modified.map(str::to_owned),
        };
        assert!(version.may_be(&other(Some("\"a\""), Some("y"), 7)));
        assert!(version.may_be(&other(None, Some("x"), 7)));
        assert!(!version.may_be(&other(Some("\"b\""), Some("x"), 7)));
        assert!(!version.may_be(&other(Some("\"a\""), Some("x"), 8)));
        let dated = other(None, Some("x"), 7);
        assert!(!dated.may_be(&other(None, Some("y"), 7)));
        assert_eq!(version.condition(), Some((IF_MATCH, "\"a\"")));
        assert_eq!(other(Some("W/\"a\""), None, 7).condition(), None);
        assert_eq!(dated.condition(), Some((IF_UNMODIFIED_SINCE, "x")));
    }
}
