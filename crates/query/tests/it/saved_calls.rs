//! Which calls of the user's functions a query makes: each once for a row, only for rows that need
//! it, and for repeated arguments of deterministic functions not again. Calls are counted where they
//! arrive.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::util::pretty::pretty_format_batches;
use snowmelt_api::Profile;

use crate::runner::{InProcess, answer, spec};

/// The rows as text, the rows that each function was called for, and the profile.
async fn run(sql: &str, workers: u32) -> (String, BTreeMap<String, u64>, Profile) {
    let runner = Arc::new(InProcess::default());
    let (batches, profile) = answer(&spec(sql, workers), Arc::clone(&runner))
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error}"));
    let rows = runner.udf_rows.lock().unwrap().clone();
    (pretty_format_batches(&batches).unwrap().to_string(), rows, profile)
}

/// The query with a product instead of each call of `double_it`, whose arguments have no brackets.
fn plain(sql: &str) -> String {
    let mut parts = sql.split("double_it(");
    let first = parts.next().unwrap().to_owned();
    let product = |part: &str| format!("(2 * ({}", part.replacen(')', "))", 1));
    first + &parts.map(product).collect::<String>()
}

async fn explained(sql: &str) -> String {
    run(&format!("explain {sql}"), 2).await.0
}

/// Runs a query of `double_it`, compares its rows with those of the same query without the function,
/// and returns the number of its calls.
async fn calls(sql: &str) -> u64 {
    let (found, rows, _) = run(sql, 2).await;
    let (expected, _, _) = run(&plain(sql), 2).await;
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        if !sql.rsplit("from").next().is_some_and(|end| end.contains("order by")) {
            lines.sort();
        }
        lines
    };
    assert_eq!(sorted(&found), sorted(&expected), "{sql}\n{}", explained(sql).await);
    rows.get("double_it").copied().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_several_operators_need_is_made_once() {
    for (sql, expected) in [
        (
            "select double_it(id) d, double_it(id) + 1 e from odd where double_it(id) > 200 order by double_it(id)",
            10_000,
        ),
        ("select double_it(id) d, n from odd where double_it(id) > 200 and id < 5000", 5_000),
        ("select double_it(n + 1) d, 3 * double_it(n + 1) e from odd", 10_000),
        (
            "select double_it(id) d, count(*) c from odd where double_it(id) > 200 group by double_it(id) having double_it(id) < 400",
            10_000,
        ),
        ("select sum(double_it(id)) d, max(double_it(id)) e from odd", 10_000),
        (
            "select sum(double_it(id)) d, avg(double_it(id)) e from odd where double_it(id) % 3 = 0",
            10_000,
        ),
        ("select id d from odd order by double_it(n) desc nulls last, id", 10_000),
        ("select id d from odd order by double_it(n), id limit 7", 10_000),
        (
            "select id, row_number() over (partition by double_it(n % 9) order by double_it(n % 9), id) d from odd",
            10_000,
        ),
        (
            "select double_it(i) + 1 d, i from (select id i, n from odd where double_it(id) > 100) t where i < 5000",
            5_000,
        ),
        (
            "select double_it(t.i) d, u.m from (select id i from odd where double_it(id) < 1000) t join (select id i, n m from odd) u on t.i = u.i",
            10_000,
        ),
        (
            "select a.id, double_it(a.n) d from odd a left join odd b on a.id = b.id where double_it(a.n) < 50",
            10_000,
        ),
        (
            "select id, case when double_it(id) > 100 then double_it(id) else 0 end d from odd",
            10_000,
        ),
    ] {
        assert_eq!(calls(sql).await, expected, "{sql}\n{}", explained(sql).await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_of_calls_are_made_once() {
    let sql = "select add_up(double_it(id), 1) a, double_it(id) d from odd
               where add_up(double_it(id), 1) > 100";
    let (_, rows, _) = run(sql, 2).await;
    assert_eq!((rows["double_it"], rows["add_up"]), (10_000, 10_000), "{}", explained(sql).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_of_the_other_side_of_an_outer_join_are_not_reused() {
    // Above the join, rows without a match have nulls, for which the function is called.
    let sql = "select count(one_or_null) c from (
                 select coalesce(add_up(b.id, 1), 0) one_or_null from odd a
                 left join (select id from odd where add_up(id, 1) < 100) b on a.id = b.id) t";
    let (text, _, _) = run(sql, 2).await;
    assert!(text.contains("| 10000 |"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_is_made_for_a_row_that_does_not_need_it() {
    for sql in [
        "select id, fails_at_88(id) + n + small d from odd where id <> 88",
        "select count(*) c from odd where fails_at_88(id) >= 0 and id <> 88",
        "select fails_at_88(id) d from odd where id <> 88 and fails_at_88(id) > 7 order by 1",
        "select case when id <> 88 then fails_at_88(id) else 0 end d,
                case when id <> 88 then fails_at_88(id) end e from odd",
        "select case when id <> 88 then fails_at_88(id) else 0 end d from odd
         where case when id <> 88 then fails_at_88(id) else 1 end > 0",
        "select coalesce(id, fails_at_88(id)) d, coalesce(id, fails_at_88(id)) e from odd",
        "select sum(fails_at_88(id)) filter (where id <> 88) d,
                max(fails_at_88(id)) filter (where id <> 88) e from odd",
    ] {
        run(sql, 2).await;
    }
    let first = "select id, double_it(n) + small d from odd order by id limit 10";
    assert_eq!(calls(first).await, 10, "{}", explained(first).await);
    let first = "select id, double_it(n) d from odd order by d desc nulls last, id limit 10";
    assert_eq!(calls(first).await, 10_000, "{}", explained(first).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_has_one_value_of_a_function_that_is_not_deterministic() {
    let sql = "select count(*) c from (
                 select ticks(id) a, ticks(id) b, id from odd where ticks(id) >= 0) t
               where a = b";
    let (text, rows, _) = run(sql, 2).await;
    assert!(text.contains("| 10000 |"), "{text}\n{}", explained(sql).await);
    assert_eq!(rows["ticks"], 10_000);
    // Rows with equal arguments have values of their own.
    let (text, rows, _) = run("select count(distinct ticks(id % 10)) c from odd", 2).await;
    assert!(text.contains("| 10000 |"), "{text}");
    assert_eq!(rows["ticks"], 10_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_condition_on_a_join_key_is_evaluated_on_one_side() {
    for sql in [
        "select count(*) c from odd a join odd b on a.id = b.id where ticks(a.id) % 2 = 0",
        "select count(*) c from odd a, odd b where a.id = b.id and ticks(a.id) % 2 = 0 and b.n > 5",
        "select count(*) c from odd a join odd b on a.id = b.id and ticks(b.id) % 2 = 0",
        "select count(*) c from odd a left join odd b on a.id = b.id and ticks(b.id) % 2 = 0",
        "select count(*) c from odd a where ticks(a.id) % 2 = 0 and a.id in (select id from odd)",
    ] {
        let (_, rows, _) = run(sql, 2).await;
        assert!(rows["ticks"] <= 10_000, "{sql}: {rows:?}\n{}", explained(sql).await);
    }
    // What may be inferred still is.
    let plan = explained(
        "select count(*) c from odd a join odd b on a.id = b.id where ticks(a.id) > 2 and a.id < 7",
    )
    .await;
    let filters = plan.lines().filter(|line| line.contains("FilterExec"));
    assert_eq!(filters.filter(|line| line.contains("< 7")).count(), 2, "{plan}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_arguments_of_a_deterministic_function_are_sent_once() {
    let (text, rows, profile) = run("select sum(pure_double(id % 10)) s from odd", 2).await;
    assert!(text.contains("| 90000 |"), "{text}");
    // Each of two tasks has its own results.
    assert_eq!(rows["pure_double"], 20);
    let progress = profile.totals.progress;
    assert_eq!((progress.udf_rows, progress.udf_rows_saved), (20, 9_980));
    let (text, rows, _) = run("select sum(double_it(id % 10)) s from odd", 2).await;
    assert!(text.contains("| 90000 |"), "{text}");
    assert_eq!(rows["double_it"], 10_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_driver_keeps_results_too() {
    let (text, rows, _) =
        run("select sum(pure_double(range % 10)) s from range(0, 20000)", 2).await;
    assert!(text.contains("| 180000 |"), "{text}");
    assert_eq!(rows["pure_double"], 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_of_a_deterministic_function_are_right_with_nulls_and_without_repetition() {
    for of in ["n", "id", "n % 100", "id / 3"] {
        let (found, rows, _) =
            run(&format!("select id, pure_double({of}) d from odd order by id"), 2).await;
        let (expected, _, _) =
            run(&format!("select id, 2 * ({of}) d from odd order by id"), 2).await;
        assert_eq!(found, expected, "{of}");
        assert!(rows["pure_double"] <= 10_000, "{rows:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conditions_without_calls_are_first() {
    let (text, rows, _) =
        run("select count(*) c from odd where double_it(id) >= 0 and id % 2 = 0", 2).await;
    assert!(text.contains("| 5000 |"), "{text}");
    assert_eq!(rows["double_it"], 5_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_condition_that_drops_nothing_is_last() {
    let sql = "select id, double_it(id) d from odd
               where double_it(id) >= 0 and shout(word) = 'A!' and id >= 0";
    let (_, rows, _) = run(sql, 2).await;
    let (expected, _, _) = run("select count(*) c from odd where word = 'a'", 1).await;
    // All rows have one, and some in the beginning the other.
    assert_eq!(rows["shout"], 10_000, "{expected}");
    assert!(rows["double_it"] < 7_000, "{rows:?}\n{}", explained(sql).await);
    let (text, _, _) = run(&format!("select count(*) c from ({sql}) t"), 2).await;
    assert_eq!(text, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_shows_what_is_computed_once_and_ordered() {
    let plan = explained(
        "select double_it(id) d, n from odd where double_it(id) > 3 and shout(word) = 'A!'",
    )
    .await;
    assert!(plan.contains(") as __call_1]"), "{plan}");
    assert!(plan.contains(", calls by cost"), "{plan}");
    assert_eq!(plan.matches("double_it(").count(), 1, "{plan}");
}
