//! The locations that a query names, found without parsing its SQL.
//!
//! The SQL is parsed in the driver, which could then ask for any location. So a location counts
//! only if it is one of the query's tables, or stands in quotation marks in its text.

use snowmelt_wire::Drive;

/// The text of a query, to look locations up in.
#[derive(Debug)]
pub(super) struct Locations {
    sql: String,
    tables: Vec<String>,
}

impl Locations {
    pub(super) fn of(drive: &Drive) -> Self {
        Self { sql: drive.sql.clone(), tables: drive.tables.values().cloned().collect() }
    }

    /// True if the query names this local location, with or without `file://`.
    pub(super) fn name(&self, location: &str) -> bool {
        let given = |table: &String| table.strip_prefix("file://").unwrap_or(table) == location;
        let quoted = |mark: &char| self.quotes(location, *mark);
        let named = self.tables.iter().any(given) || ['\'', '"', '`'].iter().any(quoted);
        // A separator that the SQL quotes for a function of text is no folder to search.
        named && !location.trim_matches('/').is_empty()
    }

    /// True if the query can name a bucket: only then its driver and workers have a network.
    pub(super) fn in_buckets(&self) -> bool {
        let names = |text: &String| text.contains("s3://") || text.contains("s3a://");
        names(&self.sql) || self.tables.iter().any(names)
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
    fn a_location_counts_where_the_query_quotes_it_or_names_it_as_a_table() {
        let locations = Locations {
            sql: "select * from 'data/*.parquet', \"it's\", 'o''clock', 'file:///x'".to_owned(),
            tables: vec!["t.parquet".to_owned(), "file:///y".to_owned()],
        };
        for named in ["data/*.parquet", "it's", "o'clock", "/x", "t.parquet", "/y"] {
            assert!(locations.name(named), "{named}");
        }
        for other in ["/", "data", "*.parquet", "/etc", "", "t"] {
            assert!(!locations.name(other), "{other}");
        }
    }

    #[test]
    fn only_a_query_that_names_s3_has_a_network() {
        let of = |sql: &str| Locations { sql: sql.to_owned(), tables: Vec::new() }.in_buckets();
        assert!(of("select * from 's3://bucket/x'") && !of("select * from 'bucket/x'"));
    }
}
