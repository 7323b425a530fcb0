//! Plans a query: parses the SQL, finds the tables' files, optimises the plan and cuts it into
//! stages.

mod bucket;
mod cut;
mod explain;
mod files;
mod footer;
mod formats;
mod hive;
mod info;
mod joins;
mod leaves;
mod local;
mod location;
mod names;
mod nullable;
mod outputs;
mod planned;
mod repeat;
mod rules;
mod sendable;
mod session;
mod small;
mod split;
mod spread;
mod sql_error;
mod statement;
mod streaming;
mod table;
mod tasks;
mod text;
mod tree;
mod unify;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use snowmelt_wire::Signature;

pub(crate) use cut::Stage;
pub(crate) use footer::{FooterError, bytes as read_bytes, catch_panic, read as read_footer};
pub(crate) use info::TableInfo;
pub(crate) use leaves::{count, file_scan, is_partition_wise, of_union, visit_scans};
pub use local::{HostFiles, LocalFiles};
pub(crate) use nullable::Nullable;
pub(crate) use outputs::{Outputs, TaskOutput};
pub use planned::PlannedQuery;
pub(crate) use repeat::{Repeat, repeats};
pub(crate) use session::{execution_config, function_registry};
pub(crate) use split::first_byte;
pub(crate) use tasks::{Division, reads, tasks};
pub(crate) use text::operator_line;
pub(crate) use tree::with_children;

use crate::Result;
use crate::faster::with_faster_operators;
use crate::scan::S3Settings;
use crate::udf::UdfPool;

/// Rows in a batch: DataFusion's default, and the maximum in one call of a UDF.
pub(crate) const BATCH_ROWS: usize = 8192;

/// A query and its inputs.
#[derive(Clone, Debug)]
pub struct QuerySpec {
    /// Its id, for the profile and for logs.
    pub query: String,
    /// One SELECT statement.
    pub sql: String,
    /// Table name to location: a file, a folder, a glob or an `s3://` URL of data files.
    /// Locations may also be quoted in the SQL's FROM.
    pub tables: BTreeMap<String, String>,
    /// UDFs that the SQL may call.
    pub udfs: Vec<Signature>,
    /// Access to the local files of its locations.
    pub files: Arc<dyn LocalFiles>,
    /// `AWS_*` variables, for `s3://` locations.
    pub aws: BTreeMap<String, String>,
    /// Number of workers, which is the number of partitions of each scan. At least 1.
    pub workers: u32,
    /// When the query was accepted: time zero of its profile.
    pub accepted: Instant,
    /// How long the installation of its UDFs' packages took, from `accepted` on.
    pub packages: Duration,
}

/// Parses, checks, optimises and cuts a query. Reads only the footers or the
/// beginnings of its files.
///
/// # Errors
/// Errors of the SQL or of its tables' locations, before any worker starts.
pub async fn plan(spec: &QuerySpec) -> Result<PlannedQuery> {
    let statement = statement::parse(&spec.sql)?;
    let pool = UdfPool::empty();
    let session = session::planning(spec, &pool)?;
    let s3 = S3Settings::new(&spec.aws);
    let tables = table::register(&session, &statement, spec, &s3).await?;
    let physical = session::physical_plan(&session, &statement, spec).await?;
    let config = session.copied_config();
    let finish = |plan| session::finish(plan, &config);
    let mut cut = cut::cut(physical, &config, &finish)?;
    streaming::mark(&cut);
    cut.driver = with_faster_operators(cut.driver)?;
    PlannedQuery::new(spec, statement.result_kind, cut, tables, pool, s3)
}
