//! Random tables joined by a hash join and by sorting: the same rows.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::util::pretty::pretty_format_batches;
use datafusion::common::{JoinSide, JoinType, NullEquality};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, is_null, lit};
use datafusion::physical_plan::joins::utils::{ColumnIndex, JoinFilter};
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::{ExecutionPlan, collect};
use proptest::prelude::*;

use super::{can_sort_merge, with_sort_merge_joins};
use crate::context::execution_config;

/// A row: two keys, and a value that is never null.
type JoinRow = (Option<i64>, Option<i64>, i64);

const JOINS: [JoinType; 10] = [
    JoinType::Inner,
    JoinType::Left,
    JoinType::Right,
    JoinType::Full,
    JoinType::LeftSemi,
    JoinType::RightSemi,
    JoinType::LeftAnti,
    JoinType::RightAnti,
    JoinType::LeftMark,
    JoinType::RightMark,
];

/// A condition beside the keys.
#[derive(Clone, Copy, Debug)]
enum ExtraCondition {
    None,
    /// `left.v < right.v`
    Less,
    /// `right.v > left.v`: the column of the right side is first, as after a swap of the sides.
    LessSwapped,
    /// True for a row without a match.
    NullOrLess,
    /// A condition on the left side only.
    Left,
}

const CONDITIONS: [ExtraCondition; 5] = [
    ExtraCondition::None,
    ExtraCondition::Less,
    ExtraCondition::LessSwapped,
    ExtraCondition::NullOrLess,
    ExtraCondition::Left,
];

#[derive(Clone, Debug)]
struct Case {
    left: Vec<JoinRow>,
    right: Vec<JoinRow>,
    join: JoinType,
    condition: ExtraCondition,
    /// The number of keys.
    keys: usize,
    nulls: NullEquality,
    null_aware: bool,
    batch_rows: usize,
}

fn rows() -> impl Strategy<Value = Vec<JoinRow>> {
    let key = || prop_oneof![1 => Just(None), 5 => (0..5_i64).prop_map(Some)];
    let known = || (0..5_i64).prop_map(Some);
    prop_oneof![
        4 => prop::collection::vec((key(), key(), 0..4_i64), 0..40),
        // Without nulls, which exclude all rows of a null-aware join.
        2 => prop::collection::vec((known(), known(), 0..4_i64), 0..40),
        1 => Just(Vec::new()),
    ]
}

fn case() -> impl Strategy<Value = Case> {
    let condition = prop::sample::select(CONDITIONS.to_vec());
    let nulls = [NullEquality::NullEqualsNothing, NullEquality::NullEqualsNull];
    let how = (prop::sample::select(JOINS.to_vec()), condition, 1..=2_usize, any::<bool>());
    let nulls = prop::sample::select(nulls.to_vec());
    (rows(), rows(), how, nulls, 1..9_usize).prop_map(|(left, right, how, nulls, batch_rows)| {
        let (join, condition, keys, aware) = how;
        let null_aware = aware && join == JoinType::LeftAnti;
        match null_aware {
            false => Case { left, right, join, condition, keys, nulls, null_aware, batch_rows },
            true => {
                let nulls = NullEquality::NullEqualsNothing;
                Case {
                    left,
                    right,
                    join,
                    condition: ExtraCondition::None,
                    keys: 1,
                    nulls,
                    null_aware,
                    batch_rows,
                }
            }
        }
    })
}

fn schema() -> Arc<Schema> {
    let field = |name, nullable| Field::new(name, DataType::Int64, nullable);
    Arc::new(Schema::new(vec![field("a", true), field("b", true), field("v", false)]))
}

fn table(rows: &[JoinRow], batch_rows: usize) -> Arc<dyn ExecutionPlan> {
    let batch = |rows: &[JoinRow]| {
        let a: Int64Array = rows.iter().map(|(a, ..)| *a).collect();
        let b: Int64Array = rows.iter().map(|(_, b, _)| *b).collect();
        let v = Int64Array::from_iter_values(rows.iter().map(|(.., v)| *v));
        let columns: Vec<ArrayRef> = vec![Arc::new(a), Arc::new(b), Arc::new(v)];
        RecordBatch::try_new(schema(), columns).unwrap()
    };
    let batches: Vec<RecordBatch> = rows.chunks(batch_rows).map(batch).collect();
    MemorySourceConfig::try_new_exec(&[batches], schema(), None).unwrap()
}

fn filter(condition: ExtraCondition) -> Option<JoinFilter> {
    let column = |index| Arc::new(Column::new("v", index)) as Arc<dyn PhysicalExpr>;
    let binary = |left, operator, right| {
        Arc::new(BinaryExpr::new(left, operator, right)) as Arc<dyn PhysicalExpr>
    };
    let less = |left, right| binary(column(left), Operator::Lt, column(right));
    let left = JoinSide::Left;
    let right = JoinSide::Right;
    let (expression, sides) = match condition {
        ExtraCondition::None => return None,
        ExtraCondition::Less => (less(0, 1), vec![left, right]),
        ExtraCondition::LessSwapped => (less(1, 0), vec![right, left]),
        ExtraCondition::NullOrLess => {
            let missing = |index| is_null(column(index)).unwrap();
            let missing = binary(missing(0), Operator::Or, missing(1));
            (binary(missing, Operator::Or, less(0, 1)), vec![left, right])
        }
        ExtraCondition::Left => (binary(column(0), Operator::Lt, lit(2_i64)), vec![left]),
    };
    let fields: Vec<Field> = sides.iter().map(|_| schema().field(2).clone()).collect();
    let indices = sides.into_iter().map(|side| ColumnIndex { index: 2, side }).collect();
    Some(JoinFilter::new(expression, indices, Arc::new(Schema::new(fields))))
}

fn hash_join(case: &Case) -> Arc<dyn ExecutionPlan> {
    let key = |index| Arc::new(Column::new(["a", "b"][index], index)) as Arc<dyn PhysicalExpr>;
    Arc::new(
        HashJoinExec::try_new(
            table(&case.left, case.batch_rows),
            table(&case.right, case.batch_rows),
            (0..case.keys).map(|index| (key(index), key(index))).collect(),
            filter(case.condition),
            &case.join,
            None,
            PartitionMode::CollectLeft,
            case.nulls,
            case.null_aware,
        )
        .unwrap(),
    )
}

async fn answer(plan: Arc<dyn ExecutionPlan>, batch_rows: usize) -> Vec<String> {
    let context = TaskContext::default().with_session_config(execution_config(1, batch_rows));
    let batches = collect(plan, Arc::new(context)).await.unwrap();
    let text = pretty_format_batches(&batches).unwrap().to_string();
    let mut rows: Vec<String> =
        text.lines().filter(|line| line.starts_with('|')).skip(1).map(str::to_owned).collect();
    rows.sort();
    rows
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn a_join_by_sorting_gives_the_rows_of_a_hash_join(case in case()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let hashed = hash_join(&case);
        prop_assert!(can_sort_merge(&hashed));
        let sorted = with_sort_merge_joins(Arc::clone(&hashed)).unwrap();
        prop_assert_eq!(sorted.name(), "SortMergeJoinExec");
        prop_assert_eq!(sorted.schema(), hashed.schema());
        let expected = runtime.block_on(answer(hashed, case.batch_rows));
        prop_assert_eq!(runtime.block_on(answer(sorted, case.batch_rows)), expected);
    }
}

fn refused(case: &Case, change: impl Fn(&HashJoinExec) -> HashJoinExec) -> bool {
    let join = hash_join(case);
    let join = change(join.downcast_ref::<HashJoinExec>().unwrap());
    !can_sort_merge(&(Arc::new(join) as Arc<dyn ExecutionPlan>))
}

#[test]
fn joins_that_sorting_would_change_are_refused() {
    let case = |join| Case {
        left: vec![(Some(1), Some(1), 1)],
        right: Vec::new(),
        join,
        condition: ExtraCondition::None,
        keys: 2,
        nulls: NullEquality::NullEqualsNothing,
        null_aware: false,
        batch_rows: 8,
    };
    let as_float = |index: usize| {
        let column = Arc::new(Column::new(["a", "b"][index], index));
        datafusion::physical_expr::expressions::cast(column, &schema(), DataType::Float64).unwrap()
    };
    let with_float = |at: usize| {
        move |join: &HashJoinExec| {
            let mut on = join.on().to_vec();
            on[at] = (as_float(at), as_float(at));
            join.builder().with_on(on).build().unwrap()
        }
    };
    // A key behind a float.
    assert!(refused(&case(JoinType::Inner), with_float(0)));
    assert!(!refused(&case(JoinType::Inner), with_float(1)));
    assert!(refused(&case(JoinType::LeftSemi), with_float(1)));
    let constant = |join: &HashJoinExec| {
        let never = JoinFilter::new(lit(false), Vec::new(), Arc::new(Schema::empty()));
        join.builder().with_filter(Some(never)).build().unwrap()
    };
    assert!(refused(&case(JoinType::Left), constant));
}
