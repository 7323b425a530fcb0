//! TABLESAMPLE: each row with a probability, or a number of rows.
//!
//! Every method chooses rows one by one, as BERNOULLI does: SYSTEM may choose them in this way,
//! too. With REPEATABLE the values of a row say whether it is in the sample, so that neither the order
//! of rows nor their division between workers matters.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Query, SetExpr, TableAlias, TableFactor, TableSample, TableSampleKind,
    TableSampleQuantity, TableSampleSeed, TableSampleUnit, TableWithJoins, Value, VisitMut,
    VisitorMut,
};

use super::pivot::template;

/// The function of a seed and of the columns of a row by which samples that can be repeated choose
/// rows. Its columns are written where they are known ([`super::using`]).
pub(crate) const PLACE: &str = "sample_place";

/// Returns the reason why a sample is not supported, with a hint. `None` for other tables.
fn refused(table: &TableFactor) -> Option<(&'static str, &'static str)> {
    const HINT: &str =
        "write TABLESAMPLE 10 PERCENT or TABLESAMPLE (100 ROWS), or WHERE random() < 0.1";
    let sample = sample(table)?;
    if sample.seed.as_ref().is_some_and(|seed| seed_of(seed).is_none()) {
        return Some(("the seed of a sample is not a whole number", "write REPEATABLE (42)"));
    }
    amount(sample).is_none().then_some(("this form of TABLESAMPLE is not supported", HINT))
}

fn sample(table: &TableFactor) -> Option<&TableSample> {
    let (TableFactor::Table { sample, .. } | TableFactor::Derived { sample, .. }) = table else {
        return None;
    };
    match sample.as_ref()? {
        TableSampleKind::BeforeTableAlias(sample) | TableSampleKind::AfterTableAlias(sample) => {
            Some(sample)
        }
    }
}

/// The text of a seed.
fn seed_of(seed: &TableSampleSeed) -> Option<&str> {
    let Value::Number(digits, _) = &seed.value.value else { return None };
    digits.parse::<i64>().is_ok().then_some(digits.as_str())
}

/// The unit, and the text of the number.
fn amount(sample: &TableSample) -> Option<(TableSampleUnit, &str)> {
    let TableSample { quantity: Some(TableSampleQuantity { value, unit, .. }), .. } = sample else {
        return None;
    };
    if sample.bucket.is_some() || sample.offset.is_some() {
        return None;
    }
    let Expr::Value(value) = value else { return None };
    let Value::Number(digits, _) = &value.value else { return None };
    let unit = match unit {
        Some(unit) => *unit,
        // PostgreSQL's methods take a percentage; DuckDB's number of rows has no method.
        None if sample.name.is_some() => TableSampleUnit::Percent,
        None => TableSampleUnit::Rows,
    };
    Some((unit, digits))
}

/// Writes the samples of a query as subqueries.
///
/// # Errors
/// The reason why a sample is not supported, with a hint. The planner would read the whole table.
pub(crate) fn write(query: &mut Query) -> Result<(), (&'static str, &'static str)> {
    struct SampleWriter;
    impl VisitorMut for SampleWriter {
        type Break = (&'static str, &'static str);

        fn post_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<Self::Break> {
            if let Some(wrong) = refused(table) {
                return ControlFlow::Break(wrong);
            }
            if let Some(sampled) = sampled(table) {
                *table = sampled;
            }
            ControlFlow::Continue(())
        }
    }
    match VisitMut::visit(query, &mut SampleWriter) {
        ControlFlow::Break(wrong) => Err(wrong),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// A subquery of the rows of a sample, with the table's name.
fn sampled(table: &TableFactor) -> Option<TableFactor> {
    let sample = sample(table)?;
    let (unit, digits) = amount(sample)?;
    let place = match sample.seed.as_ref().and_then(seed_of) {
        Some(seed) => format!("{PLACE}({seed})"),
        None => "random()".to_owned(),
    };
    let sql = match unit {
        TableSampleUnit::Percent => format!("select * from t where {place} * 100 < {digits}"),
        TableSampleUnit::Rows => format!("select * from t order by {place} limit {digits}"),
    };
    let (mut query, mut select) = template(&sql).ok()?;
    let mut whole = table.clone();
    let alias = match &mut whole {
        TableFactor::Table { sample, alias, name, .. } => {
            *sample = None;
            let alias = alias.take();
            alias.or_else(|| {
                let name = name.0.last()?.as_ident()?.clone();
                Some(TableAlias { explicit: true, name, columns: Vec::new(), at: None })
            })
        }
        TableFactor::Derived { sample, alias, .. } => {
            *sample = None;
            alias.clone()
        }
        _ => None,
    };
    select.from = vec![TableWithJoins { relation: whole, joins: Vec::new() }];
    query.body = Box::new(SetExpr::Select(Box::new(select)));
    Some(TableFactor::Derived { lateral: false, subquery: Box::new(query), alias, sample: None })
}
