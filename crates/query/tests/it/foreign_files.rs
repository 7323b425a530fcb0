//! Parquet files of other writers: old types, wrong numbers in footers, names in another case.

use std::path::Path;
use std::sync::Arc;

use arrow::array::*;
use arrow::datatypes::Float16Type;
use bytes::Bytes;
use parquet::basic::{Repetition, Type};
use parquet::data_type::{Int96, Int96Type};
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader, ParquetMetaDataWriter};
use parquet::file::properties::{WriterProperties, WriterVersion};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types;

use crate::data;
use crate::formats::{found, put};
use crate::runner::{located, refusal};

type F16 = <Float16Type as ArrowPrimitiveType>::Native;

/// Julian day of 1970-01-01.
const EPOCH: i64 = 2_440_588;

/// Bytes of the length and the magic number behind the metadata.
const TRAILER: usize = 8;

/// Rewrites the metadata of a file.
fn rewrite(path: &Path, change: impl FnOnce(ParquetMetaData) -> ParquetMetaData) {
    let bytes = std::fs::read(path).unwrap();
    let metadata = ParquetMetaDataReader::new().parse_and_finish(&Bytes::from(bytes.clone()));
    let length = metadata_length(&bytes);
    let mut changed = bytes[..bytes.len() - length - TRAILER].to_vec();
    ParquetMetaDataWriter::new(&mut changed, &change(metadata.unwrap())).finish().unwrap();
    std::fs::write(path, changed).unwrap();
}

fn metadata_length(bytes: &[u8]) -> usize {
    let length = &bytes[bytes.len() - TRAILER..][..4];
    u32::from_le_bytes(length.try_into().unwrap()) as usize
}

fn numbers(name: &str, values: impl IntoIterator<Item = i64>) -> RecordBatch {
    let values = Arc::new(Int64Array::from_iter_values(values)) as ArrayRef;
    RecordBatch::try_from_iter([(name, values)]).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_floats_are_read_as_real() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let halves = |values: &[Option<f32>]| -> ArrayRef {
        let halves = values.iter().map(|value| value.map(F16::from_f32));
        Arc::new(Float16Array::from_iter(halves))
    };
    let batch = |id: i64, values: &[Option<f32>]| {
        let ids = Int64Array::from_iter_values((id..).take(values.len()));
        RecordBatch::try_from_iter_with_nullable([
            ("id", Arc::new(ids) as ArrayRef, false),
            ("h", halves(values), true),
        ])
        .unwrap()
    };
    std::fs::create_dir(root.join("t")).unwrap();
    data::write(&root.join("t/a.parquet"), &batch(0, &[Some(1.5), None, Some(-2.25)]), 2);
    data::write(&root.join("t/b.parquet"), &batch(3, &[Some(0.5), Some(8.0)]), 2);
    for (sql, expected) in [
        ("select sum(id), count(*) from 't'", "|10|5|"),
        ("select sum(h), min(h), max(h), count(h) from 't'", "|7.75|-2.25|8.0|4|"),
        ("select id from 't' where h > 1 order by id", "|0|\n|4|"),
        ("select id from 't' where h = 0.5", "|3|"),
        ("select count(*) from 't' where h is null", "|1|"),
        ("select h from 't' where id = 2", "|-2.25|"),
        ("select count(*) from 't' a join 't' b on a.h = b.h", "|4|"),
        ("describe 't'", "|id|BIGINT|false|\n|h|REAL|true|"),
    ] {
        for workers in [1, 2] {
            assert_eq!(found(sql, root, workers).await, expected, "{sql}");
        }
    }
    // Row groups are still left out by the statistics of other columns.
    let query = located("select h from 't' where id > 2", root);
    let planned = snowmelt_query::plan(&query).await.unwrap();
    assert_eq!(planned.files().unwrap().len(), 1);
}

/// Writes a column of INT96: days since 1970 with nanoseconds of the day.
fn int96(path: &Path, values: &[(i64, u64)]) {
    let column = types::Type::primitive_type_builder("at", Type::INT96)
        .with_repetition(Repetition::REQUIRED)
        .build()
        .unwrap();
    let schema = types::Type::group_type_builder("schema").with_fields(vec![Arc::new(column)]);
    let file = std::fs::File::create(path).unwrap();
    let properties = WriterProperties::builder().set_writer_version(WriterVersion::PARQUET_1_0);
    let schema = Arc::new(schema.build().unwrap());
    let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties.build())).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let value = |(days, nanos): &(i64, u64)| {
        Int96::from(vec![*nanos as u32, (*nanos >> 32) as u32, (days + EPOCH) as u32])
    };
    let values: Vec<Int96> = values.iter().map(value).collect();
    column.typed::<Int96Type>().write_batch(&values, None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn int96_beyond_2262_does_not_wrap() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    std::fs::create_dir(root.join("t")).unwrap();
    // 9999-12-31, 0001-01-01, and 1970-01-02 12:00:00.123456789.
    let noon = 43_200_123_456_789;
    int96(&root.join("t/a.parquet"), &[(2_932_896, 0), (-719_162, 0)]);
    int96(&root.join("t/b.parquet"), &[(1, noon)]);
    for workers in [1, 2] {
        let all = found("select at from 't' order by at", root, workers).await;
        let expected = "|0001-01-01T00:00:00|\n|1970-01-02T12:00:00.123456|\n|9999-12-31T00:00:00|";
        assert_eq!(all, expected);
        let sql = "select count(*), max(at) from 't' where at > timestamp '2000-01-01'";
        assert_eq!(found(sql, root, workers).await, "|1|9999-12-31T00:00:00|");
    }
    // A column of nanoseconds beside it is read in microseconds too.
    let nanos = TimestampNanosecondArray::from(vec![1_700_000_000_123_456_789]);
    let nanos = RecordBatch::try_from_iter([("at", Arc::new(nanos) as ArrayRef)]).unwrap();
    data::write(&root.join("t/c.parquet"), &nanos, 10);
    for (filter, expected) in [
        ("at > timestamp '2000-01-01'", "|2|2023-11-14T22:13:20.123456|9999-12-31T00:00:00|"),
        ("at < timestamp '2000-01-01'", "|2|0001-01-01T00:00:00|1970-01-02T12:00:00.123456|"),
    ] {
        let sql = format!("select count(*), min(at), max(at) from 't' where {filter}");
        assert_eq!(found(&sql, root, 2).await, expected, "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rows_of_row_groups_are_read_whatever_the_footer_says() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let path = data::write(&root.join("x.parquet"), &numbers("n", 0..6), 4);
    let mut bytes = std::fs::read(&path).unwrap();
    let start = bytes.len() - TRAILER - metadata_length(&bytes);
    // The third field, an integer: 6, before the fourth, a list.
    let number = [0x16, 2 * 6, 0x19];
    let at = bytes[start..].windows(3).position(|window| window == number).unwrap();
    bytes[start + at + 1] = 0;
    std::fs::write(&path, &bytes).unwrap();
    let metadata = ParquetMetaDataReader::new().parse_and_finish(&Bytes::from(bytes)).unwrap();
    assert_eq!(metadata.file_metadata().num_rows(), 0, "the test changed what it meant to");
    for workers in [1, 2] {
        for (sql, expected) in [
            ("select count(*) from 'x.parquet'", "|6|"),
            ("select sum(n), count(n) from 'x.parquet'", "|15|6|"),
            ("select n from 'x.parquet' order by n limit 2", "|0|\n|1|"),
        ] {
            assert_eq!(found(sql, root, workers).await, expected, "{sql}");
        }
    }
}

#[tokio::test]
async fn columns_with_another_number_of_values_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = data::write(&folder.path().join("x.parquet"), &numbers("n", 0..6), 4);
    rewrite(&path, |metadata| {
        let mut builder = metadata.into_builder();
        let mut groups = builder.take_row_groups();
        let group = groups.remove(1);
        let column = group.column(0).clone().into_builder().set_num_values(4).build().unwrap();
        let group = group.into_builder().set_column_metadata(vec![column]).build().unwrap();
        builder.set_row_groups([groups, vec![group]].concat()).build()
    });
    for sql in ["select n from 'x.parquet'", "select count(*) from 'x.parquet'"] {
        let report = refusal(&located(sql, folder.path())).await;
        let why = "column `n` of row group 1 has 4 values, and the row group has 2 rows";
        assert!(report.contains("SM-0106") && report.contains(why), "{report}");
    }
}

#[tokio::test]
async fn names_of_columns_that_differ_in_case_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    std::fs::create_dir(root.join("p")).unwrap();
    data::write(&root.join("p/a.parquet"), &numbers("id", 0..3), 10);
    data::write(&root.join("p/b.parquet"), &numbers("ID", 3..6), 10);
    put(&root.join("c/a.csv"), "id,n\n1,2\n").await;
    put(&root.join("c/b.csv"), "Id,n\n3,4\n").await;
    put(&root.join("j/a.json"), "{\"id\":1}\n").await;
    put(&root.join("j/b.json"), "{\"Id\":1}\n").await;
    for (location, other) in [("p", "ID"), ("c", "Id"), ("j", "Id")] {
        let report = refusal(&located(&format!("select sum(id) from '{location}'"), root)).await;
        let why = format!("`{other}` in `");
        assert!(
            report.contains("SM-0106") && report.contains("a column is named `id`"),
            "{report}"
        );
        assert!(report.contains(&why) && report.contains("/b."), "{report}");
    }
    // A file with both has two columns.
    let both = [("id", 7), ("ID", 8)]
        .map(|(name, value)| (name, Arc::new(Int64Array::from(vec![value])) as ArrayRef));
    let both = RecordBatch::try_from_iter(both).unwrap();
    data::write(&root.join("p/c.parquet"), &both, 10);
    let sql = "select sum(\"id\"), sum(\"ID\") from 'p'";
    assert_eq!(found(sql, root, 1).await, "|10|20|");
}
