//! Conversion of files with an older layout, which had one table for each type of record.
//!
//! Invariant: all tables are converted and removed in one transaction. A crash leaves the file
//! unchanged.

use ::redb::{
    Database, ReadableDatabase, ReadableTable, Table, TableDefinition, TableHandle,
    WriteTransaction,
};
use bytes::Bytes;

use super::rows::WriteTables;
use super::write_failure::WriteFailure;
use crate::KeyVersion;
use crate::apply::StoreRows;

type Rowed<'a> = Table<'a, &'static str, &'static [u8]>;

/// The conversion of an older layout.
pub trait Convert: std::fmt::Debug + Send + Sync {
    /// The tables of the older layout, all of them from text to bytes. A file that has one of them
    /// is converted.
    fn tables(&self) -> &'static [&'static str];

    /// The keys and values that replace a row.
    fn entries(
        &self,
        table: &str,
        key: &str,
        value: &[u8],
        older: &Older<'_>,
    ) -> Vec<(String, Vec<u8>)>;
}

/// The rows of an older layout, while they are converted.
pub struct Older<'a> {
    tables: Vec<(&'static str, Rowed<'a>)>,
}

impl Older<'_> {
    /// A row; `None` if it is missing or cannot be read.
    pub fn row(&self, table: &str, key: &str) -> Option<Vec<u8>> {
        let (_, rows) = self.tables.iter().find(|(name, _)| *name == table)?;
        rows.get(key).ok().flatten().map(|value| value.value().to_vec())
    }
}

/// Converts a file that has tables of an older layout.
pub(super) fn convert(database: &Database, how: &dyn Convert) -> Result<(), ::redb::Error> {
    let read = database.begin_read()?;
    let present: Vec<String> = read.list_tables()?.map(|table| table.name().to_owned()).collect();
    drop(read);
    let is_present = |name: &&&str| present.iter().any(|table| table == **name);
    let tables: Vec<&'static str> = how.tables().iter().filter(is_present).copied().collect();
    if tables.is_empty() {
        return Ok(());
    }
    let write = database.begin_write()?;
    let converted = rows(&write, &tables, how)?;
    for name in &tables {
        write.delete_table(definition(name))?;
    }
    write.commit()?;
    tracing::info!(entries = converted, "the state was converted from an older layout");
    Ok(())
}

fn rows(
    write: &WriteTransaction,
    tables: &[&'static str],
    how: &dyn Convert,
) -> Result<u64, ::redb::Error> {
    let mut opened = WriteTables::of(write)?;
    let open = |name: &&'static str| write.open_table(definition(name)).map(|rows| (*name, rows));
    let older = Older { tables: tables.iter().map(open).collect::<Result<_, _>>()? };
    let revision = opened.revision().map_err(error)?.next();
    let mut converted = 0;
    for (name, table) in &older.tables {
        for row in table.iter()? {
            let (key, value) = row?;
            for (key, value) in how.entries(name, key.value(), value.value(), &older) {
                let value = Bytes::from(value);
                opened.put(&key, &value, KeyVersion(revision.0), None).map_err(error)?;
                converted += 1;
            }
        }
    }
    opened.set_revision(revision).map_err(error)?;
    Ok(converted)
}

fn definition(name: &'static str) -> TableDefinition<'static, &'static str, &'static [u8]> {
    TableDefinition::new(name)
}

fn error(failed: WriteFailure) -> ::redb::Error {
    match failed {
        WriteFailure::File(error) => *error,
        // No operation expects anything.
        WriteFailure::Refused(error) => ::redb::Error::Corrupted(error.to_string()),
    }
}
