//! Queries with semi and anti joins give the same rows with and without the rule.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinType, Result};
use datafusion::execution::context::SessionContext;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::logical_expr::{Join, LogicalPlan};
use proptest::prelude::*;

use super::PushDownSemiJoins;

/// Two columns, `k` and `v`, with nulls and repeated values.
type KeyedRows = Vec<(Option<i64>, Option<i64>)>;

/// A session with the tables `a`, `b` and `c`.
fn session(tables: &[KeyedRows; 3], with_rule: bool) -> SessionContext {
    let mut state = SessionStateBuilder::new().with_default_features();
    if with_rule {
        state = state.with_optimizer_rule(Arc::new(PushDownSemiJoins));
    }
    let session = SessionContext::new_with_state(state.build());
    for (name, rows) in ["a", "b", "c"].into_iter().zip(tables) {
        let k: ArrayRef = Arc::new(rows.iter().map(|row| row.0).collect::<Int64Array>());
        let v: ArrayRef = Arc::new(rows.iter().map(|row| row.1).collect::<Int64Array>());
        let batch = RecordBatch::try_from_iter_with_nullable([("k", k, true), ("v", v, true)]);
        session.register_batch(name, batch.unwrap()).unwrap();
    }
    session
}

fn some_rows() -> [KeyedRows; 3] {
    let rows = |count: i64, step: i64| -> KeyedRows {
        let value = |n: i64| Some(n % 7).filter(|value| *value != 3);
        (0..count).map(|n| (value(n * step), value(n * step / 2 + 1))).collect()
    };
    [rows(40, 3), rows(30, 5), rows(9, 2)]
}

async fn optimized(session: &SessionContext, sql: &str) -> Result<LogicalPlan> {
    session.state().optimize(session.sql(sql).await?.logical_plan())
}

async fn answer(session: &SessionContext, sql: &str) -> Vec<String> {
    sorted_text(&session.sql(sql).await.unwrap().collect().await.unwrap())
}

/// The rows as text, sorted.
pub(crate) fn sorted_text(batches: &[RecordBatch]) -> Vec<String> {
    let options = FormatOptions::default().with_null("null");
    let mut rows = Vec::new();
    for batch in batches {
        let columns = batch.columns().iter();
        let columns: Vec<_> =
            columns.map(|column| ArrayFormatter::try_new(column, &options).unwrap()).collect();
        let cell = |row: usize| columns.iter().map(move |column| column.value(row).to_string());
        rows.extend((0..batch.num_rows()).map(|row| cell(row).collect::<Vec<_>>().join(" ")));
    }
    rows.sort();
    rows
}

/// True if a semi or anti join has a join of two tables below it on its left side.
fn is_above_join(plan: &LogicalPlan) -> bool {
    let contains = |plan: &LogicalPlan, wanted: &dyn Fn(&Join) -> bool| {
        let mut found = false;
        let visit = plan.apply(|node| {
            found |= matches!(node, LogicalPlan::Join(join) if wanted(join));
            Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        });
        visit.unwrap();
        found
    };
    let of_two = |join: &Join| {
        let kind = join.join_type;
        matches!(kind, JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full)
    };
    contains(plan, &|join| {
        matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti)
            && contains(&join.left, &of_two)
    })
}

/// Queries whose semi joins the rule moves below all joins.
const MOVED: &[&str] = &[
    "select * from a join b on a.k = b.k where a.v in (select v from c)",
    "select * from a join b on a.k = b.k where b.v in (select v from c)",
    "select a.v from a join b on a.k = b.k and a.v < b.v where a.k in (select k from c)",
    "select * from a join b on a.k < b.k where b.k in (select k from c where v > 1)",
    "select * from a, b where a.k = b.k and exists (select 1 from c where c.v = a.v)",
    "select a.k from a join b on a.k = b.k where exists
         (select 1 from c where c.k = a.k and c.v = a.v)",
    "select * from a left join b on a.k = b.k where a.v in (select v from c)",
    "select * from a right join b on a.k = b.k where b.v in (select v from c)",
    "select * from a join b on a.k = b.k where a.v in (select v from c) and b.v in (select k from c)",
    "select * from a join b on a.k = b.k join c on b.v = c.v where a.k in (select v from c)",
    "select * from a left join (b join c on b.k = c.k) on a.v = b.v where a.k in (select v from c)",
    "select * from (select a.v as x, b.k as v from a join b on a.k = b.k) t
         where x in (select v from c)",
    "select * from (select a.v as k, a.k as v from a join b on a.v = b.v) t
         where v in (select v from c) and t.k in (select k from c)",
    "select x.k from (select a.k, b.v from a join b on a.k = b.k) x join a as y on x.v = y.v
         where x.v in (select max(v) from c group by k having count(*) > 0)",
    "select a.v from a join b on a.k = b.k intersect all select v from c",
    "select cast(a.v as int) from a join b on a.k = b.k
         where cast(a.v as int) in (select cast(v as int) from c)",
    "select a.k from a join a as other on a.k = other.v where other.k in (select k from c)",
];

/// Queries whose semi or anti joins stay.
const KEPT: &[&str] = &[
    // Keys of both sides, and a side that an outer join fills with nulls.
    "select * from a join b on a.k = b.k where exists
         (select 1 from c where c.k = a.v and c.v = b.v)",
    "select * from a left join b on a.k = b.k where b.v in (select v from c)",
    "select * from a right join b on a.k = b.k where a.v in (select v from c)",
    "select * from a full join b on a.k = b.k where a.v in (select v from c)",
    // A condition beside the keys, and keys that are computed.
    "select * from a join b on a.k = b.k where exists
         (select 1 from c where c.k = a.k and c.v < b.v)",
    "select * from a join b on a.k = b.k where a.v + 1 in (select v from c)",
    "select * from (select a.v + b.v as x from a join b on a.k = b.k) t
         where x in (select v from c)",
    // Anti joins.
    "select * from a join b on a.k = b.k where a.v not in (select v from c)",
    "select * from a join b on a.k = b.k where a.v not in (select v from c where v is not null)",
    "select * from a join b on a.k = b.k where not exists (select 1 from c where c.v = a.v)",
    // Conditions that are not the same twice.
    "select * from a join b on a.k = b.k and a.v + b.v > random() - 1
         where a.v in (select v from c)",
];

#[tokio::test]
async fn semi_joins_go_below_joins_where_that_is_the_same() {
    let tables = some_rows();
    let with = session(&tables, true);
    let without = session(&tables, false);
    for (queries, kept) in [(MOVED, false), (KEPT, true)] {
        for sql in queries {
            assert!(is_above_join(&optimized(&without, sql).await.unwrap()), "{sql}");
            let plan = optimized(&with, sql).await.unwrap();
            assert_eq!(is_above_join(&plan), kept, "{sql}\n{plan}");
            let rows = answer(&with, sql).await;
            assert_eq!(rows, answer(&without, sql).await, "{sql}");
        }
    }
    let rows = answer(&with, MOVED[0]).await;
    assert!(rows.len() > 10, "{rows:?}");
}

#[tokio::test]
async fn a_plan_with_moved_joins_stays_as_it_is() {
    let with = session(&some_rows(), true);
    for sql in MOVED {
        let plan = optimized(&with, sql).await.unwrap();
        let again = with.state().optimize(&plan).unwrap();
        assert_eq!(plan.to_string(), again.to_string(), "{sql}");
    }
}

fn rows() -> impl Strategy<Value = KeyedRows> {
    let value = || prop::option::weighted(0.8, 0_i64..4);
    prop::collection::vec((value(), value()), 0..7)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn answers_are_the_same_for_any_rows(a in rows(), b in rows(), c in rows()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let tables = [a, b, c];
        let with = session(&tables, true);
        let without = session(&tables, false);
        for sql in MOVED.iter().chain(KEPT) {
            let (rows, expected) =
                runtime.block_on(async { (answer(&with, sql).await, answer(&without, sql).await) });
            prop_assert_eq!(rows, expected, "{}", sql);
        }
    }
}
