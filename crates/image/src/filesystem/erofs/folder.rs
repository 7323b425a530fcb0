//! Folders as blocks of names: each block contains entries, then the names, sorted over all blocks.

use super::field::Field;
pub(super) use super::format::NameType;
use super::format::UNIT;

use crate::filesystem::tree::MAX_NAME_BYTES;

const ENTRY_BYTES: usize = 12;

/// A name in a folder.
#[derive(Debug)]
pub(crate) struct EntryName<'a> {
    pub name: &'a [u8],
    pub nid: u64,
    pub kind: NameType,
}

/// Computes the encoded size of names with these lengths, in this order.
pub(super) fn size(lengths: impl Iterator<Item = usize>) -> u64 {
    let mut full = 0;
    let mut used = 0;
    for length in lengths {
        if used + ENTRY_BYTES + length > UNIT {
            full += UNIT as u64;
            used = 0;
        }
        used += ENTRY_BYTES + length;
    }
    full + used as u64
}

/// Encodes the content of a folder.
pub(super) fn encode(names: &[EntryName<'_>]) -> Vec<u8> {
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

/// Returns the number of names that fit into one block.
fn fitting(names: &[EntryName<'_>]) -> usize {
    let mut used = 0;
    names
        .iter()
        .take_while(|name| {
            used += ENTRY_BYTES + name.name.len();
            used <= UNIT
        })
        .count()
}

fn block(names: &[EntryName<'_>], content: &mut Vec<u8>) {
    let mut offset = names.len() * ENTRY_BYTES;
    for name in names {
        content.extend(name.nid.to_le_bytes());
        content.extend((offset as u16).to_le_bytes());
        content.extend([name.kind as u8, 0]);
        offset += name.name.len();
    }
    names.iter().for_each(|name| content.extend(name.name));
}

/// Decodes the names of a folder; `None` if the content is malformed.
pub(super) fn decode(content: &[u8]) -> Option<Vec<EntryName<'_>>> {
    let mut names = Vec::new();
    for block in content.chunks(UNIT) {
        decode_block(block, &mut names)?;
    }
    Some(names)
}

/// Decodes a block. Its entries come first; the offset of the first name is their end.
fn decode_block<'a>(block: &'a [u8], names: &mut Vec<EntryName<'a>>) -> Option<()> {
    let entries = block.get(..ENTRY_BYTES)?.u16_at(8) as usize;
    if entries == 0 || !entries.is_multiple_of(ENTRY_BYTES) {
        return None;
    }
    let entries = block.get(..entries)?.chunks_exact(ENTRY_BYTES);
    let starts = entries.clone().map(|entry| usize::from(entry.u16_at(8)));
    let ends = starts.clone().skip(1).chain([block.len()]);
    for ((entry, start), end) in entries.zip(starts).zip(ends) {
        // In all blocks but the last, the last name is terminated by a zero byte.
        let name = block.get(start..end)?.split(|byte| *byte == 0).next()?;
        if name.is_empty() || name.len() > MAX_NAME_BYTES || name.contains(&b'/') {
            return None;
        }
        let kind = NameType::of(entry[10])?;
        names.push(EntryName { name, nid: entry.u64_at(0), kind });
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_computed_size_is_the_encoded_size(
            names in proptest::collection::vec(proptest::collection::vec(1u8..255, 1..256), 1..300),
        ) {
            let entries: Vec<EntryName<'_>> = names
                .iter()
                .map(|name| EntryName { name, nid: 1, kind: NameType::File })
                .collect();
            prop_assert_eq!(size(names.iter().map(Vec::len)), encode(&entries).len() as u64);
        }
    }
}
