//! Columns from folder names (Hive partitioning): `year=2024/month=5/part.parquet`.
//!
//! As in DuckDB, folders are columns if the folders of all files have the same keys. The type is
//! BIGINT or DATE if every value is one, and VARCHAR otherwise. A column that the files themselves
//! have is read from the files.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, Statistics};
use datafusion::scalar::ScalarValue;
use object_store::path::Path;

/// The value that Hive writes for null.
const NULL: &str = "__HIVE_DEFAULT_PARTITION__";

/// The columns of a table's folders.
#[derive(Clone, Debug, Default)]
pub(crate) struct FolderColumns {
    pub(crate) columns: Vec<FieldRef>,
    /// The values of the columns, by file and then by column.
    pub(crate) values: Vec<Vec<ScalarValue>>,
}

impl FolderColumns {
    /// Finds the columns in the paths of a table's files.
    pub(crate) fn find<'a>(paths: impl Iterator<Item = &'a Path>, schema: &Schema) -> Self {
        let files: Vec<Vec<(String, String)>> = paths.map(pairs).collect();
        let keys = |file: &[(String, String)]| -> Vec<String> {
            file.iter().map(|(key, _)| key.clone()).collect()
        };
        let Some(first) = files.first().map(|file| keys(file)) else { return Self::default() };
        if files.iter().any(|file| keys(file) != first) {
            return Self::default();
        }
        let mut found = Self { columns: Vec::new(), values: vec![Vec::new(); files.len()] };
        for (index, key) in first.iter().enumerate() {
            let again = first[..index].contains(key);
            if !again && schema.fields().find(key).is_none() {
                found.add(key, files.iter().map(|file| file[index].1.as_str()));
            }
        }
        found
    }

    /// Adds a column with the name of each row's file. `names` are the files' names. False if the
    /// table has such a column already.
    pub(crate) fn add_names(&mut self, column: &str, names: Vec<String>, schema: &Schema) -> bool {
        let same = |field: &FieldRef| field.name().eq_ignore_ascii_case(column);
        if schema.fields().iter().chain(&self.columns).any(same) {
            return false;
        }
        self.values.resize(names.len(), Vec::new());
        for (file, name) in self.values.iter_mut().zip(names) {
            file.push(ScalarValue::Utf8View(Some(name)));
        }
        self.columns.push(Arc::new(Field::new(column, DataType::Utf8View, true)));
        true
    }

    fn add<'a>(&mut self, key: &str, values: impl Iterator<Item = &'a str> + Clone) {
        let data_type = common_type(values.clone());
        for (file, value) in self.values.iter_mut().zip(values) {
            file.push(typed(value, &data_type));
        }
        self.columns.push(Arc::new(Field::new(key, data_type, true)));
    }

    /// Returns the statistics of a file, extended by the columns of its folders.
    pub(crate) fn statistics(&self, file: usize, statistics: &Statistics) -> Statistics {
        let mut statistics = statistics.clone();
        for value in self.values.get(file).into_iter().flatten() {
            let rows = statistics.num_rows;
            let has_rows = matches!(rows, Precision::Exact(rows) if rows > 0);
            let column = match value.is_null() {
                // A file without rows has no value of its folder.
                _ if !has_rows => ColumnStatistics::new_unknown(),
                true => ColumnStatistics { null_count: rows, ..ColumnStatistics::new_unknown() },
                false => ColumnStatistics {
                    null_count: Precision::Exact(0),
                    min_value: Precision::Exact(value.clone()),
                    max_value: Precision::Exact(value.clone()),
                    ..ColumnStatistics::new_unknown()
                },
            };
            statistics.column_statistics.push(column);
        }
        statistics
    }
}

/// The `key=value` folders of a path.
fn pairs(path: &Path) -> Vec<(String, String)> {
    let parts: Vec<&str> = path.as_ref().split('/').collect();
    let folders = parts.iter().take(parts.len().saturating_sub(1));
    let pair = |folder: &&str| {
        let (key, value) = folder.split_once('=')?;
        (!key.is_empty() && !value.contains('=')).then(|| (plain(key), plain(value)))
    };
    folders.filter_map(pair).collect()
}

/// Decodes a name twice: Hive percent-encodes it, and the plan encodes local paths again.
fn plain(text: &str) -> String {
    let once = |text: &str| -> String {
        let mut bytes = Vec::with_capacity(text.len());
        let mut rest = text.as_bytes();
        while let Some((byte, behind)) = rest.split_first() {
            let hex = behind.get(..2).and_then(|two| std::str::from_utf8(two).ok());
            match hex.filter(|_| *byte == b'%').and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
                Some(decoded) => {
                    bytes.push(decoded);
                    rest = &behind[2..];
                }
                None => {
                    bytes.push(*byte);
                    rest = behind;
                }
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    };
    once(&once(text))
}

fn common_type<'a>(values: impl Iterator<Item = &'a str> + Clone) -> DataType {
    let all = |data_type: &DataType| {
        let mut some = values.clone().filter(|value| *value != NULL).peekable();
        some.peek().is_some()
            && some.all(|text| {
                let value = typed(text, data_type);
                // `007` is text: as a number it would lose its zeros.
                !value.is_null() && value.to_string() == text
            })
    };
    let types = [DataType::Int64, DataType::Date32];
    types.into_iter().find(all).unwrap_or(DataType::Utf8View)
}

fn typed(text: &str, data_type: &DataType) -> ScalarValue {
    let null = || ScalarValue::try_from(data_type).unwrap_or(ScalarValue::Null);
    if text == NULL {
        return null();
    }
    ScalarValue::try_from_string(text.to_owned(), data_type).unwrap_or_else(|_| null())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(paths: &[&str]) -> Vec<(String, DataType)> {
        let paths: Vec<Path> = paths.iter().map(|path| Path::from(*path)).collect();
        let own = Schema::new(vec![Field::new("own", DataType::Int64, true)]);
        let columns = FolderColumns::find(paths.iter(), &own);
        let column = |field: &FieldRef| (field.name().clone(), field.data_type().clone());
        columns.columns.iter().map(column).collect()
    }

    #[test]
    fn types_are_those_of_all_values() {
        let found = find(&[
            "t/year=2024/day=2024-01-02/code=007/own=1/a.parquet",
            "t/year=__HIVE_DEFAULT_PARTITION__/day=2024-01-03/code=8/own=2/b.parquet",
        ]);
        let expected =
            [("year", DataType::Int64), ("day", DataType::Date32), ("code", DataType::Utf8View)];
        assert_eq!(found, expected.map(|(name, kind)| (name.to_owned(), kind)));
    }

    #[test]
    fn folders_with_different_keys_are_only_folders() {
        assert!(find(&["t/a=1/x.parquet", "t/b=1/x.parquet"]).is_empty());
        assert!(find(&["t/a=1/x.parquet", "t/x.parquet"]).is_empty());
        assert!(find(&["t/x.parquet"]).is_empty());
    }

    #[test]
    fn names_are_decoded() {
        assert_eq!(plain("a%20b%25"), "a b%");
        assert_eq!(plain("50%"), "50%");
        assert_eq!(plain("%2520"), " ");
    }
}
