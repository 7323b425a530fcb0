//! Estimates the distinct values of text columns from the sizes in the footers of Parquet files.
//!
//! Writers store a column with few values as a dictionary and the positions in it, which take as
//! many bits as the dictionary needs. So the bits of a value tell how many there are. Numbers and
//! times have a range instead, which tells more.

use arrow::datatypes::{DataType, Schema};
use datafusion::common::Statistics;
use datafusion::common::stats::Precision;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};

/// The most bits of a position in a dictionary: values with more bits are stored otherwise.
const MAX_BITS: f64 = 16.0;

/// The assumed part of the positions that a dictionary uses: it is between half full and full for
/// its bits.
const FILLED: f64 = 0.75;

/// Adds the estimates to the statistics of a table.
pub(crate) fn estimate<'f>(
    statistics: &mut Statistics,
    schema: &Schema,
    footers: impl Iterator<Item = &'f ParquetMetaData> + Clone,
) {
    let Some(rows) = statistics.num_rows.get_value().copied() else { return };
    for (column, field) in statistics.column_statistics.iter_mut().zip(schema.fields()) {
        let is_text = matches!(field.data_type(), DataType::Utf8View | DataType::BinaryView);
        if !is_text || column.distinct_count.get_value().is_some() {
            continue;
        }
        let chunks = footers.clone().flat_map(|footer| chunks_of(footer, field.name()));
        if let Some(bits) = bits_of_values(chunks).filter(|bits| *bits < MAX_BITS) {
            let values = (FILLED * bits.exp2()).max(1.0);
            column.distinct_count = Precision::Inexact((values.round() as usize).min(rows));
        }
    }
}

/// The chunks of a column that is not nested; none if there is no such column.
fn chunks_of<'f>(
    footer: &'f ParquetMetaData,
    name: &str,
) -> impl Iterator<Item = &'f ColumnChunkMetaData> + use<'f> {
    let columns = footer.file_metadata().schema_descr().columns();
    let leaf = columns.iter().position(|column| column.path().parts() == [name]);
    footer.row_groups().iter().filter_map(move |group| group.columns().get(leaf?))
}

/// The bits of a value without the dictionaries; `None` if a chunk has no dictionary.
fn bits_of_values<'f>(chunks: impl Iterator<Item = &'f ColumnChunkMetaData>) -> Option<f64> {
    let mut bytes = 0.0;
    let mut values = 0.0;
    for chunk in chunks {
        let dictionary = (chunk.data_page_offset() - chunk.dictionary_page_offset()?) as f64;
        let stored = chunk.compressed_size() as f64;
        let plain = chunk.uncompressed_size() as f64;
        if stored <= 0.0 || !(0.0..=stored).contains(&dictionary) {
            return None;
        }
        bytes += plain * (1.0 - dictionary / stored);
        values += chunk.num_values() as f64;
    }
    (values > 0.0).then(|| bytes * 8.0 / values)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, RecordBatch, StringViewArray};
    use parquet::arrow::ArrowWriter;
    use parquet::file::metadata::ParquetMetaDataReader;

    use super::*;

    /// The estimate for a column of 20,000 rows with so many values.
    fn estimated(values: usize) -> Option<usize> {
        let text = (0..20_000).map(|row: usize| format!("value {}", row * 7919 % values));
        let column: ArrayRef = Arc::new(text.map(Some).collect::<StringViewArray>());
        let batch = RecordBatch::try_from_iter([("t", column)]).unwrap();
        let mut file = Vec::new();
        let mut writer = ArrowWriter::try_new(&mut file, batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        let footer =
            ParquetMetaDataReader::new().parse_and_finish(&bytes::Bytes::from(file)).unwrap();
        let mut statistics = Statistics::new_unknown(&batch.schema());
        statistics.num_rows = Precision::Exact(20_000);
        estimate(&mut statistics, &batch.schema(), [&footer].into_iter());
        statistics.column_statistics[0].distinct_count.get_value().copied()
    }

    #[test]
    fn the_bits_of_a_value_tell_how_many_there_are() {
        for values in [3, 25, 150, 1000] {
            let found = estimated(values).unwrap();
            assert!((values / 2..=values * 2).contains(&found), "{values}: {found}");
        }
    }

    #[test]
    fn few_values_are_rounded() {
        // Two bits for a value, of which three quarters are three values.
        assert_eq!(estimated(3), Some(3));
    }

    #[test]
    fn many_values_are_not_estimated() {
        assert!(estimated(20_000).is_none_or(|found| found > 5_000));
    }
}
