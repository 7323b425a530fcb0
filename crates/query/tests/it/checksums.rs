//! Pages with checksums, as pyarrow writes them: damage is an error with its location.
//!
//! `checksums.parquet` has two row groups of a thousand rows, uncompressed and without
//! dictionaries, so that only the checksum reveals a flipped bit:
//! `pq.write_table(pa.table({"n": n, "s": s}), path, compression="none", use_dictionary=False,
//! write_page_checksum=True, row_group_size=1000, data_page_size=4096, write_batch_size=256)`.

use std::path::Path;
use std::sync::Arc;

use arrow::util::pretty::pretty_format_batches;
use bytes::Bytes;
use parquet::file::reader::{FileReader, SerializedFileReader};

use crate::runner::{InProcess, answer, failure, located};

const WHOLE: &[u8] = include_bytes!("checksums.parquet");

const BOTH: &str = "select sum(n) n, max(s) s from 't/'";

/// Two files, of which the second has one bit flipped in the last page of a column.
fn write(folder: &Path, group: usize, column: usize) {
    let reader = SerializedFileReader::new(Bytes::from_static(WHOLE)).unwrap();
    let (start, length) = reader.metadata().row_group(group).column(column).byte_range();
    let mut damaged = WHOLE.to_vec();
    damaged[(start + length - 2) as usize] ^= 1;
    std::fs::create_dir_all(folder.join("t")).unwrap();
    std::fs::write(folder.join("t/a.parquet"), WHOLE).unwrap();
    std::fs::write(folder.join("t/b.parquet"), damaged).unwrap();
}

async fn table(sql: &str, folder: &Path) -> String {
    let (batches, _) = answer(&located(sql, folder), Arc::default())
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error}"));
    pretty_format_batches(&batches).unwrap().to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flipped_bit_is_an_error_that_names_file_column_and_row_group() {
    let folder = tempfile::tempdir().unwrap();
    for (group, column, name) in [(0, 0, "n"), (1, 0, "n"), (0, 1, "s"), (1, 1, "s")] {
        write(folder.path(), group, column);
        let report = failure(&located(BOTH, folder.path()), InProcess::default()).await;
        let place = format!("column `{name}` in row group {group} does not match its checksum");
        assert!(report.contains("SM-0106") && report.contains(&place), "{report}");
        assert!(report.contains("t/b.parquet") && !report.contains("a.parquet"), "{report}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_in_unread_columns_is_ignored() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), 1, 1);
    let text = table("select sum(n) n from 't/'", folder.path()).await;
    assert!(text.contains("4008890"), "{text}");
    std::fs::write(folder.path().join("t/b.parquet"), WHOLE).unwrap();
    let text = table(BOTH, folder.path()).await;
    assert!(text.contains("4008890") && text.contains("word 99"), "{text}");
}
