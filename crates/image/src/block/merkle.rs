//! A Merkle tree over all blocks of a blob.
//!
//! A leaf is `BLAKE3(0x00 ‖ stored length ‖ digest)`, a node `BLAKE3(0x01 ‖ left ‖ right)`; a node
//! without a sibling is promoted unchanged. The root is `BLAKE3(0x02 ‖ raw size ‖ log2 of the block
//! size ‖ top)`, so that it covers the number of blocks and the length of the last one. Leaves and
//! nodes have different prefixes, so a node cannot be presented as a leaf.

use super::{BlockDigest, BlockEntry, BlockSize};

/// Computes the root of the tree over these blocks.
pub fn root(entries: &[BlockEntry], raw_size: u64, block_size: BlockSize) -> BlockDigest {
    let mut level: Vec<BlockDigest> = entries.iter().map(leaf).collect();
    while level.len() > 1 {
        level = parents(&level);
    }
    seal(level.first().copied(), raw_size, block_size)
}

fn parents(level: &[BlockDigest]) -> Vec<BlockDigest> {
    let up = |pair: &[BlockDigest]| match pair {
        [left, right] => node(left, right),
        [alone] => *alone,
        _ => unreachable!("chunks(2) has one or two"),
    };
    level.chunks(2).map(up).collect()
}

fn leaf(entry: &BlockEntry) -> BlockDigest {
    hash(0, &[&entry.stored.to_le_bytes(), &entry.digest.0])
}

fn node(left: &BlockDigest, right: &BlockDigest) -> BlockDigest {
    hash(1, &[&left.0, &right.0])
}

/// Hashes the top with the sizes. An empty blob has no top; 32 zero bytes take its place.
fn seal(top: Option<BlockDigest>, raw_size: u64, block_size: BlockSize) -> BlockDigest {
    let top = top.map_or([0; 32], |top| top.0);
    hash(2, &[&raw_size.to_le_bytes(), &[block_size.log2()], &top])
}

fn hash(kind: u8, parts: &[&[u8]]) -> BlockDigest {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&[kind]);
    for part in parts {
        hasher.update(part);
    }
    BlockDigest(*hasher.finalize().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(count: usize) -> Vec<BlockEntry> {
        let entry =
            |n: usize| BlockEntry { stored: n as u32, digest: BlockDigest::of(&n.to_le_bytes()) };
        (0..count).map(entry).collect()
    }

    #[test]
    fn the_root_depends_on_every_block_its_place_and_the_sizes() {
        for count in 1..20 {
            let all = entries(count);
            let raw = count as u64 * BlockSize::MIN.bytes() as u64;
            let root = |entries: &[BlockEntry]| super::root(entries, raw, BlockSize::MIN);
            let mut roots = vec![
                root(&all),
                super::root(&all, raw - 1, BlockSize::MIN),
                super::root(&all, raw, BlockSize::MAX),
                root(&entries(count + 1)),
            ];
            for at in 0..count {
                let mut other = all.clone();
                other[at].stored += 1000;
                roots.push(root(&other));
                let mut swapped = all.clone();
                swapped.swap(at, (at + 1) % count);
                roots.extend((count > 2 || (count == 2 && at == 0)).then(|| root(&swapped)));
            }
            let different: std::collections::HashSet<_> = roots.iter().map(|one| one.0).collect();
            assert_eq!(different.len(), roots.len(), "{count} blocks");
        }
    }
}
