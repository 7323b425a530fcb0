//! Subqueries that are a value for each outer row, with which they compare otherwise than by `=`, or
//! whose first row they take. Each expected answer is DuckDB's.

use crate::everyday::check;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_of_the_outer_row() {
    check(&[
        ("select k, (select max(b.k) from t b where b.k <= a.k - 1) from t a order by k", &["1|", "2|1", "3|2"]),
        ("select k, (select count(*) from u where b > k) from t order by k", &["1|3", "2|2", "3|2"]),
        ("select k, (select sum(b) from u where b > k and b < k + 3) from t order by k", &["1|2", "2|", "3|5"]),
        ("select b, (select count(*) from t where k <= b) from u order by b", &["1|1", "2|2", "5|3", "7|3", "|0"]),
        ("select k from t a where k > (select avg(b.k) from t b where b.k <> a.k) order by k", &["3"]),
        ("select k, (select b from u where b >= k order by b limit 1) from t order by k", &["1|1", "2|2", "3|5"]),
        ("select k, (select a from u where b = k order by a desc limit 1) from t order by k", &["1|x", "2|x", "3|"]),
        ("select r_name, (select n_name from nation where n_regionkey = r_regionkey order by n_nationkey desc limit 1)
          from region order by 1 limit 2", &["AFRICA|MOZAMBIQUE", "AMERICA|UNITED STATES"]),
        ("select k, exists (select 1 from u where b > k + 1), (select count(*) from u where (b > k) is not true) from t order by k",
            &["1|true|2", "2|true|3", "3|true|3"]),
        ("select k, (select count(*) from u where b + 1 = k) from t order by k", &["1|0", "2|1", "3|1"]),
        ("select b, (select count(*) from u v where v.a is not distinct from u.a) from u order by b",
            &["1|2", "2|2", "5|1", "7|1", "|1"]),
        ("select b, (select count(*) from t where k <> b or b is null) from u order by b", &["1|2", "2|2", "5|3", "7|3", "|3"]),
        // A table of several files. The keys of nations are 0 to 24.
        ("select sum((select count(*) from nation where n_nationkey < c_nationkey)) = sum(c_nationkey) from customer",
            &["true"]),
        ("select count(*) from nation a where n_nationkey >
            (select avg(n_nationkey) from nation b where b.n_regionkey <> a.n_regionkey)", &["13"]),
    ])
    .await;
}

/// A subquery without a row is null, also if its column never is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_of_no_row() {
    check(&[
        ("select coalesce((select k from (values (1)) v(k) where k > 5), 7)", &["7"]),
        ("select (select 0 where false) is null, (select 5 limit 0) is null", &["true|true"]),
        ("select (select count(*) from t having count(*) > 3) is null", &["true"]),
        ("select (select row_number() over () from (values (1)) v(k) where k > 3) is null", &["true"]),
        ("select case when (select k from (values (1)) v(k) where k > 5) is not null then 'a' else 'b' end", &["b"]),
        ("select ((select 0 where false) > 1) is null, coalesce((select 3), 7)", &["true|3"]),
        ("select v.k, coalesce((select 0 where v.k > 1), 9) from (values (1), (2)) v(k) order by 1", &["1|9", "2|0"]),
        ("select v.k, (select count(*) from (values (1), (3)) b(j) where b.j = v.k group by b.j) is null
          from (values (1), (2)) v(k) order by 1", &["1|false", "2|true"]),
        // A column of Parquet that is required.
        ("select coalesce((select n_nationkey from nation where n_nationkey > 90 limit 1), -1)", &["-1"]),
    ])
    .await;
}

/// An aggregate behind the name of a derived table, in a subquery.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_of_derived_tables() {
    check(&[
        ("select k, (select l.c from (select count(*) c from u where b = k) l) from t order by k", &["1|1", "2|1", "3|0"]),
        ("select k, (select l.c from (select count(*) c from u where b = k) l where l.c > 0) from t order by k",
            &["1|1", "2|1", "3|"]),
        ("select k, (select c + 1 from (select count(*) c from u where b = k) l where c = 0) is null from t order by k",
            &["1|true", "2|true", "3|false"]),
        ("select k from t where (select l.c from (select count(*) c from u where b = k) l where l.c < 1) = 0", &["3"]),
        ("select k from t where exists (select 1 from (select count(*) c from u where b = k) l where c = 0)", &["3"]),
        ("select k, (with l as (select count(*) c from u where b = k) select c from l where c > 0) from t order by k",
            &["1|1", "2|1", "3|"]),
        ("select k, (select s from (select sum(b) s from u where b = k) l(s) where s is null) is null from t order by k",
            &["1|true", "2|true", "3|true"]),
    ])
    .await;
}
