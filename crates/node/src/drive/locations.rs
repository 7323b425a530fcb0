//! The locations that a query names, found without parsing its SQL.
//!
//! The SQL is parsed in the driver, which could then ask for any location. So a location counts
//! only if it is one of the query's tables, or stands in quotation marks where its text can have a
//! table.

use snowmelt_wire::Drive;

use super::quoted;

/// The locations that a query can name.
#[derive(Debug)]
pub(super) struct Locations {
    sql: String,
    /// `None` where any quoted text may be one.
    quoted: Option<Vec<String>>,
    tables: Vec<String>,
    /// True if its stages exchange rows through a bucket.
    exchange: bool,
}

impl Locations {
    pub(super) fn of(drive: &Drive) -> Self {
        let named = Self::new(&drive.sql, drive.tables.values().cloned().collect());
        Self { exchange: drive.exchange.by_objects(), ..named }
    }

    fn new(sql: &str, tables: Vec<String>) -> Self {
        Self { sql: sql.to_owned(), quoted: quoted::tables(sql), tables, exchange: false }
    }

    /// True if the query names this local location, with or without `file://`.
    pub(super) fn name(&self, location: &str) -> bool {
        let is = |named: &String| named.strip_prefix("file://").unwrap_or(named) == location;
        let in_sql = || match &self.quoted {
            Some(quoted) => quoted.iter().any(is),
            None => ['\'', '"', '`'].iter().any(|mark| self.quotes(location, *mark)),
        };
        let named = self.tables.iter().any(is) || in_sql();
        // A separator that the SQL quotes for a text function is not a folder to search.
        named && !location.trim_matches('/').is_empty()
    }

    /// True if the query can name a bucket, as a table or for its exchange: only then its driver and
    /// workers have a network.
    pub(super) fn in_buckets(&self) -> bool {
        let is = |named: &String| named.starts_with("s3://") || named.starts_with("s3a://");
        let in_sql = || match &self.quoted {
            Some(quoted) => quoted.iter().any(is),
            None => self.sql.contains("s3://") || self.sql.contains("s3a://"),
        };
        self.exchange || self.tables.iter().any(is) || in_sql()
    }

    /// The most locations that the query names.
    pub(super) fn most(&self) -> usize {
        let marks = || self.sql.matches(['\'', '"', '`']).count();
        self.tables.len() + self.quoted.as_ref().map_or_else(marks, Vec::len)
    }

    fn quotes(&self, location: &str, mark: char) -> bool {
        // Inside quotation marks, such a mark is written twice.
        let inside = location.replace(mark, &format!("{mark}{mark}"));
        ["", "file://"]
            .iter()
            .any(|scheme| self.sql.contains(&format!("{mark}{scheme}{inside}{mark}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_counts_where_the_query_has_it_as_a_table() {
        let sql = "select '/etc' from 'data/*.parquet', \"it's\", 'o''clock', 'file:///x'";
        let locations = Locations::new(sql, vec!["t.parquet".to_owned(), "file:///y".to_owned()]);
        for named in ["data/*.parquet", "it's", "o'clock", "/x", "t.parquet", "/y"] {
            assert!(locations.name(named), "{named}");
        }
        for other in ["/", "data", "*.parquet", "/etc", "", "t"] {
            assert!(!locations.name(other), "{other}");
        }
        assert_eq!(locations.most(), 6);
    }

    #[test]
    fn any_quoted_text_counts_where_only_a_parser_could_tell() {
        let locations = Locations::new("select e'\\'', '/x' from '/y', 'o''clock'", Vec::new());
        assert!(["/x", "/y", "o'clock"].iter().all(|named| locations.name(named)));
        assert!(!locations.name("/z") && locations.most() >= 3);
    }

    #[test]
    fn only_a_query_that_names_s3_has_a_network() {
        let of = |sql: &str| Locations::new(sql, Vec::new()).in_buckets();
        assert!(of("select * from 's3://bucket/x'") && !of("select * from 'bucket/x'"));
        assert!(!of("select 's3://bucket/x' from 'bucket/x'"));
        assert!(of("select e'\\'' from 's3a://bucket/x'"));
        assert!(Locations::new("select 1 from t", vec!["s3://b/x".to_owned()]).in_buckets());
    }
}
