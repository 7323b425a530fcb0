//! Parts of a query that several others read run once, with the columns and rows that these need.

use snowmelt_query::plan;

use crate::answers::check;
use crate::runner::spec;

/// Customers with their orders by year.
const YEARS: &str = "years as (
    select o_custkey k, extract(year from o_orderdate) y, sum(o_totalprice) total, count(*) n,
        max(o_orderpriority) p
    from orders join customer on o_custkey = c_custkey group by 1, 2)";

/// Statements, and how often they scan `orders`.
const STATEMENTS: &[(&str, usize)] = &[
    // Other columns.
    ("with YEARS select a.k, a.total, b.n from years a join years b on a.k = b.k and a.y = b.y + 1", 1),
    // Other rows, of which none is missing in either.
    (
        "with YEARS select a.k, a.n, b.p from years a join years b on a.k = b.k
         where a.y = 1995 and b.y = 1996 and b.total > 1000",
        1,
    ),
    // One reads all rows, the other few.
    (
        "with YEARS select (select max(total) from years), k, n from years where y = 1997 and k < 100",
        1,
    ),
    // Neither has a column.
    ("with YEARS select (select count(*) from years) a, (select count(*) from years where y < 1994) b", 1),
    // A part of a part, which others read too.
    (
        "with YEARS, tops as (select y, max(total) m from years group by y)
         select a.y, a.m, b.m, c.k from tops a join tops b on a.y = b.y + 1
         join years c on c.y = a.y and c.total = a.m",
        1,
    ),
    // Only one place reads the inner part, although the outer one is read twice.
    (
        "with YEARS, tops as (select y, max(total) m, min(n) l from years group by y)
         select a.y, a.m, b.l from tops a join tops b on a.y = b.y + 1",
        1,
    ),
    // Set operations, and a subquery that depends on a row.
    (
        "with YEARS select k, y from years where n > 3 union all select k, n from years where y = 1998
         union select k, 0 from years a where total > (select avg(total) from years b where b.y = a.y)",
        1,
    ),
    // Windows.
    (
        "with w as (select o_custkey k, o_orderkey o, rank() over (partition by o_custkey order by
         o_totalprice desc, o_orderkey) r, sum(o_totalprice) over (partition by o_custkey) s from orders)
         select a.k, a.o, b.o, a.s from w a join w b on a.k = b.k and a.r = b.r - 1 where a.r < 3",
        1,
    ),
    // Not worth it: a scan with a filter.
    (
        "with c as (select * from orders where o_orderkey < 5000)
         select a.o_orderkey, b.o_totalprice from c a join c b on a.o_orderkey = b.o_orderkey + 1",
        2,
    ),
    // Equal parts without a name of their own.
    (
        "select a.k, a.s, b.n from (select o_custkey k, sum(o_totalprice) s, count(*) n from orders group by 1) a
         join (select o_custkey k, sum(o_totalprice) s, count(*) n from orders group by 1) b on a.k = b.k + 1",
        1,
    ),
    // A condition that only an outer join leaves to the rows above it.
    (
        "with YEARS select a.k, b.total from years a left join years b on a.k = b.k + 1 and b.y = 1995
         where a.y = 1996",
        1,
    ),
];

fn statements() -> impl Iterator<Item = (String, usize)> {
    STATEMENTS.iter().map(|(sql, scans)| (sql.replace("YEARS", YEARS), *scans))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_with_several_readers_give_the_answers_of_plain_datafusion() {
    for (sql, _) in statements() {
        check(&sql, false).await;
    }
}

#[tokio::test]
async fn a_part_with_several_readers_runs_once() {
    for (sql, scans) in statements() {
        let plan = plan(&spec(&sql, 4)).await.unwrap();
        let workers = plan.worker_plan();
        let driver = plan.driver_plan();
        assert!(!workers.contains("Shared") && !driver.contains("Shared"), "{workers}");
        let is_of_orders = |line: &&str| {
            line.contains("ParquetScan")
                && (line.contains("o_custkey") || line.contains("o_orderkey"))
        };
        let found = workers.lines().filter(is_of_orders).count();
        assert_eq!(found, scans, "{sql}\n{driver}\n{workers}");
    }
}

/// All readers of a part filter it, so it has only the rows that one of them needs.
#[tokio::test]
async fn a_part_has_the_rows_that_one_of_its_readers_needs() {
    let sql = "with y as (select o_custkey k, o_orderdate d, sum(o_totalprice) s from orders group by 1, 2)
        select a.k, b.s from y a join y b on a.k = b.k where a.d = '1995-01-02' and b.d = '1996-03-04'";
    let plan = plan(&spec(sql, 4)).await.unwrap();
    let scan = plan.worker_plan().lines().find(|line| line.contains("ParquetScan")).unwrap();
    assert!(scan.contains("1995-01-02") && scan.contains("1996-03-04"), "{scan}");
}

#[tokio::test]
async fn a_stage_has_as_many_tasks_as_its_bytes_are_worth() {
    let sql = "select l_orderkey, l_tax from lineitem where l_tax > 0.01";
    let mut query = spec(sql, 4);
    query.scan_task_bytes = 64 << 20;
    let whole = plan(&query).await.unwrap();
    assert_eq!(whole.tasks().unwrap().len(), 1);
    assert!(whole.bytes_total() < 60_175 * 8);
    // A row counts for eight bytes, however few it has in the file: 60175 rows.
    for (bytes, tasks) in [(60_175 * 8, 1), (60_175 * 4, 2), (60_175 * 3, 3), (1, 4), (0, 4)] {
        query.scan_task_bytes = bytes;
        assert_eq!(plan(&query).await.unwrap().tasks().unwrap().len(), tasks, "{bytes}");
    }
}
