//! Counts the values of CSV records without decoding them.

use crate::read::Dialect;

/// Returns the records with `columns` values, or with fewer if the dialect fills them up. Marks
/// inside of values are doubled.
pub(crate) fn of_length(records: &[u8], dialect: &Dialect, columns: usize) -> Vec<u8> {
    let mut kept = Vec::with_capacity(records.len());
    let mut values = 1;
    let mut begin = 0;
    let mut starts = true;
    let mut quoted = false;
    for (at, byte) in records.iter().copied().enumerate() {
        let is_mark = Some(byte) == dialect.quote;
        if quoted {
            // The second one of two marks opens the quotation again.
            (quoted, starts) = (!is_mark, is_mark);
            continue;
        }
        match byte {
            b'\n' => {
                if values == columns || dialect.pads && values < columns {
                    kept.extend_from_slice(&records[begin..=at]);
                }
                (values, begin, starts) = (1, at + 1, true);
            }
            _ if byte == dialect.delimiter => (values, starts) = (values + 1, true),
            _ if is_mark && starts => quoted = true,
            _ => starts = byte == b'\r',
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use snowmelt_files::Format;

    use super::*;

    #[test]
    fn records_of_other_lengths_are_left_out() {
        let strict = Dialect::of(Format::Csv);
        let pads = Dialect { pads: true, ..strict.clone() };
        let text = "1,2\n1\n\"a,\nb\"\"c,\",2\n1,2,3\n5\",\"x\"y\n\n";
        let found =
            |dialect: &Dialect| String::from_utf8(of_length(text.as_bytes(), dialect, 2)).unwrap();
        assert_eq!(found(&strict), "1,2\n\"a,\nb\"\"c,\",2\n5\",\"x\"y\n");
        assert_eq!(found(&pads), "1,2\n1\n\"a,\nb\"\"c,\",2\n5\",\"x\"y\n\n");
    }
}
