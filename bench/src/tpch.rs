//! TPC-H tables as Parquet files, from the `tpchgen` crates.
//!
//! A table is a folder of parts. It is written beside its place under a temporary name and renamed
//! when it is whole, so a folder that is there is complete, whatever was interrupted.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, anyhow, ensure};
use clap::{Args, ValueEnum};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator,
    PartSuppGenerator, RegionGenerator, SupplierGenerator,
};
use tpchgen_arrow::{
    CustomerArrow, LineItemArrow, NationArrow, OrderArrow, PartArrow, PartSuppArrow,
    RecordBatchIterator, RegionArrow, SupplierArrow,
};

/// About 64 MB of a row group of lineitem: range reads want large groups (`tpchgen`'s own
/// default of 7 MiB costs a request each).
const ROW_GROUP_ROWS: usize = 1_000_000;

#[derive(Args)]
pub struct Options {
    /// Scale factor: 1 is about 6 million rows of lineitem.
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Folder that gets a folder for each table.
    #[arg(long)]
    out: PathBuf,
    /// Files of each large table.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1024))]
    parts: u32,
    /// Which tables; all by default.
    #[arg(long, value_enum, value_delimiter = ',')]
    tables: Vec<Table>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Table {
    Lineitem,
    Orders,
    Customer,
    Part,
    Partsupp,
    Supplier,
    Nation,
    Region,
}

impl Table {
    fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    /// Nation and region have 25 and 5 rows and cannot be cut.
    fn parts(self, asked: u32) -> u32 {
        if matches!(self, Table::Nation | Table::Region) { 1 } else { asked }
    }

    /// The rows of part `part` (from 1) of `parts`.
    fn rows(self, scale: f64, part: i32, parts: i32) -> Box<dyn RecordBatchIterator> {
        match self {
            Table::Lineitem => {
                Box::new(LineItemArrow::new(LineItemGenerator::new(scale, part, parts)))
            }
            Table::Orders => Box::new(OrderArrow::new(OrderGenerator::new(scale, part, parts))),
            Table::Customer => {
                Box::new(CustomerArrow::new(CustomerGenerator::new(scale, part, parts)))
            }
            Table::Part => Box::new(PartArrow::new(PartGenerator::new(scale, part, parts))),
            Table::Partsupp => {
                Box::new(PartSuppArrow::new(PartSuppGenerator::new(scale, part, parts)))
            }
            Table::Supplier => {
                Box::new(SupplierArrow::new(SupplierGenerator::new(scale, part, parts)))
            }
            Table::Nation => Box::new(NationArrow::new(NationGenerator::new(scale, part, parts))),
            Table::Region => Box::new(RegionArrow::new(RegionGenerator::new(scale, part, parts))),
        }
    }
}

/// Makes the tables that are not there yet.
pub fn run(options: &Options) -> Result<()> {
    ensure!(options.scale > 0.0 && options.scale <= 1000.0, "--scale is above 0 and at most 1000");
    fs::create_dir_all(&options.out).with_context(|| options.out.display().to_string())?;
    let lock = File::create(options.out.join(".lock"))?;
    lock.lock().context("waiting for another generator")?;
    let asked =
        if options.tables.is_empty() { Table::value_variants() } else { &options.tables[..] };
    for &table in asked {
        make(options, table).with_context(|| format!("table {}", table.name()))?;
    }
    Ok(())
}

fn make(options: &Options, table: Table) -> Result<()> {
    let finished = options.out.join(table.name());
    if finished.is_dir() {
        return Ok(());
    }
    let unfinished = options.out.join(format!(".{}.tmp", table.name()));
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished)?;
    }
    fs::create_dir(&unfinished)?;
    write_parts(options, table, &unfinished)?;
    File::open(&unfinished)?.sync_all()?;
    fs::rename(&unfinished, &finished)?;
    eprintln!("made {}", finished.display());
    Ok(())
}

/// Each core takes the next part that nobody has.
fn write_parts(options: &Options, table: Table, folder: &Path) -> Result<()> {
    let parts = table.parts(options.parts);
    let next = AtomicU32::new(1);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cores)
            .map(|_| {
                scope.spawn(|| -> Result<()> {
                    loop {
                        let part = next.fetch_add(1, Ordering::Relaxed);
                        if part > parts {
                            return Ok(());
                        }
                        let path = folder.join(format!("part-{:04}.parquet", part - 1));
                        write_part(table.rows(options.scale, part as i32, parts as i32), &path)?;
                    }
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| {
            thread.join().map_err(|_| anyhow!("a generator thread panicked"))?
        })
    })
}

/// The Arrow schema is left out of the file: string views are this generator's choice, not the
/// table's.
fn write_part(mut rows: Box<dyn RecordBatchIterator>, path: &Path) -> Result<()> {
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
        .build();
    let options =
        ArrowWriterOptions::new().with_properties(properties).with_skip_arrow_metadata(true);
    let schema = rows.schema().clone();
    let mut writer = ArrowWriter::try_new_with_options(File::create(path)?, schema, options)?;
    rows.try_for_each(|batch| writer.write(&batch))?;
    let file = writer.into_inner()?;
    file.sync_all()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(out: &Path, tables: Vec<Table>) -> Options {
        Options { scale: 0.001, out: out.to_owned(), parts: 3, tables }
    }

    fn rows_in(folder: &Path) -> i64 {
        use parquet::file::reader::{FileReader, SerializedFileReader};
        fs::read_dir(folder)
            .unwrap()
            .map(|entry| {
                let file = File::open(entry.unwrap().path()).unwrap();
                SerializedFileReader::new(file).unwrap().metadata().file_metadata().num_rows()
            })
            .sum()
    }

    #[test]
    fn makes_every_table_whole_and_only_once() {
        let out = std::env::temp_dir().join(format!("snowmelt-tpch-{}", std::process::id()));
        run(&options(&out, vec![])).unwrap();
        assert_eq!(rows_in(&out.join("customer")), 150);
        assert_eq!(rows_in(&out.join("orders")), 1500);
        assert_eq!(rows_in(&out.join("nation")), 25);
        let made = fs::metadata(out.join("lineitem")).unwrap().modified().unwrap();
        run(&options(&out, vec![Table::Lineitem])).unwrap();
        assert_eq!(fs::metadata(out.join("lineitem")).unwrap().modified().unwrap(), made);
        fs::remove_dir_all(&out).unwrap();
    }

    #[test]
    fn replaces_what_an_interrupted_run_left() {
        let out = std::env::temp_dir().join(format!("snowmelt-tpch-left-{}", std::process::id()));
        fs::create_dir_all(out.join(".region.tmp")).unwrap();
        fs::write(out.join(".region.tmp/part-9999.parquet"), b"half").unwrap();
        run(&options(&out, vec![Table::Region])).unwrap();
        assert_eq!(rows_in(&out.join("region")), 5);
        assert!(!out.join(".region.tmp").exists());
        fs::remove_dir_all(&out).unwrap();
    }
}
