//! SUMMARIZE: a row for each column of a table or query, with its smallest and largest value, how many
//! values differ, and how they are spread.
//!
//! All values are aggregates of one pass over the rows. Values that a type does not have are null.

use arrow::datatypes::DataType;
use datafusion::common::{Column, plan_err};
use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::functions::core::expr_fn::nullif;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, SortExpr, cast, lit};
use datafusion::scalar::ScalarValue;
use snowmelt_execute::sql_semantics::sql_name;

/// The places in the order of the values that are shown, with the names of their columns.
const QUANTILES: [(&str, f64); 3] = [("q25", 0.25), ("q50", 0.5), ("q75", 0.75)];

const PLACE: &str = "place";

const ROWS: &str = "rows";

/// The summary of a plan's rows.
pub(crate) fn summary(plan: LogicalPlan, state: &SessionState) -> Result<LogicalPlan> {
    let mut summing = Summing { state, aggregates: Vec::new() };
    let count = summing.call("count", vec![lit(1_i64)])?;
    summing.aggregates.push(count.alias(ROWS));
    let fields = plan.schema().iter().enumerate();
    let rows = fields.map(|(place, (table, field))| {
        let column = Column::new(table.cloned(), field.name());
        summing.row(place, &column, field.data_type())
    });
    let rows = rows.collect::<Result<Vec<_>>>()?;
    let aggregates = summing.aggregates;
    let all = LogicalPlanBuilder::from(plan).aggregate(Vec::<Expr>::new(), aggregates)?.build()?;
    let mut rows = rows.into_iter();
    let row = |row: Vec<Expr>| LogicalPlanBuilder::from(all.clone()).project(row)?.build();
    let Some(first) = rows.next() else { return Ok(all) };
    let mut summary = LogicalPlanBuilder::from(row(first)?);
    for next in rows {
        summary = summary.union(row(next)?)?;
    }
    let shown = summary.schema().columns().into_iter().filter(|column| column.name != PLACE);
    let shown: Vec<Expr> = shown.map(Expr::Column).collect();
    let by_place = SortExpr::new(Expr::Column(Column::new_unqualified(PLACE)), true, false);
    summary.sort([by_place])?.project(shown)?.build()
}

struct Summing<'a> {
    state: &'a SessionState,
    aggregates: Vec<Expr>,
}

impl Summing<'_> {
    fn call(&self, name: &str, args: Vec<Expr>) -> Result<Expr> {
        match self.state.aggregate_functions().get(name) {
            Some(function) => Ok(function.call(args)),
            None => plan_err!("there is no {name}"),
        }
    }

    /// Adds an aggregate of a column, and names it.
    fn add(&mut self, place: usize, name: &str, aggregate: Expr) -> Expr {
        let name = format!("{name} {place}");
        self.aggregates.push(aggregate.alias(name.clone()));
        Expr::Column(Column::new_unqualified(name))
    }

    fn row(&mut self, place: usize, column: &Column, data_type: &DataType) -> Result<Vec<Expr>> {
        let value = || Expr::Column(column.clone());
        let text = |of: Expr| cast(of, DataType::Utf8);
        let is_plain = !data_type.is_nested() && !data_type.is_null();
        let mut row = vec![
            lit(place as i64).alias(PLACE),
            lit(column.name.as_str()).alias("column_name"),
            lit(sql_name(data_type)).alias("column_type"),
        ];
        for name in ["min", "max"] {
            let extreme = match is_plain {
                true => text(self.add(place, name, self.call(name, vec![value()])?)),
                false => lit(ScalarValue::Utf8(None)),
            };
            row.push(extreme.alias(name));
        }
        let differing = match is_plain {
            true => {
                let differing = self.call("approx_distinct", vec![text(value())])?;
                cast(self.add(place, "unique", differing), DataType::Int64)
            }
            false => lit(ScalarValue::Int64(None)),
        };
        row.push(differing.alias("approx_unique"));
        self.spread(place, data_type.is_numeric().then(value), &mut row)?;
        let present = self.call("count", vec![value()])?;
        let present = self.add(place, "present", present);
        row.push(Expr::Column(Column::new_unqualified(ROWS)).alias("count"));
        row.push(null_percentage(present).alias("null_percentage"));
        Ok(row)
    }

    /// How the numbers of a column are spread.
    fn spread(&mut self, place: usize, number: Option<Expr>, row: &mut Vec<Expr>) -> Result<()> {
        let number = number.map(|number| cast(number, DataType::Float64));
        let deviations = [("avg", "avg", None), ("std", "stddev", None)];
        let quantiles = QUANTILES.map(|(name, part)| (name, "approx_percentile_cont", Some(part)));
        for (name, function, part) in deviations.into_iter().chain(quantiles) {
            let spread = match &number {
                Some(number) => {
                    let args = [number.clone()].into_iter().chain(part.map(lit)).collect();
                    let aggregate = self.call(function, args)?;
                    self.add(place, name, aggregate)
                }
                None => lit(ScalarValue::Float64(None)),
            };
            row.push(spread.alias(name));
        }
        Ok(())
    }
}

/// How many of a hundred values are null.
fn null_percentage(present: Expr) -> Expr {
    let double = |of: Expr| cast(of, DataType::Float64);
    let rows = double(Expr::Column(Column::new_unqualified(ROWS)));
    let nulls = (rows.clone() - double(present)) * lit(100.0);
    // Of no rows, it is null.
    let known = nullif(rows, lit(0.0));
    cast(nulls / known, DataType::Decimal128(9, 2))
}
