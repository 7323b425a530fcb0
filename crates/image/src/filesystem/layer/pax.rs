//! Extended headers of tar (POSIX pax): records of `length key=value\n`. A value may contain any
//! byte, including newlines; capabilities are stored in such values.

use std::collections::BTreeMap;

use crate::{Error, Result};

/// The prefix of extended attributes in extended headers.
pub(super) const XATTR: &[u8] = b"SCHILY.xattr.";

/// The keys and values of one header.
pub(super) type PaxRecords = BTreeMap<Vec<u8>, Vec<u8>>;

/// Parses all records. An empty value resets a record of a global header and is kept as such.
pub(super) fn parse(mut bytes: &[u8]) -> Result<PaxRecords> {
    let mut records = PaxRecords::new();
    while !bytes.is_empty() {
        let (record, rest) = cut(bytes).ok_or_else(wrong)?;
        let equals = record.iter().position(|byte| *byte == b'=').ok_or_else(wrong)?;
        records.insert(record[..equals].to_vec(), record[equals + 1..].to_vec());
        bytes = rest;
    }
    Ok(records)
}

/// Splits off the first record, without its length and newline, and returns it with the rest.
fn cut(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let space = bytes.iter().take(20).position(|byte| *byte == b' ')?;
    let length: usize = std::str::from_utf8(&bytes[..space]).ok()?.parse().ok()?;
    if length <= space + 1 || length > bytes.len() || bytes[length - 1] != b'\n' {
        return None;
    }
    Some((&bytes[space + 1..length - 1], &bytes[length..]))
}

fn wrong() -> Error {
    Error::refused("a layer", "an extended header of its archive is malformed")
}

/// Parses `seconds[.fraction]`, possibly negative.
pub(super) fn time(text: &[u8]) -> Option<crate::filesystem::tree::Time> {
    let text = std::str::from_utf8(text).ok()?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let mut seconds: i64 = whole.parse().ok()?;
    let digits: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let mut nanos: u32 = digits.parse().ok()?;
    if whole.starts_with('-') && nanos > 0 {
        seconds = seconds.checked_sub(1)?;
        nanos = 1_000_000_000 - nanos;
    }
    Some(crate::filesystem::tree::Time { seconds, nanos })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_value_may_hold_line_ends() {
        let records = parse(b"10 a=b\nc=\n6 x=y\n").unwrap();
        assert_eq!(records[&b"a"[..]], b"b\nc=");
        assert_eq!(records[&b"x"[..]], b"y");
    }

    #[test]
    fn refuses_wrong_lengths() {
        for bad in [&b"0 a=b\n"[..], b"99 a=b\n", b"3 a=b\n", b"x a=b\n", b"6 a-b\n"] {
            parse(bad).unwrap_err();
        }
    }

    #[test]
    fn reads_times_before_1970() {
        let read = |text: &str| time(text.as_bytes()).map(|time| (time.seconds, time.nanos));
        assert_eq!(read("12.5"), Some((12, 500_000_000)));
        assert_eq!(read("-1.25"), Some((-2, 750_000_000)));
        assert_eq!(read("1.x"), None);
    }

    proptest! {
        #[test]
        fn never_panics(bytes in any::<Vec<u8>>()) {
            let _ = (parse(&bytes), time(&bytes));
        }
    }
}
