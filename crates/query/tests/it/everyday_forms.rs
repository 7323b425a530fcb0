//! Forms of SQL of DuckDB and PostgreSQL that the parser or the planner of DataFusion lacks. Each
//! expected answer is DuckDB's, and PostgreSQL's where they differ.

use crate::everyday::{TABLES, check, table};
use crate::runner::{refusal, spec};

async fn check_refusals(cases: &[(&str, &str)]) {
    for (sql, part) in cases {
        let report = refusal(&spec(&format!("{TABLES}{sql}"), 1)).await;
        assert!(report.contains(part), "{sql}: {report}");
        assert!(!report.contains(" {") && !report.contains("Ident"), "{sql}: {report}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operators() {
    check(&[
        ("select 7 // 2, -7 // 2, 7.5::double // 2", &["3|-3|3.75"]),
        ("select k // 2, count(*) from t group by all order by all", &["0|1", "1|2"]),
        ("select 'abc' glob 'a*', 'abc' glob 'a?c', 'a' glob 'A', 'abc' not glob '[!a-b]*', 'a' glob null",
            &["true|true|false|true|"]),
        ("select n_name from nation where n_name glob 'I[RN]*' order by 1",
            &["INDIA", "INDONESIA", "IRAN", "IRAQ"]),
        ("select 0x1F, 0xff + 1, 0b101, 0o17, X'1F'", &["31|256|5|15|1f"]),
        (r"select '\x41'::bytea, blob 'a\xFF', 'abc'::blob, blob 'x', k::varchar::blob from t where k = 1", &["41|61ff|616263|78|31"]),
        ("select a collate \"C\" from u order by 1 limit 1", &["x"]),
    ])
    .await;
    check_refusals(&[
        ("select a glob b::varchar from u", "GLOB needs a pattern in quotes"),
        ("select a collate nocase from u", "COLLATE is not supported"),
        (r"select '\z'::bytea", "backslash"),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_several_values() {
    check(&[
        ("select (1, 2) in ((1, 2), (3, 4)), (1, 2) not in ((1, 3)), (1, null) in ((1, 2)), (1, null) in ((2, 2))",
            &["true|true||false"]),
        ("select (1, 2) = (1, 2), (1, 2) <> (1, 3), (1, 2) < (1, 3), (2, 1) >= (1, 9), (2, null) > (1, 0)",
            &["true|true|true|true|true"]),
        ("select a, b from u where (a, b) in (('x', 1), ('y', 5), ('z', null)) order by b", &["x|1", "y|5"]),
        ("select k from t where (k, 'x') in (select b, a from u) order by k", &["1", "2"]),
        ("select k from t where k = 3 or (k, 'x') in (select b, a from u where b = 1) order by k", &["1", "3"]),
        // A row with a null is known to differ where another value differs.
        ("select k from t where (k, 'x') not in (select b, a from u) order by k", &["3"]),
        ("select k from t where (k, 'z') not in (select b, a from u) order by k", &[]),
        ("select k from t where (k, 'x') not in (select b, a from u where a is not null and b is not null)",
            &["3"]),
        ("select k from t where not ((k, 'q') in (select b, a from u where a is not null)) order by k",
            &["1", "2", "3"]),
        ("select k, (k, 'z') in (select b, a from u where a is not null) from t order by k",
            &["1|", "2|", "3|"]),
        ("select k, (k, 'x') in (select b, a from u where b is not null and a is not null) from t order by k",
            &["1|true", "2|true", "3|false"]),
        ("select b, (b, a) in (select b, a from u where b > 2) from u order by b",
            &["1|false", "2|false", "5|true", "7|", "|"]),
        ("select count(*) from nation where (n_regionkey, n_name) in (select r_regionkey, 'IRAN' from region)",
            &["1"]),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pivot_and_unpivot() {
    const U: &str = "(select a, b, b % 2 as m from (values ('x', 1), ('x', 2), ('y', 5)) v(a, b))";
    const T: &str = "(select k, k * 2 as d, nullif(k, 2) as e from (values (1), (2), (3)) v(k))";
    for (sql, expected) in [
        (
            "pivot {} on a in ('x', 'y', 'z') using count(*) group by m order by m",
            &["0|1|0|0", "1|1|1|0"][..],
        ),
        (
            "pivot {} on a in ('x', 'z') using sum(b) as s, max(b) group by m order by m",
            &["0|2|2||", "1|1|1||"],
        ),
        ("pivot {} on a in ('x', 'y') using sum(b) order by all", &["0|2|", "1|1|5"]),
        (
            "pivot {} on m in (0, 1) using first(b order by b) group by a order by a",
            &["x|2|1", "y||5"],
        ),
        (
            "pivot (values ('x', 1), ('x', 2), (null, 7)) u(a, b) on a in ('x', null) using sum(b)",
            &["3|7"],
        ),
        (
            "select * from {} pivot (sum(b) as s for a in ('x' as one, 'y')) as p order by m",
            &["0|2|", "1|1|5"],
        ),
        ("pivot {} on a in ('x', 'y') order by b desc limit 1", &["5|1|0|1"]),
        (
            "select p.y from {} p0 pivot (sum(b) for a in ('x', 'y')) as p order by 1 limit 1",
            &["5"],
        ),
        (
            "with w as (select * from {} p) pivot w on a in ('x', 'y'), m in (0, 1) using sum(b)",
            &["2|1||5"],
        ),
        (
            "pivot {} on a in ('x', 'q'), m in (1) using sum(b) as s, count(*) group by m order by m",
            &["0||0||0", "1|1|1||0"],
        ),
        ("with w as (select * from [] p) unpivot w on d, e order by all limit 1", &["1|d|2"]),
        (
            "unpivot [] on columns(* exclude (k)) into name n value v order by all limit 2",
            &["1|d|2", "1|e|1"],
        ),
        ("unpivot [] p on columns('d|e') order by all desc limit 1", &["3|e|3"]),
        ("unpivot [] on d, e order by all", &["1|d|2", "1|e|1", "2|d|4", "3|d|6", "3|e|3"]),
        ("unpivot [] on d as double into name n value v order by v limit 1", &["1|1|double|2"]),
        (
            "select n, v from [] unpivot include nulls (v for n in (d, e))
          where k = 2 order by n",
            &["d|4", "e|"],
        ),
    ] {
        for workers in [1, 3] {
            let sql = sql.replace("{}", U).replace("[]", T);
            assert_eq!(table(&sql, workers).await.unwrap().1, expected, "{sql}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_of_pivots() {
    // Several files, in several workers.
    let pivoted = "pivot lineitem on l_shipmode in ('AIR', 'MAIL') using sum(l_quantity) group by l_returnflag order by 1";
    let filtered = "select l_returnflag, sum(l_quantity) filter (where l_shipmode = 'AIR') as AIR,
        sum(l_quantity) filter (where l_shipmode = 'MAIL') from lineitem group by 1 order by 1";
    assert_eq!(table(pivoted, 4).await.unwrap().1, table(filtered, 1).await.unwrap().1);
    let sql =
        "pivot (select 'x' as a, 1 as b, 1 as m) on a in ('x', 'y') using sum(b) as s, max(b)";
    assert_eq!(table(sql, 2).await.unwrap().0, "m|x_s|x_max(b)|y_s|y_max(b)");
    let sql = "with w as (select 'x' as a, 1 as b, 1 as m) pivot w on a in ('x'), m in (1, 2) using max(b)";
    assert_eq!(table(sql, 2).await.unwrap().0, "x_1|x_2");
    for (sql, part) in [
        (
            "pivot nation on n_name in ('IRAN') using n_nationkey + count(*)",
            "PIVOT takes aggregates",
        ),
        (
            "select * from nation pivot (count(*) for n_name in ('IRAN') default on null (0))",
            "FOR c IN",
        ),
        ("unpivot nation on n_name + 1", "UNPIVOT takes names"),
    ] {
        let report = refusal(&spec(sql, 1)).await;
        assert!(report.contains(part) && report.contains("SM-0101"), "{sql}: {report}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn samples() {
    check(&[
        ("select count(*) from nation tablesample 100 percent", &["25"]),
        ("select count(*) from nation tablesample bernoulli(0)", &["0"]),
        ("select count(*) from nation n using sample 100%", &["25"]),
        ("select count(*) from (select * from nation, region) using sample 7 rows", &["7"]),
        ("select count(*) from nation using sample 3", &["3"]),
        ("select count(*) from nation n tablesample (7 rows) where n.n_nationkey >= 0", &["7"]),
        (
            "select count(*) from nation tablesample 3 join region on n_regionkey = r_regionkey",
            &["3"],
        ),
        (
            "select count(*) < 15000 and count(*) > 500 from orders tablesample system (10%)",
            &["true"],
        ),
    ])
    .await;
    check_refusals(&[
        ("select * from nation tablesample (10) repeatable (1.5)", "the seed of a sample"),
        ("select * from nation tablesample (1 + 1)", "TABLESAMPLE"),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_of_from() {
    check(&[
        ("select min(columns(*)) from u where a = 'x'", &["x|1"]),
        ("select max(columns('b')) + 1, min(columns(*)) from u", &["8|x|1"]),
        ("select columns('n_.*key') * 10 from nation order by 1 limit 2", &["0|0", "10|10"]),
        ("select columns(* exclude (a)) from u order by 1 limit 1", &["1"]),
        ("select columns(['b', 'a']) from u order by 1 limit 1", &["1|x"]),
        (
            "select count(*) from (values (1, 2), (2, 3), (3, 1)) v(x, y) where columns(*) > 1",
            &["1"],
        ),
        ("select max(columns('k|b')) from t join u on k = b", &["2|2"]),
    ])
    .await;
    let (names, _) =
        table("select k, max(columns('n_.*key')) from nation, (select 1 as k) group by k", 2)
            .await
            .unwrap();
    assert_eq!(names, "k|n_nationkey|n_regionkey");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lambdas_of_lists() {
    check(&[
        ("select list_transform([1, 2], x -> x + 1), list_filter([1, null, 3], lambda x: x > 1)", &["[2, 3]|[3]"]),
        ("select k, list_transform([k, k + 1], lambda x: x * k) from t order by k",
            &["1|[1, 2]", "2|[4, 6]", "3|[9, 12]"]),
        ("select list_apply(['a'], s -> upper(s)), list_transform(list_filter([1, 2, 3], x -> x % 2 = 1), y -> y * y)",
            &["[A]|[1, 9]"]),
        ("select n_regionkey, list_transform(list(n_nationkey order by n_nationkey), x -> x % 10)
          from nation group by 1 order by 1 limit 1", &["0|[0, 5, 4, 5, 6]"]),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unnest_beside_a_table() {
    const L: &str = "(values (1, [10, 20]), (2, []), (3, null), (4, [null])) l(k, l)";
    for (sql, expected) in [
        ("select k, e from {}, unnest(l) as x(e) order by all", &["1|10", "1|20", "4|"][..]),
        (
            "select k, x.e + k from {} cross join lateral unnest(l.l) as x(e) where k < 4 order by all",
            &["1|11", "1|21"],
        ),
        (
            "select k, e from {} left join unnest(l) as x(e) on true order by all",
            &["1|10", "1|20", "2|", "3|", "4|"],
        ),
        (
            "select n_nationkey, e from nation, unnest([n_regionkey, n_nationkey]) as x(e) order by all limit 3",
            &["0|0", "0|0", "1|1"],
        ),
        ("select count(*), sum(e) from nation, unnest(range(n_regionkey)) as x(e)", &["50|50"]),
    ] {
        for workers in [1, 3] {
            let sql = sql.replace("{}", L);
            assert_eq!(table(&sql, workers).await.unwrap().1, expected, "{sql}");
        }
    }
}

/// The only column has the name of the table, which is that of the function if there is no other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_in_from_is_a_table_of_its_name() {
    for (sql, names, expected) in [
        ("select * from unnest([1, 2])", "unnest", &["1", "2"][..]),
        ("select * from unnest([1, 2]) as u", "u", &["1", "2"]),
        ("select u + 1 as n from unnest([1, 2]) as u where u > 1", "n", &["3"]),
        ("select u.u, U.unnest from unnest([1]) as u", "u|unnest", &["1|1"]),
        ("select unnest from unnest([3])", "unnest", &["3"]),
        ("select x.a from unnest([{'a': 1}]) as x", "a", &["1"]),
        ("select * from unnest([1, 2], ['a']) as u", "u|u_1", &["1|a", "2|"]),
        ("select x from range(2) as x order by x", "x", &["0", "1"]),
        ("select * from generate_series(1, 2) order by all", "generate_series", &["1", "2"]),
        (
            "select g.generate_series from generate_series(1, 1) g order by g.generate_series",
            "generate_series",
            &["1"],
        ),
        (
            "select range, sum(range) over () from range(2) order by 1",
            "range|sum(range) OVER ()",
            &["0|1", "1|1"],
        ),
        ("select sum(r) from range(4) r group by r % 2 order by 1", "sum(r)", &["2", "4"]),
        ("select * from range(1), range(2) order by all", "range|range", &["0|0", "0|1"]),
        (
            "select a, b.range from range(2) a join range(2) b on a = b and a.range > 0",
            "a|range",
            &["1|1"],
        ),
        (
            "select d from generate_series(date '2024-01-31', date '2024-02-01', interval 1 day) as d order by d",
            "d",
            &["2024-01-31T00:00:00", "2024-02-01T00:00:00"],
        ),
        (
            "select l, u from (values (1, [5, 6])) v(k, l), unnest(l) as u order by u",
            "l|u",
            &["[5, 6]|5", "[5, 6]|6"],
        ),
        ("select k, unnest from (values (1, [5])) v(k, l), unnest(v.l)", "k|unnest", &["1|5"]),
        (
            "select k, g, h.range from (values (1), (2)) v(k), generate_series(1, k) g, range(k) h order by all limit 2",
            "k|g|range",
            &["1|1|0", "2|1|0"],
        ),
        (
            "select k, u from (values (1, [5]), (2, null)) v(k, l) left join unnest(l) u on true order by k",
            "k|u",
            &["1|5", "2|"],
        ),
        (
            "select (select sum(u) from unnest([1, 2]) u) as s, exists (from range(0) r) as e",
            "s|e",
            &["3|false"],
        ),
    ] {
        for workers in [1, 3] {
            let (found, rows) = table(sql, workers).await.unwrap();
            assert_eq!(
                (found.as_str(), rows.as_slice()),
                (names, &expected.iter().map(|row| (*row).to_owned()).collect::<Vec<_>>()[..]),
                "{sql}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beginnings_of_texts_and_messages_without_internals() {
    check(&[
        ("select 'abc' ^@ 'ab', 'abc' ^@ 'b', a ^@ 'x' from u where b = 1", &["true|false|true"]),
        ("select k from t where k::varchar ^@ '2'", &["2"]),
    ])
    .await;
    check_refusals(&[("select {'a': k}::varchar from t", "cannot be cast to VARCHAR")]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_and_limits() {
    check(&[
        ("select d, count(*) over (order by d range between interval 1 day preceding and current row)
          from (values (timestamp '2024-01-01 00:00:00'), (timestamp '2024-01-01 20:00:00'), (timestamp '2024-01-03 00:00:00')) v(d)
          order by d", &["2024-01-01T00:00:00|1", "2024-01-01T20:00:00|2", "2024-01-03T00:00:00|1"]),
        ("select timestamp '2024-01-31 00:00:00' + interval 30 day, timestamp '2024-01-31 00:00:00' - interval '2' hours",
            &["2024-03-01T00:00:00|2024-01-30T22:00:00"]),
    ])
    .await;
    check_refusals(&[
        ("select k from t limit (select 1)", "LIMIT and OFFSET take numbers"),
        ("select k from t, u using sample 10%", "a sample of several tables"),
        ("select k from t where k > 1 using sample 10%", "a sample of several tables"),
    ])
    .await;
}
