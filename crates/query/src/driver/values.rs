//! The values of PIVOTs that list none: the columns of such a query are known once another query, of
//! the distinct values, has run.
//!
//! Invariant: both queries read the same versions of the same files, or the query fails.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::AsArray;
use arrow::compute::cast;
use arrow::datatypes::DataType;
use snowmelt_api::Profile;
use snowmelt_plan::query::{PlannedQuery, plan, unlisted};
use snowmelt_plan::spec::QuerySpec;
use snowmelt_plan::tables::TableInfo;
use snowmelt_types::{ByteSize, Code, ErrorReport};

use super::answer::clean;
use super::runner::{NumberedRunner, RunOptions};
use super::{QueryAnswer, Reporter, TaskRunner};
use crate::{Error, Result};

/// The most values of one column.
const MAX_VALUES: usize = 10_000;

/// The most bytes of the values of one column.
const MAX_VALUE_BYTES: usize = 1 << 20;

/// A query whose PIVOTs have their values, and the queries that found these.
pub struct ListedQuery {
    spec: QuerySpec,
    runner: Arc<dyn TaskRunner>,
    tables: Vec<TableInfo>,
    before: Vec<Profile>,
}

impl ListedQuery {
    /// Finds the values of a query's PIVOTs. Runs nothing if it has none, or all are listed.
    ///
    /// # Errors
    /// Errors of the SQL; errors of the queries that find the values; too many values.
    pub async fn find(
        spec: QuerySpec,
        runner: Arc<dyn TaskRunner>,
        reporter: &Arc<dyn Reporter>,
        options: RunOptions,
    ) -> Result<Self> {
        let mut listed = Self { spec, runner, tables: Vec::new(), before: Vec::new() };
        while let Some(sql) = unlisted(&listed.spec)? {
            let values = listed.run(&sql, reporter, options).await?;
            listed.spec.pivots.insert(sql, values);
        }
        Ok(listed)
    }

    /// Plans the query.
    ///
    /// # Errors
    /// Errors of the SQL or of its tables; a file changed since the values were found.
    pub async fn plan(&self) -> Result<PlannedQuery> {
        let planned = plan(&self.spec).await?;
        self.check(&planned.tables)?;
        Ok(planned)
    }

    /// Starts the query, which [`ListedQuery::plan`] has planned.
    ///
    /// # Errors
    /// The errors of [`QueryAnswer::start`].
    pub async fn start(
        self,
        planned: PlannedQuery,
        reporter: Arc<dyn Reporter>,
        options: RunOptions,
    ) -> Result<QueryAnswer> {
        let answer = QueryAnswer::start(planned, self.runner, reporter, options).await?;
        Ok(answer.after(self.before))
    }

    async fn run(
        &mut self,
        sql: &str,
        reporter: &Arc<dyn Reporter>,
        options: RunOptions,
    ) -> Result<Vec<String>> {
        let folder = &self.spec.exchange_folder;
        let finding = QuerySpec {
            sql: sql.to_owned(),
            params: Default::default(),
            exchange_folder: format!("{folder}/values-{}", self.before.len()),
            accepted: Instant::now(),
            packages: Default::default(),
            ..self.spec.clone()
        };
        let planned = match plan(&finding).await {
            Ok(planned) => planned,
            // The error of the query itself has the place in its text.
            Err(error) => return Err(self.own_error(sql).await.unwrap_or(error)),
        };
        self.check(&planned.tables)?;
        self.tables.extend(planned.tables.iter().cloned());
        let cleaner = planned.cleaner();
        let tasks = planned.tasks()?.len() as u32;
        let runner = Arc::clone(&self.runner);
        let reporter = Arc::clone(reporter);
        let mut answer = QueryAnswer::start(planned, runner, reporter, options).await?;
        let values = values(&mut answer).await;
        let is_whole = values.is_ok() && answer.is_whole();
        let lists = clean(cleaner.as_ref(), is_whole).await;
        self.before.push(answer.finish_cleaned(lists));
        self.runner = Arc::new(NumberedRunner::new(Arc::clone(&self.runner), tasks));
        values
    }

    /// The error of the query itself, if any values stood for those that are not known.
    async fn own_error(&self, sql: &str) -> Option<Error> {
        let mut spec = self.spec.clone();
        spec.pivots.insert(sql.to_owned(), vec![String::new()]);
        while let Ok(Some(other)) = unlisted(&spec) {
            spec.pivots.insert(other, vec![String::new()]);
        }
        plan(&spec).await.err()
    }

    /// Fails if a table has other files than before.
    fn check(&self, tables: &[TableInfo]) -> Result<()> {
        let versions = |tables: &[TableInfo], name: &str| -> BTreeSet<u64> {
            tables.iter().filter(|table| table.name == name).map(|table| table.version).collect()
        };
        for TableInfo { name, .. } in &self.tables {
            let now = versions(tables, name);
            if !now.is_empty() && now != versions(&self.tables, name) {
                return Err(Error::FileChanged { file: name.clone() });
            }
        }
        Ok(())
    }
}

/// The values of an answer, sorted.
async fn values(answer: &mut QueryAnswer) -> Result<Vec<String>> {
    let mut found = BTreeSet::new();
    let mut bytes = 0;
    while let Some(batch) = answer.next().await.transpose()? {
        let column = cast(batch.column(0), &DataType::Utf8).map_err(Error::from)?;
        for value in column.as_string::<i32>().iter().flatten() {
            bytes += value.len();
            found.insert(value.to_owned());
        }
        if found.len() > MAX_VALUES || bytes > MAX_VALUE_BYTES {
            return Err(too_many());
        }
    }
    Ok(found.into_iter().collect())
}

fn too_many() -> Error {
    let most = ByteSize(MAX_VALUE_BYTES as u64);
    let message = format!("a column of PIVOT has more than {MAX_VALUES} values, or {most} of them");
    let report = ErrorReport::new(Code::SQL_VALUE, message)
        .hint("each value becomes a column: list those that you need, ON c IN ('a', 'b')");
    Error::Sql(Box::new(report))
}
