//! Short forms of sort keys, with the same order as far as they go.
//!
//! Keys are bytes that are compared from the left. Most of the bytes are the same in all keys: the
//! high bytes of numbers, the padding of strings, the markers of nulls. They do not change the order,
//! so a short key has the first bytes that differ between keys, and nothing else. Three numbers of a
//! few million rows, which have 27 bytes as keys, fit into one.

use arrow::row::Rows;

/// The bytes of a short key.
const BYTES: usize = 16;

/// The most bytes of a key that are examined.
const EXAMINED: usize = 256;

/// The short form of a key.
pub(super) type ShortKey = [u64; BYTES / 8];

/// The choice of the bytes of a key that its short key has.
pub(super) struct KeyShape {
    /// Places of the chosen bytes in a key, ascending.
    places: Vec<usize>,
    is_whole: bool,
}

impl KeyShape {
    /// Chooses the bytes for some keys.
    pub fn of(keys: &[Rows]) -> Self {
        let lengths = || keys.iter().flatten().map(|key| key.data().len());
        // A key that ends differs from those that go on, at a place that it does not have itself.
        let shortest = lengths().min().unwrap_or(0);
        let longest = lengths().max().unwrap_or(0);
        let examined = shortest.min(EXAMINED);
        let mut differs = [0_u8; EXAMINED];
        if let Some(first) = keys.iter().flatten().next() {
            let first = &first.data()[..examined];
            let differs = &mut differs[..examined];
            for key in keys.iter().flatten() {
                let pairs = differs.iter_mut().zip(first).zip(key.data());
                pairs.for_each(|((differs, first), byte)| *differs |= first ^ byte);
            }
        }
        let differing = differs.iter().enumerate().filter(|(_, differs)| **differs != 0);
        let mut places: Vec<usize> = differing.map(|(place, _)| place).collect();
        let is_whole = shortest == longest && longest <= EXAMINED && places.len() <= BYTES;
        places.truncate(BYTES);
        Self { places, is_whole }
    }

    /// Whether keys are equal whose short forms are.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// The short form of one of the keys.
    pub fn short(&self, key: &[u8]) -> ShortKey {
        let mut short = [0; BYTES];
        for (byte, place) in short.iter_mut().zip(&self.places) {
            *byte = key[*place];
        }
        let (high, low) = short.split_at(8);
        [high, low].map(|half| half.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, StringArray};
    use arrow::row::{RowConverter, SortField};
    use proptest::prelude::*;

    use super::*;

    fn keys(columns: &[ArrayRef]) -> Vec<Rows> {
        let fields = columns.iter().map(|column| SortField::new(column.data_type().clone()));
        let converter = RowConverter::new(fields.collect()).unwrap();
        vec![converter.convert_columns(columns).unwrap()]
    }

    #[test]
    fn numbers_of_few_bytes_are_whole() {
        let numbers = |step: i64| Arc::new((0..1000).map(|n| n * step).collect::<Int64Array>());
        let rows = keys(&[numbers(1), numbers(-7), numbers(1 << 20)]);
        assert!(KeyShape::of(&rows).is_whole());
        assert!(KeyShape::of(&[]).is_whole());
    }

    #[test]
    fn long_texts_are_not() {
        let texts: StringArray =
            (0..100).map(|n| Some("long text ".repeat(n % 7) + &n.to_string())).collect();
        assert!(!KeyShape::of(&keys(&[Arc::new(texts)])).is_whole());
    }

    proptest! {
        #[test]
        fn short_keys_never_contradict_the_order_of_keys(
            numbers in prop::collection::vec(prop::option::of(any::<i64>()), 1..60),
            small in prop::collection::vec(0_i64..300, 60),
            texts in prop::collection::vec(prop::option::of("[a-c]{0,12}"), 60),
        ) {
            let rows = numbers.len();
            let small = Int64Array::from(small[..rows].to_vec());
            let texts = StringArray::from(texts[..rows].to_vec());
            let columns: [ArrayRef; 3] =
                [Arc::new(small), Arc::new(texts), Arc::new(Int64Array::from(numbers))];
            for columns in [&columns[..], &columns[..1], &columns[1..], &columns[2..]] {
                let keys = keys(columns);
                let shape = KeyShape::of(&keys);
                for a in &keys[0] {
                    for b in &keys[0] {
                        let short = shape.short(a.data()).cmp(&shape.short(b.data()));
                        let whole = a.cmp(&b);
                        prop_assert!(short == whole || short.is_eq() && !shape.is_whole());
                    }
                }
            }
        }
    }
}
