//! Extended attributes as they stand behind an inode.

use crate::tree::Xattrs;

const HEADER_BYTES: usize = 12;
const PREFIXES: [(&[u8], u8); 5] = [
    (b"user.", 1),
    (b"system.posix_acl_access", 2),
    (b"system.posix_acl_default", 3),
    (b"trusted.", 4),
    (b"security.", 6),
];

/// The number of a name's kind and what is left of the name; `None` for kinds that EROFS has not.
pub(crate) fn prefix(name: &[u8]) -> Option<(u8, &[u8])> {
    PREFIXES.iter().find_map(|(prefix, index)| {
        let rest = name.strip_prefix(*prefix)?;
        // The two lists have no name behind their prefix, all others must.
        (rest.is_empty() == matches!(index, 2 | 3)).then_some((*index, rest))
    })
}

/// The inode's count of words for so many bytes of attributes.
pub(super) fn words(bytes: usize) -> u16 {
    if bytes == 0 { 0 } else { ((bytes - HEADER_BYTES) / 4 + 1) as u16 }
}

/// The bytes behind the inode, none without attributes.
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
