//! Subqueries in LATERAL, whose rows are those for one row of the tables before them. Each expected
//! answer is DuckDB's.

use crate::everyday::{check, table};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subqueries_are_computed_for_each_outer_row() {
    check(&[
        ("select k, b from t, lateral (select b from u where b >= k order by b limit 1) order by k",
            &["1|1", "2|2", "3|5"]),
        ("select k, b from t, lateral (select b from u where b > k order by b limit 2 offset 1) order by k, b",
            &["1|5", "1|7", "2|7", "3|7"]),
        ("select k, a, b from t left join lateral (select * from u where b = k order by a limit 1) on true order by k",
            &["1|x|1", "2|x|2", "3||"]),
        ("select k, b from t left join lateral (select b from u where b > k order by b limit 2) x on x.b > 2 order by k, b",
            &["1|5", "2|5", "2|7", "3|5", "3|7"]),
        ("select k, n, b from t, lateral (select b, row_number() over (order by b desc) n from u where b > k) order by k, n",
            &["1|1|7", "1|2|5", "1|3|2", "2|1|7", "2|2|5", "3|1|7", "3|2|5"]),
        ("select k, s from t, lateral (select sum(b) over (order by b) s from u where b <> k) order by k, s",
            &["1|2", "1|7", "1|14", "2|1", "2|6", "2|13", "3|1", "3|3", "3|8", "3|15"]),
        ("select k, y, z from t, lateral (select k + 1 as y) p, lateral (select y * 2 as z) q order by k",
            &["1|2|4", "2|3|6", "3|4|8"]),
        ("select k, y from t, lateral (values (k), (k * 10)) v(y) order by k, y",
            &["1|1", "1|10", "2|2", "2|20", "3|3", "3|30"]),
        ("select k, y from t, lateral (select k as y union all select b from u where b = k) order by k, y",
            &["1|1", "1|1", "2|2", "2|2", "3|3"]),
        ("select k, y from t, lateral (select k % 2 as y union select b from u where b > k) order by k, y",
            &["1|1", "1|2", "1|5", "1|7", "2|0", "2|5", "2|7", "3|1", "3|5", "3|7"]),
        ("select k, n, s from t, lateral (select count(*) as n, sum(b) + k as s from u where b > k + 2) order by k",
            &["1|2|13", "2|2|14", "3|1|10"]),
        ("select k, n from t, lateral (select count(*) + 1 as n from u where b > 6 and k > 2) order by k",
            &["1|1", "2|1", "3|2"]),
        ("select k, n from t, lateral (select count(*) as n from u where b = k having count(*) > 0) order by k",
            &["1|1", "2|1"]),
        ("select k, a, n from t, lateral (select a, count(*) as n from u where b > k group by a having count(*) >= 1) order by k, a nulls last",
            &["1|x|1", "1|y|1", "1||1", "2|y|1", "2||1", "3|y|1", "3||1"]),
        ("select k, a from t, lateral (select distinct a from u where b > k) order by k, a nulls last",
            &["1|x", "1|y", "1|", "2|y", "2|", "3|y", "3|"]),
        ("select k, a, b from t, lateral (select distinct on (a) a, b from u where b >= k order by a, b desc) order by k, a nulls last",
            &["1|x|2", "1|y|5", "1||7", "2|x|2", "2|y|5", "2||7", "3|y|5", "3||7"]),
        ("select k, v.b from t, lateral (select u.b from u join t s on s.k = u.b and s.k >= t.k) v order by k, b",
            &["1|1", "1|2", "2|2"]),
        ("select k, v.b, v.j from t, lateral (select u.b, s.k as j from u left join t s on s.k = u.b and s.k >= t.k where u.b < 6) v order by k, b",
            &["1|1|1", "1|2|2", "1|5|", "2|1|", "2|2|2", "2|5|", "3|1|", "3|2|", "3|5|"]),
        ("select o.a, v.m from u o, lateral (select max(b) as m from u i where i.a is not distinct from o.a) v order by o.b nulls last",
            &["x|2", "x|2", "y|5", "|7", "z|"]),
        ("select o.b, v.b from u o left join lateral (select b from u i where i.a is not distinct from o.a order by b nulls last limit 1) v on true order by o.b nulls last",
            &["1|1", "2|1", "5|5", "7|7", "|"]),
        ("select t.k, x.b, y.j from t, lateral (select b from u where b >= k order by b limit 1) x, lateral (select s.k from t s where s.k <= x.b order by s.k desc limit 1) y(j) order by t.k",
            &["1|1|1", "2|2|2", "3|5|3"]),
        ("select k, m from t, lateral (select max(y) as m from (select b + k as y from u where b < 6) v) order by k",
            &["1|6", "2|7", "3|8"]),
        ("select count(*) from t, lateral (select b from u where b > k limit 1)",
            &["3"]),
        ("select count(*) from (select n_name, n_nationkey from nation order by n_regionkey limit 7) s,
            lateral (select b from u where b < n_nationkey + 3 order by b limit 1)", &["7"]),
        ("select k, y from (select k from t order by k desc limit 2) s, lateral (select k + b as y from u order by b limit 1) order by k",
            &["2|3", "3|4"]),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_files_are_outer_rows() {
    check(&[
        ("select r_name, n_name from region cross join lateral (select n_name from nation
            where n_regionkey = r_regionkey order by n_name limit 1) n order by r_name limit 2",
            &["AFRICA|ALGERIA", "AMERICA|ARGENTINA"]),
        ("select count(*), sum(place) from region, lateral (select rank() over (order by n_name) as place
            from nation where n_regionkey = r_regionkey) n", &["25|75"]),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn series_of_a_column_are_rows() {
    check(&[
        (
            "select k, i from t, generate_series(1, k) g(i) where k < 3 order by k, i",
            &["1|1", "2|1", "2|2"],
        ),
        (
            "select k, i from t cross join lateral range(k) i where k < 3 order by k, i",
            &["1|0", "2|0", "2|1"],
        ),
        ("select sum(i) from generate_series(1, 4) g(i)", &["10"]),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_computed_for_each_row_is_refused() {
    for (from, part) in [
        ("t right join lateral (select k as y limit 1) v on true", "SM-0"),
        ("(select random() as k) t, lateral (select k as y limit 1) v", "other rows"),
        (
            "(values (interval '1 month'), (interval '30 days')) t(i),
            lateral (select date '2024-01-31' + i as y) v",
            "intervals",
        ),
        (
            "(select n_regionkey, avg(n_nationkey::double) as m from nation group by n_regionkey) t,
            lateral (select r_name from region where r_regionkey > m limit 1) v",
            "other rows",
        ),
        (
            "(values (1)) t(k), lateral (select n_name from nation where n_nationkey > k
            group by rollup (n_name) limit 1) v",
            "GROUPING SETS",
        ),
        (
            "(values (1)) t(k), lateral (select n_name from nation where exists
            (select 1 from region where r_regionkey = n_regionkey and r_regionkey = k) limit 1) v",
            "inside of LATERAL",
        ),
    ] {
        let error = table(&format!("select * from {from}"), 1).await.unwrap_err();
        assert!(error.contains(part) && error.contains("SM-0"), "{from}: {error}");
    }
}
