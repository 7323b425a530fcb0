//! Conformance checks for implementations of [`BlockSource`], to be run by their tests. They panic
//! on a violation.

use futures::future::join_all;

use super::BlockSource;
use crate::Error;
use crate::block::OciDigest;

/// Returns the content of a blob whose ranges all differ.
pub fn content() -> Vec<u8> {
    let mut bytes = vec![0; 300_000];
    blake3::Hasher::new().finalize_xof().fill(&mut bytes);
    bytes
}

/// Checks `source`, which must have a blob of exactly these bytes, and no other blob.
pub async fn check(source: &dyn BlockSource, content: &[u8]) {
    let blob = OciDigest::of(content);
    let size = content.len() as u64;
    let ranges = [0..1, 0..size, size - 1..size, 1000..70_000, 65_536..131_072];
    // Concurrently: answers must not be mixed up.
    let answers = ranges.clone().map(|range| source.fetch(&blob, range));
    for (range, answer) in ranges.into_iter().zip(join_all(answers).await) {
        let expected = &content[range.start as usize..range.end as usize];
        assert!(answer.unwrap() == expected, "{range:?}");
    }
    let outside = [0..size + 1, size..size + 1, size + 5..size + 9];
    for (range, answer) in outside
        .clone()
        .into_iter()
        .zip(join_all(outside.map(|range| source.fetch(&blob, range))).await)
    {
        let error = answer.unwrap_err();
        assert!(!error.is_transient(), "{range:?}: {error}");
    }
    let missing = source.fetch(&OciDigest::of(b"no such blob"), 0..1).await.unwrap_err();
    assert!(matches!(missing, Error::Missing { .. }), "{missing}");
    // A dropped request does not affect others.
    drop(source.fetch(&blob, 0..size));
    assert!(source.fetch(&blob, 5..6).await.unwrap() == content[5..6]);
}
