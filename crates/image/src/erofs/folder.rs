//! Names of a folder to blocks: in each block entries, then the names, sorted over all blocks.

use super::format::{NameType, UNIT};

const ENTRY_BYTES: usize = 12;

/// One name.
pub(super) struct Name<'a> {
    pub name: &'a [u8],
    pub nid: u64,
    pub kind: NameType,
}

/// Bytes that names of these lengths, in this order, take.
pub(super) fn size(lengths: impl Iterator<Item = usize>) -> u64 {
    let (mut full, mut used) = (0, 0);
    for length in lengths {
        if used + ENTRY_BYTES + length > UNIT {
            full += UNIT as u64;
            used = 0;
        }
        used += ENTRY_BYTES + length;
    }
    full + used as u64
}

/// The content of a folder.
pub(super) fn encode(names: &[Name<'_>]) -> Vec<u8> {
    let mut content = Vec::new();
    let mut rest = names;
    while !rest.is_empty() {
        let (now, later) = rest.split_at(fitting(rest));
        content.resize(content.len().next_multiple_of(UNIT), 0);
        block(now, &mut content);
        rest = later;
    }
    content
}

/// How many of the names go into one block.
fn fitting(names: &[Name<'_>]) -> usize {
    let mut used = 0;
    names
        .iter()
        .take_while(|name| {
            used += ENTRY_BYTES + name.name.len();
            used <= UNIT
        })
        .count()
}

fn block(names: &[Name<'_>], content: &mut Vec<u8>) {
    let mut offset = names.len() * ENTRY_BYTES;
    for name in names {
        content.extend(name.nid.to_le_bytes());
        content.extend((offset as u16).to_le_bytes());
        content.extend([name.kind as u8, 0]);
        offset += name.name.len();
    }
    names.iter().for_each(|name| content.extend(name.name));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_size_is_known_before_the_content(
            names in proptest::collection::vec(proptest::collection::vec(1u8..255, 1..256), 1..300),
        ) {
            let entries: Vec<Name<'_>> = names
                .iter()
                .map(|name| Name { name, nid: 1, kind: NameType::File })
                .collect();
            prop_assert_eq!(size(names.iter().map(Vec::len)), encode(&entries).len() as u64);
        }
    }
}
