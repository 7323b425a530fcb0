//! The footer of one Parquet file: read, checked against the file, decoded.
//!
//! Invariant: every range in a returned footer lies within the file, and its numbers of rows agree. A
//! damaged footer can contain any number, and a reader that trusts it may request impossible ranges or
//! give another number of rows than `count(*)`.

use std::sync::Arc;

use bytes::Bytes;
use object_store::{ObjectMeta, ObjectStore};
use parquet::file::metadata::{
    FileMetaData, ParquetMetaData, ParquetMetaDataBuilder, ParquetMetaDataReader, RowGroupMetaData,
};

use super::version::read_bytes;
use crate::process::catch_panic;

/// Bytes that are first read from a file's end: the footers of most files are shorter.
const FIRST_READ: u64 = 64 << 10;

/// The metadata is followed by its length and the magic number, four bytes each.
const TRAILER: u64 = 8;

/// The footer of a file. Stored with each part of the file, to estimate its cost and to send it to
/// the part's worker.
#[derive(Clone, Debug)]
pub struct Footer {
    /// The metadata of the file: its schema, and where its row groups and columns are.
    pub metadata: Arc<ParquetMetaData>,
    /// Bytes of the footer at the end of the file, including its length and the magic number.
    pub length: u64,
}

/// Why a footer cannot be read.
#[derive(Debug)]
pub enum FooterError {
    /// The store failed.
    Store(object_store::Error),
    /// The bytes are not a valid footer; with the reason.
    Corrupt(String),
}

impl From<object_store::Error> for FooterError {
    fn from(error: object_store::Error) -> Self {
        Self::Store(error)
    }
}

impl From<String> for FooterError {
    fn from(why: String) -> Self {
        Self::Corrupt(why)
    }
}

/// Reads a file's footer.
pub async fn read_footer(
    store: &dyn ObjectStore,
    meta: &ObjectMeta,
) -> Result<Footer, FooterError> {
    let bytes = fetch_footer(store, meta).await?;
    Ok(decode_footer(&bytes, meta.size)?)
}

/// Reads the bytes of a file's footer, with their length and the magic number: in one request, or
/// two if they are longer than 64 KiB.
pub async fn fetch_footer(
    store: &dyn ObjectStore,
    meta: &ObjectMeta,
) -> Result<Bytes, FooterError> {
    let size = meta.size;
    if size < TRAILER + 4 {
        return Err(format!("it has {size} bytes, which is too few for a Parquet file").into());
    }
    let end = read_bytes(store, meta, size.saturating_sub(FIRST_READ)..size).await?;
    let length = metadata_length(&end, size)? + TRAILER;
    match (end.len() as u64).checked_sub(length) {
        Some(before) => Ok(end.slice(before as usize..)),
        None => Ok(read_bytes(store, meta, size - length..size).await?),
    }
}

/// Decodes a footer of a file of this size.
pub fn decode_footer(bytes: &Bytes, size: u64) -> Result<Footer, String> {
    let length = metadata_length(bytes, size)?;
    if length + TRAILER != bytes.len() as u64 {
        return Err(format!("its footer has {} bytes, and not {length}", bytes.len()));
    }
    let metadata = bytes.slice(..length as usize);
    let decoded = catch_panic(|| ParquetMetaDataReader::decode_metadata(&metadata))?;
    let decoded = decoded.map_err(|error| error.to_string())?;
    check_row_groups(&decoded, size)?;
    Ok(Footer { metadata: with_all_rows(Arc::new(decoded)), length: length + TRAILER })
}

/// The metadata with as many rows as the row groups have. Some writers leave the number of the whole
/// file 0, and the decoder's batches never have more rows than that number.
pub(super) fn with_all_rows(metadata: Arc<ParquetMetaData>) -> Arc<ParquetMetaData> {
    let groups = metadata.row_groups().iter().map(RowGroupMetaData::num_rows);
    let rows = groups.fold(0, i64::saturating_add);
    let file = metadata.file_metadata();
    if file.num_rows() == rows {
        return metadata;
    }
    let file = FileMetaData::new(
        file.version(),
        rows,
        file.created_by().map(str::to_owned),
        file.key_value_metadata().cloned(),
        file.schema_descr_ptr(),
        file.column_orders().cloned(),
    );
    let whole = ParquetMetaDataBuilder::new(file)
        .set_row_groups(metadata.row_groups().to_vec())
        .set_column_index(metadata.column_index().cloned())
        .set_offset_index(metadata.offset_index().cloned());
    Arc::new(whole.build())
}

/// The start of a row group as the Parquet reader computes it.
pub fn first_byte(group: &RowGroupMetaData) -> i64 {
    let Some(first) = group.columns().first() else { return 0 };
    first.dictionary_page_offset().unwrap_or(first.data_page_offset())
}

fn metadata_length(end: &[u8], size: u64) -> Result<u64, String> {
    let Some((_, [a, b, c, d, magic @ ..])) = end.split_last_chunk::<8>() else {
        return Err("it is too short".to_owned());
    };
    match magic {
        b"PAR1" => (),
        b"PARE" => return Err("it is encrypted".to_owned()),
        _ => return Err("it does not end with Parquet's magic number".to_owned()),
    }
    let length = u64::from(u32::from_le_bytes([*a, *b, *c, *d]));
    if length + TRAILER > size {
        return Err(format!("its footer's length is {length} bytes, but the file has {size}"));
    }
    Ok(length)
}

fn check_row_groups(footer: &ParquetMetaData, size: u64) -> Result<(), String> {
    for (index, group) in footer.row_groups().iter().enumerate() {
        let rows = group.num_rows();
        if rows < 0 {
            return Err(format!("row group {index} has {rows} rows"));
        }
        for column in group.columns() {
            let start = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
            let length = column.compressed_size();
            let end = start.checked_add(length).filter(|_| start >= 0 && length >= 0);
            let name = column.column_path().string();
            if end.is_none_or(|end| end as u64 > size) {
                return Err(format!(
                    "column `{name}` of row group {index} lies beyond the end of the file"
                ));
            }
            let values = column.num_values();
            // Outside of lists a column has one value for each row, null or not.
            if column.column_descr().max_rep_level() == 0 && values != rows {
                return Err(format!(
                    "column `{name}` of row group {index} has {values} values, and the row group has {rows} rows"
                ));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_the_metadata_is_checked() {
        let end = |length: u32| [&length.to_le_bytes()[..], b"PAR1"].concat();
        assert_eq!(metadata_length(&end(92), 100), Ok(92));
        assert!(metadata_length(&end(93), 100).is_err());
        assert!(metadata_length(&end(u32::MAX), 100).is_err());
        assert!(metadata_length(b"....PAR2", 100).unwrap_err().contains("end"));
        assert!(metadata_length(b"....PARE", 100).unwrap_err().contains("encrypted"));
    }
}
