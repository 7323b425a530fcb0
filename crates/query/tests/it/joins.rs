//! Queries in several stages: joins of all kinds, subqueries, set operations. Each gives the same
//! answer as plain DataFusion for any number of workers.

use std::path::Path;

use crate::answers::{check, check_against};

/// The 22 queries of TPC-H, by name.
pub fn tpch() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/tpch");
    let mut files: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let read = |path: &std::path::PathBuf| {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        (name, std::fs::read_to_string(path).unwrap())
    };
    let queries: Vec<_> = files.iter().map(read).collect();
    assert_eq!(queries.len(), 22);
    queries
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_queries_of_tpch() {
    for (_, sql) in tpch() {
        check(&sql, true).await;
    }
}

const JOINS: &[&str] = &[
    "select n_name, o_orderkey from nation join orders on n_nationkey = o_custkey",
    "select n_name, o_orderkey from nation left join orders on n_nationkey = o_custkey and o_orderkey < 900",
    "select n_name, o_orderkey from nation right join orders on n_nationkey = o_custkey where o_orderkey < 500",
    "select n_name, o_orderkey from nation full join orders on n_nationkey = o_custkey and o_orderkey < 900",
    "select a.n, b.id from odd a full join odd b on a.n = b.small where a.id < 500 or b.id < 90",
    "select l_orderkey, o_orderdate from lineitem join orders on l_orderkey = o_orderkey where l_tax > 0.07",
    "select o_orderkey, count(l_orderkey) from orders left join lineitem on l_orderkey = o_orderkey and l_quantity > 48 group by 1",
    "select count(*), sum(a.l_quantity) from lineitem a full join lineitem b on a.l_orderkey = b.l_partkey",
    "select count(*) from orders full join lineitem on o_custkey = l_suppkey and o_orderdate < l_shipdate",
    // Without keys.
    "select a.n_name, b.n_name from nation a join nation b on a.n_nationkey < b.n_regionkey",
    "select a.n_name, b.id from nation a left join odd b on a.n_nationkey < b.id and b.id < 12",
    "select a.n_name, b.id from nation a right join odd b on a.n_nationkey > b.id where b.id < 40",
    "select a.n_name, b.id from nation a full join odd b on a.n_nationkey > b.id + 9990",
    "select count(*) from nation, odd, region",
    // Semi and anti joins, with nulls.
    "select n_name from nation where n_nationkey in (select o_custkey from orders)",
    "select o_orderkey from orders where o_custkey not in (select l_suppkey from lineitem where l_tax = 0)",
    "select id from odd where n not in (select small from odd where small is not null)",
    "select id from odd where n not in (select small from odd)",
    "select id from odd a where not exists (select 1 from odd b where b.small = a.n)",
    "select id from odd a where exists (select 1 from odd b where b.n > a.n + 9900)",
    "select n_name from nation where exists (select 1 from orders)",
    "select id from odd where n > all (select small from odd where small is not null)",
    "select id from odd where small = any (select n_nationkey from nation)",
    // Values of subqueries.
    "select n_name from nation where n_nationkey = (select max(n_nationkey) from nation)",
    "select n_name, (select count(*) from orders where o_custkey = n_nationkey) from nation",
    "select id, n - (select avg(n) from odd) from odd where id < 50",
    "select (select max(l_tax) from lineitem), (select min(o_orderkey) from orders)",
    "select n_name from nation where n_regionkey = (select r_regionkey from region where false)",
    "select n_name, (select r_name from region where r_regionkey = 2) from nation",
    // Set operations.
    "select n_name from nation intersect select l_shipmode from lineitem",
    "select * from (select min(l_orderkey + 1) c from lineitem intersect select o_orderkey + 1 from orders) order by 1 desc",
    "select o_custkey from orders except select l_suppkey from lineitem",
    "select l_shipmode from lineitem union select n_name from nation",
    "select count(*) from (select l_orderkey from lineitem union all select o_orderkey from orders) group by l_orderkey % 7",
    "select l_suppkey, count(*) from (select l_suppkey from lineitem union all select n_nationkey from nation) join orders on l_suppkey = o_custkey group by 1",
    // Groups.
    "select l_shipmode, l_returnflag, sum(l_quantity), grouping(l_shipmode) from lineitem group by cube (l_shipmode, l_returnflag)",
    "select l_shipmode, l_returnflag, count(*) from lineitem group by rollup (l_shipmode, l_returnflag)",
    "select l_orderkey, count(distinct l_suppkey), sum(l_quantity) filter (where l_tax > 0.03) from lineitem group by 1",
    "select s, word, count(*), sum(n), min(day), avg(x) from odd group by s, word",
    // Windows.
    "select l_orderkey, l_linenumber, rank() over (partition by l_orderkey order by l_quantity, l_linenumber), sum(l_quantity) over (partition by l_suppkey) from lineitem where l_orderkey < 3000",
    "select id, lag(n, 2) over (partition by word order by id), ntile(4) over (order by id) from odd",
    "select id, count(*) filter (where n > 5) over (partition by word order by id) from odd where id < 900",
    "select a.id, sum(a.n) over (partition by b.n_name order by a.id) from odd a join nation b on a.small = b.n_nationkey",
    // Recursive.
    "with recursive t as (select 1 n union all select n + 1 from t where n < 50) select * from t",
    "with recursive t as (select 0 k, 0 depth union all select n_nationkey, depth + 1 from nation join t on n_regionkey = k where depth < 2) select * from t",
    "with recursive t(n) as (select n_nationkey from nation where n_nationkey < 3 union select o_orderkey % 20 from orders join t on o_custkey = n) select * from t",
    "with recursive t as (select n_nationkey k, 0 depth from nation union all select k, depth + 1 from t where depth < 3) select depth, l_linenumber, count(*) from lineitem full join t on l_suppkey = k group by 1, 2",
    "select l.n, count(*) from (select n, count(*) filter (where id > 3) over (partition by n order by id) c from odd) l full join lineitem on l.n = l_orderkey group by 1",
    // A common expression that is used twice.
    "with big as (select l_orderkey k, sum(l_quantity) q from lineitem group by 1) select a.k, b.q from big a join big b on a.k = b.k + 1 where a.q > b.q",
    // Empty inputs.
    "select * from none a join lineitem on a.n = l_orderkey",
    "select n_name, a.id from nation left join none a on a.n = n_nationkey",
    "select count(*) from orders where o_orderkey not in (select n from none)",
    "select a.s from none a full join none b on a.n = b.n",
    // Nested.
    "select o_orderpriority, c from (select o_orderpriority, count(*) c from orders o join (select l_orderkey, max(l_shipdate) m from lineitem group by 1) l on o.o_orderkey = l.l_orderkey where m > o_orderdate group by 1) where c > 10",
    "select list, word from odd a join (select distinct word w from odd where id < 100) b on a.word = b.w where id < 30",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn joins_subqueries_and_sets() {
    for sql in JOINS {
        check(sql, false).await;
    }
}

/// How often a row is there counts. DataFusion ignores that, so it is asked in other words.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn set_operations_with_all_count_duplicates() {
    let numbered = |key: &str, table: &str| {
        format!("(select {key} k, row_number() over (partition by {key}) n from {table})")
    };
    for (operation, found) in [("intersect all", "exists"), ("except all", "not exists")] {
        for (ours, theirs) in [
            (("l_suppkey", "lineitem"), ("o_custkey", "orders")),
            (("o_custkey", "orders"), ("l_suppkey", "lineitem")),
        ] {
            let sql = format!(
                "select {} from {} {operation} select {} from {}",
                ours.0, ours.1, theirs.0, theirs.1
            );
            let words = format!(
                "select k from {} a where {found} (select 1 from {} b where a.k = b.k and a.n = b.n)",
                numbered(ours.0, ours.1),
                numbered(theirs.0, theirs.1)
            );
            check_against(&sql, &words, false).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn constants_in_the_branches_of_a_union() {
    for sql in [
        "select sum(p), sum(r) from (select l_tax p, cast(0 as decimal(7,2)) r from lineitem union all select cast(0 as decimal(7,2)), o_totalprice from orders) t",
        "select sum(p), count(r) from (select n_nationkey p, null r from nation union all select 1, o_comment from orders) t",
    ] {
        check(sql, true).await;
    }
}

/// Queries in which a semi join drops rows before they are exchanged or grouped.
const REDUCED: &[&str] = &[
    "select p.id, a.q from odd p join (select l_partkey k, avg(l_quantity) q, count(*) c from lineitem group by 1) a on p.n = a.k where p.id < 60",
    "select p.id, a.q from odd p left join (select l_partkey k, avg(l_quantity) q from lineitem group by 1) a on p.n = a.k where p.id < 60",
    "select n_name from nation where exists (select 1 from (select l_suppkey k, sum(l_quantity) q from lineitem group by 1) a where a.k = n_nationkey and q > 100)",
    "select id, n from odd where id < 60 and not exists (select 1 from (select l_partkey k, sum(l_quantity) q from lineitem group by 1) a where a.k = n and q > 500)",
    "select p.id, a.k, a.s, a.q from odd p join (select l_partkey k, l_suppkey s, sum(l_quantity) q from lineitem group by 1, 2) a on p.n = a.k and p.small = a.s where p.id < 400",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_that_are_passed_to_earlier_stages() {
    for sql in REDUCED {
        let planned = snowmelt_query::plan(&crate::runner::spec(sql, 4)).await.unwrap();
        let text = planned.worker_plan();
        let grouped = text.find("mode=Partial").unwrap();
        assert!(text[grouped..].contains("join_type=RightSemi"), "{sql}\n{text}");
        check(sql, false).await;
    }
}
