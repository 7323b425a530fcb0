//! Queries give the same rows in the written order of joins and in the one of the rule.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use datafusion::execution::context::{SessionConfig, SessionContext};
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_plan::{ExecutionPlan, collect, displayable};
use proptest::prelude::*;

use super::JoinOrder;
use crate::estimate::estimate;
use crate::rules::joins::independent::IndependentJoins;
use crate::rules::joins::tests::sorted_text;

/// The columns `k`, `v` and `w`, with nulls and repeated values.
type TestRows = Vec<[Option<i64>; 3]>;

/// A session with the tables `t0`, `t1` and so on.
fn session(tables: &[TestRows], with_rule: bool) -> SessionContext {
    let mut rules = PhysicalOptimizer::new().rules;
    if with_rule {
        let place = rules.iter().position(|rule| rule.name() == "join_selection").unwrap();
        let own: [Arc<dyn PhysicalOptimizerRule + Send + Sync>; 2] =
            [Arc::new(JoinOrder { scan_task_bytes: 0 }), Arc::new(IndependentJoins)];
        rules.splice(place..=place, own);
    }
    let config = SessionConfig::new().with_target_partitions(3).with_batch_size(16);
    let state = SessionStateBuilder::new()
        .with_default_features()
        .with_config(config)
        .with_physical_optimizer_rules(rules);
    let session = SessionContext::new_with_state(state.build());
    for (number, rows) in tables.iter().enumerate() {
        let column = |index: usize| -> ArrayRef {
            Arc::new(rows.iter().map(|row| row[index]).collect::<Int64Array>())
        };
        let columns = [("k", column(0), true), ("v", column(1), true), ("w", column(2), true)];
        let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
        session.register_batch(format!("t{number}"), batch).unwrap();
    }
    session
}

async fn planned(session: &SessionContext, sql: &str) -> Arc<dyn ExecutionPlan> {
    session.sql(sql).await.unwrap().create_physical_plan().await.unwrap()
}

/// The rows as text, sorted, below the names of the columns.
async fn answer(session: &SessionContext, sql: &str) -> Vec<String> {
    let plan = planned(session, sql).await;
    let batches = collect(Arc::clone(&plan), session.task_ctx()).await.unwrap();
    assert!(batches.iter().all(|batch| batch.schema() == plan.schema()));
    let mut rows = sorted_text(&batches);
    let names: Vec<String> =
        plan.schema().fields().iter().map(|field| field.name().clone()).collect();
    rows.insert(0, names.join(" "));
    rows
}

/// `t0` has 1,000 rows, `t1` 100 with the same keys, `t2` 5.
fn star() -> Vec<TestRows> {
    let rows = |count: i64, keys: i64| -> TestRows {
        let value = |n: i64, of: i64| Some(n % of).filter(|value| *value != 3);
        (0..count).map(|n| [value(n, keys), value(n * 7, 5), value(n / 3, keys)]).collect()
    };
    vec![rows(1000, 100), rows(100, 100), rows(5, 5)]
}

/// The tables in the order in which their scans are in the plan.
fn shape(plan: &Arc<dyn ExecutionPlan>) -> Vec<usize> {
    if !plan.children().is_empty() {
        return plan.children().into_iter().flat_map(shape).collect();
    }
    let rows = estimate(plan).rows as usize;
    vec![[1000, 100, 5].iter().position(|size| *size == rows).unwrap()]
}

#[tokio::test]
async fn the_smallest_tables_are_joined_first() {
    let tables = star();
    let with = session(&tables, true);
    let without = session(&tables, false);
    let sql = "select t0.w, t2.v from t0, t1, t2 where t0.k = t1.k and t1.w = t2.k and t0.v > 0";
    let plan = planned(&with, sql).await;
    // The build side first: `t2` with `t1`, then both with `t0`.
    assert_eq!(shape(&plan), [2, 1, 0], "{}", displayable(plan.as_ref()).indent(false));
    assert_eq!(answer(&with, sql).await, answer(&without, sql).await);
    assert!(answer(&with, sql).await.len() > 10);
}

#[tokio::test]
async fn what_is_not_an_inner_join_on_columns_stays() {
    let tables = star();
    let with = session(&tables, true);
    let without = session(&tables, false);
    for sql in [
        "select * from t0 join t1 on t0.k = t1.k + 0 join t2 on t1.w = t2.k where t0.k < 20",
        "select * from t0 left join t1 on t0.k = t1.k join t2 on t1.w = t2.k",
        "select * from t2 full join t1 on t2.k = t1.w join t0 on t0.k = t1.k",
        "select count(*) from t0, t1, t2 where t0.k = t1.k",
        "select * from t0 join t1 on t0.k = t1.k and t0.v + t1.v > random() - 1
             join t2 on t1.w = t2.k where t0.k < 9",
        "select * from t0 join t1 on t0.k is not distinct from t1.k join t2 on t1.w = t2.k",
        "select a.k, b.k, c.v from t2 a, t2 b, t1 c where a.k = b.k and a.v = b.v and c.k = b.k
             and a.v + b.v < c.k + 5",
        "select * from (select k as x, v as k from t1) s, t0, t2 where s.x = t0.k and s.k = t2.k",
        "select s.v, s.n from (select v, count(*) n from t0 group by v) s, t1, t2
             where s.v = t1.k and t1.k = t2.k",
        "select t0.k from t0, t1, t2 where t0.k = t1.k and t1.k = t2.k and t0.v in (select v from t1)
             and t2.v not in (select w from t0 where w is not null)",
    ] {
        assert_eq!(answer(&with, sql).await, answer(&without, sql).await, "{sql}");
    }
}

/// A query over some tables, connected by equalities, with other conditions.
fn query() -> impl Strategy<Value = (Vec<TestRows>, String)> {
    let value = || prop::option::weighted(0.9, 0_i64..5);
    let row = (value(), value(), value()).prop_map(|(k, v, w)| [k, v, w]);
    let tables = prop::collection::vec(prop::collection::vec(row, 0..9), 2..7);
    let column = || prop::sample::select(vec!["k", "v", "w"]);
    // Each table is joined with one before it, so that all are connected.
    let link = (any::<prop::sample::Index>(), column(), column());
    let pick = any::<prop::sample::Index>;
    let more = prop::collection::vec((pick(), pick(), column(), column(), 0_usize..4), 0..4);
    (tables, prop::collection::vec(link, 6), more).prop_map(|(tables, links, more)| {
        let count = tables.len();
        let mut conditions: Vec<String> = (1..count)
            .map(|table| {
                let (to, one, other) = &links[table - 1];
                format!("t{table}.{one} = t{}.{other}", to.index(table))
            })
            .collect();
        for (one, other, column, with, kind) in more {
            let one = one.index(count);
            let other = other.index(count);
            conditions.push(match kind {
                0 => format!("t{one}.{column} < t{other}.{with} + 1"),
                1 => format!("t{one}.{column} > 0"),
                2 => format!("(t{one}.{column} = 1 or t{other}.{with} = 2)"),
                _ => format!("t{one}.{column} = t{other}.{with}"),
            });
        }
        let names: Vec<String> = (0..count).map(|table| format!("t{table}")).collect();
        let sql = format!("select * from {} where {}", names.join(", "), conditions.join(" and "));
        (tables, sql)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn answers_are_the_same_for_any_join_graph((tables, sql) in query()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let with = session(&tables, true);
        let without = session(&tables, false);
        let (rows, expected) =
            runtime.block_on(async { (answer(&with, &sql).await, answer(&without, &sql).await) });
        prop_assert_eq!(rows, expected, "{}", sql);
    }
}
