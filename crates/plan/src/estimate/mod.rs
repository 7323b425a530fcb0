//! Estimates of the rows that operators give, for the choice between plans.
//!
//! DataFusion's own estimates know neither distinct values of Parquet columns, which have no
//! statistics of them, nor keys of several columns. Here the distinct values of a column are
//! bounded by its range and by the rows of its table, and what is unknown has a default.
//!
//! Invariant: an estimate decides only how fast a plan is, never what it returns.

mod column;
pub(crate) mod likely_tasks;
mod operator;
mod selectivity;
pub(crate) mod small_inputs;
pub(crate) mod sorts;

pub(crate) use column::ColumnEstimate;
pub(crate) use operator::estimate;
pub(crate) use operator::{Size, size};
pub(crate) use selectivity::selectivity;

/// The estimated rows and columns of an operator's output.
#[derive(Clone, Debug)]
pub(crate) struct Estimate {
    pub(crate) rows: f64,
    /// The rows of the operator's largest table before any filter, which bound the number of
    /// different keys.
    pub(crate) source_rows: f64,
    pub(crate) columns: Vec<ColumnEstimate>,
}

impl Estimate {
    /// Bytes of a row in memory.
    pub(crate) fn width(&self) -> f64 {
        self.columns.iter().map(|column| column.width).sum()
    }

    /// Reduces the estimate to `rows` rows that are chosen independently of their values.
    pub(crate) fn with_rows(mut self, rows: f64) -> Self {
        let before = self.rows;
        self.rows = rows;
        for column in &mut self.columns {
            column.distinct = distinct_of_some(column.distinct, before, rows);
        }
        self
    }

    /// Makes all columns null in a further `part` of the rows, as behind an outer join.
    fn with_nulls(mut self, part: f64) -> Self {
        for column in &mut self.columns {
            column.nulls += (1.0 - column.nulls) * part;
        }
        self
    }

    fn limit_distinct(&mut self, index: usize, most: f64) {
        if let Some(column) = self.columns.get_mut(index) {
            column.distinct = column.distinct.min(most);
        }
    }

    fn columns_at(&self, indices: &[usize]) -> Self {
        let columns = indices.iter().filter_map(|index| self.columns.get(*index).cloned());
        Self { columns: columns.collect(), ..*self }
    }

    /// A column of the output.
    pub(crate) fn column(&self, index: usize) -> ColumnEstimate {
        let unknown = || ColumnEstimate::unknown(self.rows, 8.0);
        self.columns.get(index).cloned().unwrap_or_else(unknown)
    }
}

/// The distinct values in some of the rows of a column.
pub(crate) fn distinct_of_some(distinct: f64, rows: f64, some: f64) -> f64 {
    if rows <= 0.0 || distinct <= 0.0 || some >= rows {
        return distinct.min(some.max(0.0));
    }
    let missed = (1.0 - some / rows).powf(rows / distinct);
    (distinct * (1.0 - missed)).min(some)
}

/// An input of a join on equal keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Input {
    pub(crate) rows: f64,
    pub(crate) source_rows: f64,
}

/// Rows of an inner join. `keys` are the distinct values of each key in both inputs.
///
/// The keys of one input are assumed to be among those of the other, as those of a foreign key
/// are. So there are at most as many different keys as the smaller of the two tables has rows,
/// which also bounds keys of several columns that depend on each other.
pub(crate) fn joined_rows(left: Input, right: Input, keys: &[(f64, f64)]) -> f64 {
    let each = keys.iter().map(|(left, right)| left.max(*right).max(1.0));
    let largest = each.clone().fold(1.0, f64::max);
    let bound = left.source_rows.min(right.source_rows).max(1.0);
    let several = match keys.len() {
        1 => largest,
        _ => each.product::<f64>().max(largest),
    };
    left.rows * right.rows / several.min(bound)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: f64, expected: f64) -> bool {
        (found - expected).abs() <= expected * 0.02
    }

    #[test]
    fn some_rows_have_fewer_distinct_values() {
        assert!(close(distinct_of_some(1000.0, 1000.0, 100.0), 100.0), "a unique column");
        assert!(close(distinct_of_some(25.0, 1_000_000.0, 100_000.0), 25.0));
        assert!(close(distinct_of_some(500.0, 1000.0, 500.0), 375.0));
    }

    #[test]
    fn a_foreign_key_finds_one_row_each() {
        let input = |rows, source_rows| Input { rows, source_rows };
        let orders = input(1.5e6, 1.5e6);
        let lines = input(6e6, 6e6);
        // The range of the keys has gaps, so that their number is overestimated.
        assert!(close(joined_rows(orders, lines, &[(1.5e6, 6e6)]), 6e6));
        let some = input(15e3, 1.5e6);
        assert!(close(joined_rows(some, lines, &[(15e3, 6e6)]), 60e3));
    }

    #[test]
    fn two_columns_may_be_one_key() {
        let input = |rows, source_rows| Input { rows, source_rows };
        let rows = joined_rows(input(6e6, 6e6), input(8e5, 8e5), &[(2e5, 2e5), (1e4, 1e4)]);
        assert!(close(rows, 6e6), "{rows}");
        let nations = joined_rows(input(150e3, 150e3), input(1e4, 1e4), &[(25.0, 25.0)]);
        assert!(close(nations, 6e7));
    }
}
