//! The steps from the SQL of a query to its stages and the driver's part.

use std::sync::Arc;

use snowmelt_execute::operators::with_faster_operators;
use snowmelt_execute::scan::S3Settings;
use snowmelt_execute::udf::UdfPool;
use snowmelt_types::{Code, ErrorReport};

use crate::rules::table_functions;
use crate::spec::QuerySpec;
use crate::sql::{self, ResultKind};
use crate::stages::{Cut, Exchanges, cut, early_results, streams};
use crate::tables::{self, TableInfo, formats, read_calls};
use crate::{Error, Result, session};

/// A query that is planned and cut.
pub(crate) struct PreparedQuery {
    pub(crate) result_kind: ResultKind,
    pub(crate) cut: Cut,
    pub(crate) tables: Vec<TableInfo>,
    /// The UDFs that the driver's part calls.
    pub(crate) pool: Arc<UdfPool>,
    pub(crate) s3: S3Settings,
}

/// Parses, checks, optimises and cuts a query. Reads only the footers or the beginnings of its
/// files.
///
/// # Errors
/// Errors of the SQL or of its tables' locations.
pub(crate) async fn prepare(spec: &QuerySpec) -> Result<PreparedQuery> {
    spec.exchange.check().map_err(|report| Error::Task(Box::new(report)))?;
    let mut statement = sql::parse(&spec.sql, &spec.params, &spec.pivots)?;
    if statement.unlisted.is_some() {
        let message = "the values of a PIVOT are not known before the query runs";
        let report = ErrorReport::new(Code::PLAN_UNSUPPORTED, message);
        return Err(Error::Sql(Box::new(report.hint("list them: ON c IN ('a', 'b')"))));
    }
    let csv = formats::options(&spec.csv).map_err(|report| Error::Setting(Box::new(report)))?;
    let reads = read_calls::prepare(&mut statement, &spec.udfs, &csv, &spec.sql)?;
    table_functions::prepare(&mut statement, &spec.udfs, &spec.sql)?;
    let pool = UdfPool::of_driver();
    let session = session::planning(spec, &pool)?;
    let s3 = S3Settings::new(&spec.aws).with_http(&spec.http_sources);
    let tables = tables::register(&session, &statement, &reads, spec, &csv, &s3).await?;
    let physical = session::physical_plan(&session, &statement, spec).await?;
    let config = session.copied_config();
    let finish = |plan| session::finish(plan, &config);
    let exchanges = Exchanges {
        options: &spec.exchange,
        folder: &spec.exchange_folder,
        range_bytes: spec.range_sort_bytes,
    };
    let mut cut = cut(physical, &config, exchanges, &finish)?;
    early_results::mark(&cut);
    if spec.exchange.by_streams() {
        streams::choose(&mut cut.stages);
    }
    cut.driver = with_faster_operators(cut.driver)?;
    Ok(PreparedQuery { result_kind: statement.result_kind, cut, tables, pool, s3 })
}
