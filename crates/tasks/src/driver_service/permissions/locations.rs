//! The locations that a query names, found without parsing its SQL.
//!
//! The SQL is parsed in the driver, which could then request any location. So a location counts
//! only if it is one of the query's tables, or stands in quotation marks at a place of the SQL
//! where a table can stand.

use snowmelt_wire::Drive;

use super::quotations;

/// The locations that a query can name.
#[derive(Debug)]
pub(in crate::driver_service) struct Locations {
    sql: String,
    /// Quoted texts in the SQL that can be locations; `None` where any quoted text may be one.
    quoted: Option<Vec<String>>,
    tables: Vec<String>,
    /// True if the query's stages exchange rows through a bucket.
    exchange: bool,
    /// True if the query may read files of HTTP servers.
    http: bool,
}

/// The beginnings of locations in buckets.
const BUCKETS: [&str; 2] = ["s3://", "s3a://"];
/// The beginnings of locations on HTTP servers.
const SERVERS: [&str; 2] = ["https://", "http://"];

impl Locations {
    pub(in crate::driver_service) fn of(drive: &Drive) -> Self {
        let named = Self::new(&drive.sql, drive.tables.values().cloned().collect());
        let http = !drive.http_sources.is_empty();
        Self { exchange: drive.exchange.by_objects(), http, ..named }
    }

    fn new(sql: &str, tables: Vec<String>) -> Self {
        Self {
            sql: sql.to_owned(),
            quoted: quotations::tables(sql),
            tables,
            exchange: false,
            http: false,
        }
    }

    /// Returns whether the query names this local location, with or without `file://`.
    pub(in crate::driver_service) fn name(&self, location: &str) -> bool {
        let is = |named: &String| named.strip_prefix("file://").unwrap_or(named) == location;
        let in_sql = || match &self.quoted {
            Some(quoted) => quoted.iter().any(is),
            None => ['\'', '"', '`'].iter().any(|mark| self.quotes(location, *mark)),
        };
        let named = self.tables.iter().any(is) || in_sql();
        // A separator that the SQL quotes for a text function is not a folder to search.
        named && !location.trim_matches('/').is_empty()
    }

    /// Returns whether the query can name a bucket, as a table or for its exchange, or a file on an
    /// HTTP server where the operator lists any: only then its driver and workers have a network.
    pub(in crate::driver_service) fn need_network(&self) -> bool {
        let servers = SERVERS.iter().filter(|_| self.http);
        let schemes: Vec<&str> = BUCKETS.iter().chain(servers).copied().collect();
        let is = |named: &String| schemes.iter().any(|scheme| named.starts_with(scheme));
        let in_sql = || match &self.quoted {
            Some(quoted) => quoted.iter().any(is),
            None => schemes.iter().any(|scheme| self.sql.contains(scheme)),
        };
        self.exchange || self.tables.iter().any(is) || in_sql()
    }

    /// Returns the most locations that the query can name.
    pub(in crate::driver_service) fn most(&self) -> usize {
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
    fn only_a_query_that_names_s3_or_a_server_has_a_network() {
        let of = |sql: &str| Locations::new(sql, Vec::new()).need_network();
        assert!(of("select * from 's3://bucket/x'") && !of("select * from 'bucket/x'"));
        assert!(!of("select 's3://bucket/x' from 'bucket/x'"));
        assert!(of("select e'\\'' from 's3a://bucket/x'"));
        assert!(Locations::new("select 1 from t", vec!["s3://b/x".to_owned()]).need_network());
        let http = |sql: &str, http| Locations { http, ..Locations::new(sql, Vec::new()) };
        let sql = "select * from read_csv('https://x/a.csv')";
        assert!(http(sql, true).need_network() && !http(sql, false).need_network());
        assert!(!http("select 'https://x/a' from 'a'", true).need_network());
    }
}
