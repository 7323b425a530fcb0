//! Every format with values that break naive writers: nulls, decimals, dates, quotes, lists, and no
//! rows.

use std::path::Path;
use std::sync::Arc;

use ::arrow::array::builder::{BooleanBuilder, Date32Builder, MapBuilder};
use ::arrow::array::*;
use ::arrow::datatypes::{Int32Type, Schema};

use super::*;

fn batch() -> RecordBatch {
    let prices = Decimal128Array::from(vec![Some(1999), None]).with_precision_and_scale(12, 2);
    RecordBatch::try_from_iter([
        ("id", Arc::new(Int64Array::from(vec![Some(i64::MAX), Some(2)])) as ArrayRef),
        ("price", Arc::new(prices.unwrap())),
        ("day", Arc::new(Date32Array::from(vec![Some(20_778), None]))),
        ("word", Arc::new(StringArray::from(vec![Some("a\"b,\nc"), Some("NULL")]))),
    ])
    .unwrap()
}

fn with_list() -> RecordBatch {
    let lists = vec![Some(vec![Some(1), None]), None];
    let lists = ListArray::from_iter_primitive::<Int32Type, _, _>(lists);
    RecordBatch::try_from_iter([("list", Arc::new(lists) as ArrayRef)]).unwrap()
}

fn written(
    format: OutputFormat,
    schema: &Schema,
    batches: &[RecordBatch],
) -> Result<Vec<u8>, ErrorReport> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("answer");
    let output = ResultOutput { format, file: Some(&file), rows: 0 };
    let mut writer = output.open(ResultTarget::open(output.file)?, &Arc::new(schema.clone()))?;
    for batch in batches {
        assert!(writer.write(batch)?);
    }
    writer.finish()?;
    Ok(std::fs::read(file).unwrap())
}

fn text(format: OutputFormat, batches: &[RecordBatch]) -> String {
    String::from_utf8(written(format, &batches[0].schema(), batches).unwrap()).unwrap()
}

fn with_map() -> RecordBatch {
    let mut maps = MapBuilder::new(None, Date32Builder::new(), BooleanBuilder::new());
    maps.keys().append_value(20_778);
    maps.values().append_value(true);
    maps.append(true).unwrap();
    RecordBatch::try_from_iter([("map", Arc::new(maps.finish()) as ArrayRef)]).unwrap()
}

#[test]
fn keys_of_maps_are_texts_in_json() {
    assert_eq!(text(OutputFormat::Json, &[with_map()]), "{\"map\":{\"2026-11-21\":true}}\n");
}

#[test]
fn a_table_shows_nulls_and_one_line_per_row() {
    assert_eq!(
        text(OutputFormat::Table, &[batch()]),
        "                 id │ price │ day        │ word\n\
         ────────────────────┼───────┼────────────┼────────\n\
         9223372036854775807 │ 19.99 │ 2026-11-21 │ a\"b,\\nc\n                  \
         2 │  NULL │ NULL       │ \"NULL\"\n"
    );
    assert!(text(OutputFormat::Table, &[with_list()]).contains("[1, ]"));
}

#[test]
fn csv_quotes_and_leaves_nulls_empty() {
    assert_eq!(
        text(OutputFormat::Csv, &[batch()]),
        "id,price,day,word\n9223372036854775807,19.99,2026-11-21,\"a\"\"b,\nc\"\n2,,,NULL\n"
    );
}

#[test]
fn csv_of_no_rows_has_a_header() {
    let bytes = written(OutputFormat::Csv, &batch().schema(), &[]).unwrap();
    assert_eq!(bytes, b"id,price,day,word\n");
    assert_eq!(text(OutputFormat::Csv, &[batch().slice(0, 0)]).as_bytes(), bytes);
}

#[test]
fn csv_refuses_lists_and_names_the_column() {
    let batch = with_list();
    let report = written(OutputFormat::Csv, &batch.schema(), &[]).unwrap_err();
    assert_eq!(report.code, Code::OUTPUT.code);
    assert!(report.message.contains("column `list`"), "{report}");
}

#[test]
fn json_has_every_key_on_every_line() {
    let lines = text(OutputFormat::Json, &[batch()]);
    let second: serde_json::Value = serde_json::from_str(lines.lines().nth(1).unwrap()).unwrap();
    let expected = serde_json::json!({"id": 2, "price": null, "day": null, "word": "NULL"});
    assert_eq!(second, expected);
    let lists = text(OutputFormat::Json, &[with_list()]);
    assert_eq!(lists, "{\"list\":[1,null]}\n{\"list\":null}\n");
}

#[test]
fn arrow_and_parquet_files_contain_the_same_batch() {
    let batch = batch();
    let bytes =
        written(OutputFormat::Arrow, &batch.schema(), std::slice::from_ref(&batch)).unwrap();
    let reader = ::arrow::ipc::reader::FileReader::try_new(std::io::Cursor::new(bytes), None);
    assert_eq!(
        reader.unwrap().map(Result::unwrap).collect::<Vec<_>>(),
        std::slice::from_ref(&batch)
    );

    let bytes =
        written(OutputFormat::Parquet, &batch.schema(), std::slice::from_ref(&batch)).unwrap();
    let builder = ::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(
        bytes::Bytes::from(bytes),
    );
    let read: Vec<_> = builder.unwrap().build().unwrap().map(Result::unwrap).collect();
    assert_eq!(read, [batch]);
}

#[test]
fn rows_beyond_the_sample_are_written_too() {
    let numbers = Int64Array::from_iter_values(0..25_000);
    let batch = RecordBatch::try_from_iter([("n", Arc::new(numbers) as ArrayRef)]).unwrap();
    let drawn = text(OutputFormat::Table, &[batch.slice(0, 9_000), batch.slice(9_000, 16_000)]);
    assert_eq!(drawn.lines().count(), 25_002);
    assert_eq!(drawn.lines().last(), Some("24999"));
}

#[test]
fn a_full_disk_is_reported() {
    let batch = batch();
    for format in
        [OutputFormat::Csv, OutputFormat::Json, OutputFormat::Parquet, OutputFormat::Table]
    {
        let output = ResultOutput { format, file: Some(Path::new("/dev/full")), rows: 0 };
        let target = ResultTarget::open(output.file).unwrap();
        let mut writer = output.open(target, &batch.schema()).unwrap();
        let wrote = writer.write(&batch);
        let report = wrote.and_then(|_| writer.finish()).unwrap_err();
        assert_eq!(report.code, Code::DISK_FULL.code, "{format:?}: {report}");
    }
}
