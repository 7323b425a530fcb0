//! The form of a record: its length and checksums, and then the bytes.
//!
//! | bytes | what |
//! |---|---|
//! | 4 | the number of bytes that follow the header, little-endian, 1 to [`MAX_RECORD`] |
//! | 4 | their CRC-32C |
//! | 4 | the CRC-32C of the number of the record in its direction (8 bytes) and of both fields before |
//!
//! The header has a checksum of its own: with a damaged length, the bytes after it would be waited
//! for that never come. The number of the record makes one that is lost or comes twice wrong.

/// The bytes that both sides of a connection send before their first record. No request of HTTP
/// begins with 0.
pub(super) const PREFACE: &[u8; 8] = b"\0snow\x01\r\n";

/// The size of a header in bytes.
pub(super) const HEADER: usize = 12;

/// The greatest length of a record in bytes.
pub(super) const MAX_RECORD: usize = 64 << 10;

/// Returns the header of a record with these bytes, which come in pieces.
pub(super) fn header<'p>(number: u64, pieces: impl Iterator<Item = &'p [u8]>) -> [u8; HEADER] {
    let mut length = 0;
    let mut sum = 0;
    for piece in pieces {
        length += piece.len();
        sum = crc32c::crc32c_append(sum, piece);
    }
    let mut header = [0; HEADER];
    // At most `MAX_RECORD`.
    header[..4].copy_from_slice(&(length as u32).to_le_bytes());
    header[4..8].copy_from_slice(&sum.to_le_bytes());
    let check = checksum(number, &header[..8]);
    header[8..].copy_from_slice(&check.to_le_bytes());
    header
}

/// Reads the length of a record from its header; `None` if the header is damaged.
pub(super) fn length(number: u64, header: &[u8; HEADER]) -> Option<usize> {
    let is_whole = checksum(number, &header[..8]).to_le_bytes() == header[8..];
    let length = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
    (is_whole && (1..=MAX_RECORD).contains(&length)).then_some(length)
}

/// Whether the bytes of a record fit its header.
pub(super) fn fits(header: &[u8; HEADER], bytes: &[u8]) -> bool {
    crc32c::crc32c(bytes).to_le_bytes() == header[4..8]
}

fn checksum(number: u64, fields: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&number.to_le_bytes()), fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_changed_bit_of_a_record_is_found() {
        let bytes = b"rows of a host";
        let whole = header(3, bytes.chunks(5));
        assert_eq!(whole, header(3, std::iter::once(&bytes[..])));
        assert!(length(3, &whole) == Some(bytes.len()) && fits(&whole, bytes));
        for bit in 0..HEADER * 8 {
            let mut changed = whole;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(length(3, &changed), None, "{bit}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut changed = *bytes;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(!fits(&whole, &changed), "{bit}");
        }
        // One that came twice, or after one that did not come.
        assert!(length(2, &whole).is_none() && length(4, &whole).is_none());
    }

    #[test]
    fn a_record_has_some_bytes_and_not_too_many() {
        let of = |bytes: &[u8]| length(0, &header(0, std::iter::once(bytes)));
        assert_eq!(of(&[]), None);
        assert_eq!(of(&vec![0; MAX_RECORD]), Some(MAX_RECORD));
        assert_eq!(of(&vec![0; MAX_RECORD + 1]), None);
    }
}
