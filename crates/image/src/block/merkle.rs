//! A Merkle tree over all blocks of a blob, with short proofs that a block belongs to it.
//!
//! A leaf is `BLAKE3(0x00 ‖ stored length ‖ digest)`, a node `BLAKE3(0x01 ‖ left ‖ right)`; a node
//! without a sibling is promoted unchanged. The root is `BLAKE3(0x02 ‖ raw size ‖ log2 of the block
//! size ‖ top)`, so that it covers the number of blocks and the length of the last one. Leaves and
//! nodes have different prefixes, so a node cannot be presented as a leaf.

use super::{BlockDigest, BlockEntry, BlockSize};
use crate::{Error, Result};

/// The siblings of a leaf from the bottom up; `None` where a node has no sibling.
pub type Proof = Vec<Option<BlockDigest>>;

/// The root of the tree over these blocks.
pub fn root(entries: &[BlockEntry], raw_size: u64, block_size: BlockSize) -> BlockDigest {
    let mut level: Vec<BlockDigest> = entries.iter().map(leaf).collect();
    while level.len() > 1 {
        level = parents(&level);
    }
    seal(level.first().copied(), raw_size, block_size)
}

/// The proof for the block `index`; `None` if the index is out of range.
pub fn prove(entries: &[BlockEntry], index: usize) -> Option<Proof> {
    if index >= entries.len() {
        return None;
    }
    let (mut at, mut proof) = (index, Proof::new());
    let mut level: Vec<BlockDigest> = entries.iter().map(leaf).collect();
    while level.len() > 1 {
        proof.push(level.get(at ^ 1).copied());
        level = parents(&level);
        at /= 2;
    }
    Some(proof)
}

/// Verifies that `entry` is the block `index` of a blob with the root `expected`.
pub fn verify_proof(
    entry: &BlockEntry,
    index: u64,
    proof: &[Option<BlockDigest>],
    (raw_size, block_size): (u64, BlockSize),
    expected: &BlockDigest,
) -> Result<()> {
    let (mut at, mut width, mut top) = (index, block_size.count(raw_size), leaf(entry));
    let wrong = || Error::damaged("a proof", format!("block {index} is not below {expected}"));
    if index >= width {
        return Err(wrong());
    }
    for sibling in proof {
        // The number of blocks determines whether there is a sibling, not the prover.
        top = match sibling {
            Some(left) if at % 2 == 1 => node(left, &top),
            Some(right) if at + 1 < width => node(&top, right),
            None if at % 2 == 0 && at + 1 == width && width > 1 => top,
            _ => return Err(wrong()),
        };
        (at, width) = (at / 2, width.div_ceil(2));
    }
    if width == 1 && seal(Some(top), raw_size, block_size) == *expected {
        return Ok(());
    }
    Err(wrong())
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
    use proptest::prelude::*;

    use super::*;

    fn entries(count: usize) -> Vec<BlockEntry> {
        let entry =
            |n: usize| BlockEntry { stored: n as u32, digest: BlockDigest::of(&n.to_le_bytes()) };
        (0..count).map(entry).collect()
    }

    proptest! {
        #[test]
        fn proves_each_block_and_no_other(count in 1usize..70, index in 0usize..70) {
            let (all, index) = (entries(count), index % count);
            let size = BlockSize::MIN;
            let raw = (count as u64 - 1) * size.bytes() as u64 + 1;
            let root = root(&all, raw, size);
            let proof = prove(&all, index).unwrap();
            let check = |entry: &BlockEntry, index: usize, raw| {
                verify_proof(entry, index as u64, &proof, (raw, size), &root)
            };
            check(&all[index], index, raw).unwrap();
            check(&all[index], index, raw + 1).unwrap_err();
            for other in (0..count).filter(|other| *other != index) {
                check(&all[other], index, raw).unwrap_err();
                check(&all[index], other, raw).unwrap_err();
            }
        }
    }

    #[test]
    fn there_is_no_proof_for_an_index_out_of_range() {
        assert!(prove(&entries(3), 3).is_none());
    }
}
