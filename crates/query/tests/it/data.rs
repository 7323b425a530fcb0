//! TPC-H at scale factor 0.01 and a table of unusual values, as Parquet files created once per run.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use arrow::array::{
    ArrayRef, BooleanArray, Date32Array, Decimal128Array, DictionaryArray, Float64Array,
    Int32Array, Int64Array, ListArray, RecordBatch, StringArray, StructArray,
};
use arrow::compute::concat_batches;
use arrow::datatypes::{Field, Int32Type};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator,
    PartSuppGenerator, RegionGenerator, SupplierGenerator,
};
use tpchgen_arrow::{
    CustomerArrow, LineItemArrow, NationArrow, OrderArrow, PartArrow, PartSuppArrow, RegionArrow,
    SupplierArrow,
};

use crate::shared::Shared;

/// Rows in a row group of the generated files.
const GROUP_ROWS: usize = 3_000;

/// TPC-H's scale factor.
const SCALE: f64 = 0.01;

static FOLDER: LazyLock<Shared> = LazyLock::new(|| {
    Shared::new("tpch", |folder| {
        let table = |name: &str, batches: &mut dyn Iterator<Item = RecordBatch>, files| {
            write_files(&folder.join(name), &batches.collect::<Vec<_>>(), files);
        };
        table("lineitem", &mut LineItemArrow::new(LineItemGenerator::new(SCALE, 1, 1)), 4);
        table("orders", &mut OrderArrow::new(OrderGenerator::new(SCALE, 1, 1)), 1);
        table("nation", &mut NationArrow::new(NationGenerator::new(SCALE, 1, 1)), 1);
        table("region", &mut RegionArrow::new(RegionGenerator::new(SCALE, 1, 1)), 1);
        table("customer", &mut CustomerArrow::new(CustomerGenerator::new(SCALE, 1, 1)), 2);
        table("supplier", &mut SupplierArrow::new(SupplierGenerator::new(SCALE, 1, 1)), 1);
        table("part", &mut PartArrow::new(PartGenerator::new(SCALE, 1, 1)), 2);
        table("partsupp", &mut PartSuppArrow::new(PartSuppGenerator::new(SCALE, 1, 1)), 3);
        write_files(&folder.join("odd"), &[odd()], 3);
        write_files(&folder.join("none"), &[odd().slice(0, 0)], 1);
    })
});

/// The folder that contains a folder for each table.
pub fn folder() -> &'static Path {
    FOLDER.path()
}

/// The tables that tests refer to by name.
pub const TABLES: [&str; 10] = [
    "lineitem", "orders", "nation", "region", "customer", "supplier", "part", "partsupp", "odd",
    "none",
];

fn write_files(folder: &Path, batches: &[RecordBatch], files: usize) {
    std::fs::create_dir_all(folder).unwrap();
    let whole = concat_batches(&batches[0].schema(), batches).unwrap();
    let each = whole.num_rows().div_ceil(files).max(1);
    for file in 0..files {
        let start = (file * each).min(whole.num_rows());
        let rows = each.min(whole.num_rows() - start);
        write(&folder.join(format!("part-{file}.parquet")), &whole.slice(start, rows), GROUP_ROWS);
    }
}

/// Writes one Parquet file.
pub fn write(path: &Path, batch: &RecordBatch, group_rows: usize) -> PathBuf {
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(group_rows))
        .set_compression(parquet::basic::Compression::SNAPPY)
        .build();
    let file = File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
    path.to_owned()
}

/// Ten thousand rows with columns of every supported type, with a seventh of the values null.
fn odd() -> RecordBatch {
    let rows = 10_000;
    let some = |i: &i64| i % 7 != 3;
    let numbers = || (0..rows).map(|i: i64| some(&i).then_some(i));
    let text = |i: i64| format!("wört {}", i % 13);
    let words: DictionaryArray<Int32Type> =
        (0..rows).map(|i| ["a", "b", "c"][i as usize % 3]).collect();
    let lists = ListArray::from_iter_primitive::<arrow::datatypes::Int64Type, _, _>(
        (0..rows).map(|i| some(&i).then(|| (0..i % 4).map(Some).collect::<Vec<_>>())),
    );
    let x = Arc::new(Int64Array::from_iter(numbers())) as ArrayRef;
    let fields = StructArray::from(vec![(
        Arc::new(Field::new("x", arrow::datatypes::DataType::Int64, true)),
        Arc::clone(&x),
    )]);
    RecordBatch::try_from_iter_with_nullable([
        ("id", Arc::new(Int64Array::from_iter_values(0..rows)) as ArrayRef, false),
        ("n", x, true),
        (
            "small",
            Arc::new(Int32Array::from_iter(numbers().map(|n| n.map(|n| n as i32 % 100)))),
            true,
        ),
        (
            "x",
            Arc::new(Float64Array::from_iter(numbers().map(|n| n.map(|n| n as f64 / 4.0)))),
            true,
        ),
        ("yes", Arc::new(BooleanArray::from_iter(numbers().map(|n| n.map(|n| n % 2 == 0)))), true),
        ("s", Arc::new(StringArray::from_iter(numbers().map(|n| n.map(text)))), true),
        (
            "day",
            Arc::new(Date32Array::from_iter(numbers().map(|n| n.map(|n| n as i32 % 400)))),
            true,
        ),
        (
            "price",
            Arc::new(
                Decimal128Array::from_iter(numbers().map(|n| n.map(i128::from)))
                    .with_precision_and_scale(12, 2)
                    .unwrap(),
            ),
            true,
        ),
        ("word", Arc::new(words), true),
        ("list", Arc::new(lists), true),
        ("pair", Arc::new(fields), true),
    ])
    .unwrap()
}
