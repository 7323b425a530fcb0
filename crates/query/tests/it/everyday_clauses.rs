//! Clauses and aggregates of DuckDB and PostgreSQL that take several values or frames. Each expected
//! answer is DuckDB's, and PostgreSQL's where they differ.

use crate::everyday::{TABLES, check, table};

async fn check_refusals(cases: &[(&str, &str)]) {
    for (sql, part) in cases {
        let report = match table(&format!("{TABLES}{sql}"), 2).await {
            Ok((_, rows)) => panic!("{sql} gives {rows:?}"),
            Err(report) => report,
        };
        assert!(report.contains(part), "{sql}: {report}");
        assert!(!report.contains(" {") && !report.contains("Utf8"), "{sql}: {report}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bounds_in_either_order() {
    check(&[
        (
            "select 5 between symmetric 10 and 1, 5 not between symmetric 10 and 1, 0 between asymmetric 1 and 0",
            &["true|false|false"],
        ),
        (
            "select 0 between symmetric null and 1, 5 between symmetric 1 and null, 1 not between asymmetric 2 and 3",
            &["||true"],
        ),
        ("select k from t where k between symmetric 3 and 2 and k <> 2", &["3"]),
        // It is a name where no bound follows.
        (
            "select 5 between symmetric and 9, 5 not between symmetric and 9, 5 between s.symmetric and 9 and true from (values (4)) s(symmetric)",
            &["true|false|true"],
        ),
        (
            "select 5 between asymmetric and 9, 5 between symmetric.asymmetric and 1, 5 between symmetric asymmetric and 1 from (values (4)) symmetric(asymmetric)",
            &["true|false|false"],
        ),
    ])
    .await;
    let (names, _) = table("select 1 between symmetric 2 and 0", 1).await.unwrap();
    assert_eq!(names, "1 BETWEEN SYMMETRIC 2 AND 0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn uuids_are_texts_of_one_form() {
    const UUID: &str = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";
    check(&[
        ("select 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'::uuid, cast('{a0eebc999c0b4ef8bb6d6bb9bd380a11}' as uuid)",
            &[&format!("{UUID}|{UUID}")]),
        ("select uuid 'A0EEBC999C0B4EF8BB6D6BB9BD380A11', try_cast(a as uuid), null::uuid from u where b = 1",
            &[&format!("{UUID}||")]),
        ("select count(*) from u where try_cast(a as uuid) is null", &["5"]),
        ("select length(gen_random_uuid()::uuid)", &["36"]),
        ("select 'A0EEBC999C0B4EF8BB6D6BB9BD380A11'::\"uuid\", x'A0EEBC999C0B4EF8BB6D6BB9BD380A11'::uuid",
            &[&format!("{UUID}|{UUID}")]),
        ("select ['A0EEBC999C0B4EF8BB6D6BB9BD380A11', null]::uuid[], try_cast(['x'] as uuid[]), null::uuid[]",
            &[&format!("[{UUID}, ]|[]|")]),
        ("select try_cast(x'41' as uuid), try_cast(a as uuid) from u where b = 1", &["|"]),
    ])
    .await;
    check_refusals(&[
        ("select a::uuid from u", "`x` is no UUID"),
        ("select 'a0eebc99'::uuid", "`a0eebc99` is no UUID"),
        ("select x'41'::uuid", "1 byte is no UUID"),
        ("select ['a0eebc99']::uuid[]", "`a0eebc99` is no UUID"),
        ("select a::uuid[] from u", "takes a list"),
        ("select k::uuid from t", "Cannot convert BIGINT to a UUID"),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aggregates_of_several_values() {
    check(&[
        ("select max(b, 2), min(b, 2), max(b, 10), min(a, 1) from u", &["[7, 5]|[1, 2]|[7, 5, 2, 1]|[x]"]),
        ("select a, max(b, 2) from u group by a order by a", &["x|[2, 1]", "y|[5]", "z|", "|[7]"]),
        ("select max(b, 2) from u where false", &[""]),
        ("select max(b, 1) filter (where b < 7), max(distinct b % 2, 5) from u", &["[5]|[1, 0]"]),
        ("select arg_max(a, b, 2), arg_min(a, b, 3), max_by(a, b, 1), arg_max(a, b) from u", &["[y, x]|[x, x, y]|[y]|y"]),
        ("select a, arg_max(b, -b, 1) from u where a is not null group by a order by a", &["x|[1]", "y|[5]", "z|"]),
        ("select n_regionkey, max(n_name, 2), arg_max(n_name, n_nationkey, 2) from nation group by 1 order by 1 limit 1",
            &["0|[MOZAMBIQUE, MOROCCO]|[MOZAMBIQUE, MOROCCO]"]),
        ("select entropy(a), entropy(b), entropy(a) filter (where a = 'x'), entropy(a) filter (where a is null) from u",
            &["1.5|2.0|0.0|0.0"]),
        ("select a, entropy(b) from u group by a order by a", &["x|1.0", "y|0.0", "z|0.0", "|0.0"]),
        ("select approx_quantile(x, 0.5) between 45 and 55, len(approx_quantile(x, [0.25, 0.75])) from range(100) r(x)",
            &["true|2"]),
    ])
    .await;
    check(&[
        (
            "select max([length(a), b]), min([b, 1]), max({'a': a, 'b': b}), max({'b': b}) from u",
            &["[, 7]|[1, 1]|{a: , b: 7}|{b: }"],
        ),
        (
            "select a, max([b]), min({'b': b}) filter (where b > 1) from u group by a order by a",
            &["x|[2]|{b: 2}", "y|[5]|{b: 5}", "z|[]|", "|[7]|{b: 7}"],
        ),
        ("select arg_max(a, [1, b]), arg_min(a, {'b': b}), max([b], 2) from u", &["z|x|[[], [7]]"]),
        ("select max([k]), max([k])[1] + 1 from t where k < 0", &["|"]),
    ])
    .await;
    check_refusals(&[
        ("select max([[k]]) from t", "max of BIGINT[][] is not supported"),
        ("select min(map {'a': k}) from t", "min of a map is not supported"),
        ("select arg_max(k, {'a': [k]}) from t", "must be plain values"),
        ("select max([k]) over () from t", "with OVER is not supported"),
        ("select max(b, 0) from u", "not above 0"),
        ("select min(b, -1) from u", "not above 0"),
        ("select max(b, null) from u", "whole number above 0"),
        ("select max(b, 'x') from u", "whole number above 0"),
        ("select arg_max(a, b, 0) from u", "not above 0"),
        ("select arg_max(a, b, 1, 2) from u", "two or three arguments"),
        ("select max(b, 1, 2) from u", "`max` takes a column"),
        ("select entropy(a, b) from u", "it takes one argument"),
        ("select approx_quantile(b, 2) from u", "a number between 0 and 1"),
        ("select approx_quantile(a, 0.5) from u", "quantile_disc"),
        ("select approx_quantile(date '2024-01-01', 0.5)", "quantile_disc"),
        (
            "select count(*) from t group by cube((k, k), k+1, k+2, k+3, k+4, k+5, k+6, k+7, k+8, k+9, k+10, k+11, k+12)",
            "more than 4096 grouping sets",
        ),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_of_rows() {
    const V: &str = "(values (1, 2, 3), (1, 2, 4)) v(a, b, c)";
    for (sql, expected) in [
        (
            "select a, b, c, count(*) from {} group by rollup((a, b), c) order by all",
            &["1|2|3|1", "1|2|4|1", "1|2||2", "|||2"][..],
        ),
        (
            "select a, b, c, count(*), grouping(a) from {} group by cube((a, b), c) order by all",
            &["1|2|3|1|0", "1|2|4|1|0", "1|2||2|0", "||3|1|1", "||4|1|1", "|||2|1"],
        ),
        (
            "select a, c, count(*) from {} group by a, rollup((b, c), (c, b)) order by all",
            &["1|3|1", "1|3|1", "1|4|1", "1|4|1", "1||2"],
        ),
        // Several of them have each set of the one with each of the other, also twice the same.
        (
            "select a, b, c, count(*), grouping(b, c) from {} group by a, rollup(b), cube(c) order by all",
            &["1|2|3|1|0", "1|2|4|1|0", "1|2||2|1", "1||3|1|2", "1||4|1|2", "1|||2|3"],
        ),
        (
            "select a, b, count(*) from {} group by rollup(a), rollup(a, b) order by all",
            &["1|2|2", "1|2|2", "1||2", "1||2", "1||2", "||2"],
        ),
        (
            "select a, b, c, count(*) from {} group by grouping sets (a, rollup(b, 3)) order by all",
            &["1|||2", "|2|3|1", "|2|4|1", "|2||2", "|||2"],
        ),
        (
            "select a, b, c, count(*) from {} group by grouping sets (cube(b, (a, c)), grouping sets ((c), ())) order by all",
            &["1|2|3|1", "1|2|4|1", "1||3|1", "1||4|1", "|2||2", "||3|1", "||4|1", "|||2", "|||2"],
        ),
        (
            "select a + 1 as x, count(*) from {} group by grouping sets (rollup(1), rollup(1)) order by all",
            &["2|2", "2|2", "|2", "|2"],
        ),
        (
            "select count(*) from {} group by grouping sets (grouping sets (grouping sets ((b, c), ()))) order by all",
            &["1", "1", "2"],
        ),
        (
            "select cube, grouping(cube) from (select a as cube from {}) group by rollup(cube) order by all",
            &["1|0", "|1"],
        ),
    ] {
        for workers in [1, 3] {
            let sql = sql.replace("{}", V);
            assert_eq!(table(&sql, workers).await.unwrap().1, expected, "{sql}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_without_their_own_row() {
    const V: &str = "(values (1, 1), (2, 2), (3, null), (4, 4)) v(o, k)";
    let near = "rows between 1 preceding and 1 following exclude current row";
    let peers = "groups between 1 preceding and 1 following exclude group";
    let window = |list: &str, frame: &str| {
        let list = list.replace("()", &format!(" over (order by o {frame})"));
        format!("select {list} from {V} order by o")
    };
    for (sql, expected) in [
        (
            window("sum(k)(), count(*)(), count(k)(), avg(k)(), min(k)(), max(k)()", near),
            &["2|1|1|2.0|2|2", "1|2|1|1.0|1|1", "6|2|2|3.0|2|4", "|1|0|||"][..],
        ),
        (
            window("sum(k)()", "rows between 2 preceding and current row exclude current row"),
            &["", "1", "3", "2"],
        ),
        (
            window(
                "sum(k)(), count(*)()",
                "rows between 1 following and 2 following exclude current row",
            ),
            &["2|2", "4|2", "4|1", "|0"],
        ),
        (
            window(
                "sum(k)()",
                "range between unbounded preceding and unbounded following exclude current row",
            ),
            &["6", "5", "7", "3"],
        ),
        (
            window("sum(k)()", "rows between 1 preceding and 1 following exclude no others"),
            &["3", "3", "6", "4"],
        ),
        (window("sum(k)() - 1", near), &["1", "0", "5", ""]),
        (
            format!(
                "select o, sum(k) over (order by o {peers}), count(*) over (order by o {peers})
                from (values (1, 1), (2, 2), (2, null), (4, 4)) v(o, k) order by 1, 2"
            ),
            &["1|2|2", "2|5|2", "2|5|2", "4|2|2"],
        ),
    ] {
        for workers in [1, 3] {
            assert_eq!(table(&sql, workers).await.unwrap().1, expected, "{sql}");
        }
    }
    for (sql, part) in [
        (window("sum(k)()", "exclude current row"), "SM-0101"),
        (window("array_agg(k order by o)()", near), "EXCLUDE is not supported with this function"),
        (window("nothing(k)()", near), "EXCLUDE is not supported with this function"),
        (window("first_value(k, 1)()", near), "`first_value` with EXCLUDE takes other arguments"),
        (window("sum('x', k)()", near), "`sum` with EXCLUDE takes other arguments"),
        (format!("select sum(k) over w from {V} window w as (order by o {near})"), "not in WINDOW"),
    ] {
        let report = table(&sql, 1).await.unwrap_err();
        assert!(report.contains(part) && report.contains("SM-01"), "{sql}: {report}");
        assert!(!report.contains("excluding"), "{sql}: {report}");
    }
}

/// A subquery without FROM is an expression.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_without_tables() {
    check(&[
        ("select k from t order by (select -t.k)", &["3", "2", "1"]),
        ("select k, (select -k) as m, (select (select k + 1)) from t where (select t.k) > 1 order by m",
            &["3|-3|4", "2|-2|3"]),
        ("select (select k % 2), sum(k) from t group by (select k % 2) order by 1", &["0|2", "1|4"]),
        ("select k from t order by (select 1), k desc", &["3", "2", "1"]),
    ])
    .await;
    let (names, _) = table("select (select -x) from (values (1)) v(x)", 1).await.unwrap();
    assert_eq!(names, "(SELECT -x)");
    check_refusals(&[
        ("select k from t a order by (select -k.a)", "SM-01"),
        ("select k from t order by (select abs(k))", "a subquery as a value in this place"),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn elements_with_their_places() {
    const L: &str = "(values (1, [5, 6]), (2, []), (3, null), (4, [null])) l(k, l)";
    for (sql, expected) in [
        ("select * from unnest([10, 20]) with ordinality as t(x, i)", &["10|1", "20|2"][..]),
        (
            "select k, x, i from {}, unnest(l) with ordinality as t(x, i) order by all",
            &["1|5|1", "1|6|2", "4||1"],
        ),
        (
            "select k, x, i from {} left join lateral unnest(l) with ordinality as t(x, i) on true order by all",
            &["1|5|1", "1|6|2", "2||", "3||", "4||1"],
        ),
        (
            "select * from unnest([1, 2], ['a', 'b', 'c']) with ordinality as t(x, y, i)",
            &["1|a|1", "2|b|2", "|c|3"],
        ),
        ("select x * i from generate_series(5, 7) with ordinality as t(x, i)", &["5", "12", "21"]),
        (
            "select n_nationkey, x, i from nation, range(n_regionkey) with ordinality as t(x, i) order by all limit 2",
            &["1|0|1", "2|0|1"],
        ),
    ] {
        for workers in [1, 3] {
            let sql = sql.replace("{}", L);
            assert_eq!(table(&sql, workers).await.unwrap().1, expected, "{sql}");
        }
    }
    for (sql, names) in [
        ("select * from unnest([10]) with ordinality", "unnest|ordinality"),
        ("select * from unnest([10]) with ordinality as t", "t|ordinality"),
        ("select t.ordinality from unnest([10]) with ordinality as t(x)", "ordinality"),
    ] {
        assert_eq!(table(sql, 1).await.unwrap().0, names, "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn samples_that_can_be_repeated() {
    for sample in ["bernoulli (20) repeatable (7)", "(500 rows) repeatable (7)"] {
        let sql = |sample: &str| {
            format!("select o_orderkey from orders tablesample {sample} order by o_orderkey")
        };
        let first = table(&sql(sample), 1).await.unwrap().1;
        assert!(first.len() > 100, "{sample}: {}", first.len());
        for workers in [1, 4] {
            assert_eq!(table(&sql(sample), workers).await.unwrap().1, first, "{sample}");
        }
        let other = table(&sql(&sample.replace("(7)", "(8)")), 2).await.unwrap().1;
        assert_ne!(other, first, "{sample}");
    }
    check(&[
        (
            "select count(*) < 4500 and count(*) > 1500 from orders tablesample 20 percent repeatable (1)",
            &["true"],
        ),
        ("select count(*) from nation n tablesample (7 rows) repeatable (3) where n.n_nationkey >= 0", &["7"]),
        ("select count(*) from (select k, l from t, (values ([1], {'a': 1})) v(l, s)) tablesample (2 rows) repeatable (3)", &["2"]),
        ("select count(*) from nation tablesample 100 percent repeatable (0)", &["25"]),
    ])
    .await;
    check_refusals(&[(
        "select count(*) from t, lateral (select b from u where b = k) tablesample 50 percent repeatable (1)",
        "columns are known before",
    )])
    .await;
}

/// DataFusion subtracts what leaves a frame: then 1 is lost beside 1e20, and all behind an `inf`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sums_of_floats_in_frames_that_move_lose_nothing() {
    const VALUES: &str = "(values (1, 5.0::double), (2, 1e20), (3, 1), (4, 2)) v(o, x)";
    for (sql, expected) in [
        (
            "select sum(x) over (order by o rows between 1 following and unbounded following) in (3, 2) from {}",
            ["false", "true", "true", ""],
        ),
        (
            "select sum(x) over (order by o rows between unbounded preceding and unbounded following exclude current row) = 8 from {}",
            ["false", "true", "false", "false"],
        ),
        (
            "select avg(x) over (order by o rows between current row and 1 following) in (1.5, 2) from {}",
            ["false", "false", "true", "true"],
        ),
    ] {
        let sql = sql.replace("{}", VALUES);
        assert_eq!(table(&format!("{sql} order by o"), 1).await.unwrap().1, expected, "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subqueries_without_from_keep_their_clauses_and_their_names() {
    check(&[
        (
            "select -k as j, k as i from (values (1), (2)) v(k) order by (select -v.k)",
            &["-2|2", "-1|1"],
        ),
        ("select k from (values (1), (2)) v(k) order by (select -k)", &["2", "1"]),
    ])
    .await;
    check_refusals(&[
        ("select (select k |> where k > 5) from (values (0), (9)) v(k)", ""),
        ("select -k as k from (values (1), (2)) v(k) order by (select k)", ""),
        ("select k from (values (2, [2])) v(k, l) where 2 = any (select l)", ""),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn texts_beside_a_uuid_are_read_as_uuids() {
    const UPPER: &str = "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11";
    for condition in [
        "x::uuid = '{}'",
        "'{}' = x::uuid",
        "x::uuid in ('{}')",
        "x::uuid between '{}' and '{}'",
        "x::uuid is not distinct from '{}'",
    ] {
        let condition = condition.replace("{}", UPPER);
        let sql = format!(
            "select count(*) from (values ('{}')) v(x) where {condition}",
            UPPER.to_lowercase()
        );
        assert_eq!(table(&sql, 1).await.unwrap().1, ["1"], "{sql}");
    }
}
