//! Extended attributes in the encoding that follows an inode.

use super::field::Field;
use crate::filesystem::tree::{MAX_NAME_BYTES, Xattrs};

const HEADER_BYTES: usize = 12;
const PREFIXES: [(&[u8], u8); 5] = [
    (b"user.", 1),
    (b"system.posix_acl_access", 2),
    (b"system.posix_acl_default", 3),
    (b"trusted.", 4),
    (b"security.", 6),
];

/// Splits a name into the number of its prefix and the rest; `None` if EROFS has no such prefix.
pub(crate) fn prefix(name: &[u8]) -> Option<(u8, &[u8])> {
    PREFIXES.iter().find_map(|(prefix, index)| {
        let rest = name.strip_prefix(*prefix)?;
        // The two ACLs have no name after their prefix; all other attributes must have one.
        (rest.is_empty() == matches!(index, 2 | 3)).then_some((*index, rest))
    })
}

/// Returns the inode's word count for attributes of this many bytes.
pub(super) fn words(bytes: usize) -> u16 {
    if bytes == 0 { 0 } else { ((bytes - HEADER_BYTES) / 4 + 1) as u16 }
}

/// Encodes the bytes that follow the inode; empty without attributes.
pub(super) fn encode(xattrs: &Xattrs) -> Vec<u8> {
    if xattrs.is_empty() {
        return Vec::new();
    }
    let mut bytes = vec![0; HEADER_BYTES];
    for (name, value) in xattrs {
        let Some((index, name)) = prefix(name) else { continue };
        bytes.extend([name.len() as u8, index]);
        bytes.extend((value.len() as u16).to_le_bytes());
        bytes.extend(name);
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    bytes
}

/// Returns the number of bytes for a word count.
pub(super) fn bytes(words: u16) -> usize {
    if words == 0 { 0 } else { HEADER_BYTES + (usize::from(words) - 1) * 4 }
}

/// Decodes the attributes of an inode; `None` if they are malformed.
pub(super) fn decode(bytes: &[u8]) -> Option<Xattrs> {
    let mut xattrs = Xattrs::new();
    let mut rest = bytes.get(HEADER_BYTES..).unwrap_or_default();
    if !bytes.is_empty() && bytes.get(..HEADER_BYTES)? != [0; HEADER_BYTES] {
        return None;
    }
    while !rest.is_empty() {
        let length = usize::from(*rest.first()?);
        let value = rest.get(2..4)?.u16_at(0) as usize;
        let (prefix, _) = PREFIXES.iter().find(|(_, index)| rest.get(1) == Some(index))?;
        let name = [prefix, rest.get(4..4 + length)?].concat();
        let value = rest.get(4 + length..4 + length + value)?;
        rest = rest.get((4 + length + value.len()).next_multiple_of(4)..)?;
        // A zero byte terminates each name in lists of names.
        let can_be = name.len() <= MAX_NAME_BYTES && !name.contains(&0);
        if !can_be || self::prefix(&name).is_none() || xattrs.insert(name, value.to_vec()).is_some()
        {
            return None;
        }
    }
    Some(xattrs)
}
