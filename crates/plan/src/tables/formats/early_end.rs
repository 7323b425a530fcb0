//! Recognises queries that may end before all rows of their tables are read.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{Query, Visit, Visitor};

/// True if a limit may end the query early. One with ORDER BY sorts all rows first.
pub(crate) fn may_end_early(statement: &Statement) -> bool {
    match statement {
        Statement::Statement(statement) => statement.visit(&mut LimitVisitor).is_break(),
        _ => true,
    }
}

struct LimitVisitor;

impl Visitor for LimitVisitor {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        let limited = query.limit_clause.is_some() || query.fetch.is_some();
        match limited && query.order_by.is_none() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::parser::DFParserBuilder;

    use super::*;

    #[test]
    fn a_limit_without_an_order_ends_a_query_early() {
        for (sql, expected) in [
            ("select a from t", false),
            ("select a from t limit 3", true),
            ("select a from t fetch first 3 rows only", true),
            ("select a from t order by a limit 3", false),
            ("with u as (select a from t limit 3) select max(a) from u", true),
            ("select a from (select a from t limit 1) order by a", true),
        ] {
            let mut statements =
                DFParserBuilder::new(sql).build().unwrap().parse_statements().unwrap();
            assert_eq!(may_end_early(&statements.pop_front().unwrap()), expected, "{sql}");
        }
    }
}
