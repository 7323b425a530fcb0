//! CSV files whose values are written otherwise: decimal commas, null words, dates, ragged records.

use std::path::Path;

use snowmelt_query::{QuerySpec, plan};
use snowmelt_wire::CsvOption;

use crate::formats::{found, put};
use crate::runner::{InProcess, failure, located, refusal};

async fn same_for_all(sql: &str, root: &Path, expected: &str) {
    for workers in [1, 3] {
        assert_eq!(found(sql, root, workers).await, expected, "{sql}, {workers} workers");
    }
}

const BANK: &str = "Tag;Wert;Betrag;Art\n\
                    31.12.2024;31.12.2024 10:30;-1.234,50;NA\n\
                    01.02.2024;01.02.2024 23:59:59;7;-\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_are_read_as_they_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    put(&root.join("bank.csv"), BANK).await;
    put(
        &root.join("us.csv.gz"),
        "d,t\n12/31/2024,12/31/2024 11:59 PM\n01/02/2024,1/2/2024 7:05 AM\n",
    )
    .await;
    put(&root.join("vague.csv"), "d,e\n01/02/2024,2024/02/01\n03/04/2024,2024/12/31\n").await;
    let german = "read_csv('bank.csv', decimal => ',', thousands => '.', nullstr => ['NA', '-'])";
    for (sql, expected) in [
        (
            "select \"Tag\", \"Wert\" from 'bank.csv'".to_owned(),
            "|2024-12-31|2024-12-31T10:30:00|\n|2024-02-01|2024-02-01T23:59:59|",
        ),
        (format!("select sum(\"Betrag\"), count(\"Art\") from {german}"), "|-1227.5|0|"),
        (
            "select d, t from 'us.csv.gz'".to_owned(),
            "|2024-12-31|2024-12-31T23:59:00|\n|2024-01-02|2024-01-02T07:05:00|",
        ),
        // Which day it is cannot be told, unless the query says it.
        ("select min(d), min(e) from 'vague.csv'".to_owned(), "|01/02/2024|2024-02-01|"),
        (
            "select min(d), min(e) from read_csv('vague.csv', dateformat => '%d/%m/%Y')".to_owned(),
            "|2024-02-01|2024/02/01|",
        ),
        (
            "select d from read_csv('vague.csv', types => {'d': 'varchar', 'e': 'varchar'})"
                .to_owned(),
            "|01/02/2024|\n|03/04/2024|",
        ),
    ] {
        same_for_all(&sql, root, expected).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_have_the_names_and_types_of_the_query() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    put(&root.join("x.csv"), "1,2.005,2024-01-01\n2,3,\n").await;
    put(&root.join("h.csv"), "a,b,c\n1,2,3\n").await;
    let columns = "columns => {'id': 'SMALLINT', 'price': 'DECIMAL(10,2)', 'day': 'DATE'}";
    for (sql, expected) in [
        (
            format!("describe select * from read_csv('x.csv', {columns})"),
            "|id|SMALLINT|true|\n|price|DECIMAL(10,2)|true|\n|day|DATE|true|",
        ),
        (format!("select sum(price), sum(id) from read_csv('x.csv', {columns})"), "|5.01|3|"),
        ("select q + r + c from read_csv('h.csv', names => ['q', 'r'])".to_owned(), "|6|"),
        (
            "select a || b, c + 1 from read_csv('h.csv', types => ['varchar', 'text'])".to_owned(),
            "|12|4|",
        ),
    ] {
        same_for_all(&sql, root, expected).await;
    }
    for (call, parts) in [
        ("read_csv('h.csv', types => {'zz': 'DATE'})", ["SM-0110", "`zz`, which no file has"]),
        ("read_csv('h.csv', columns => {'a': 'DATE'})", ["SM-0110", "`columns` says 1 columns"]),
        ("read_csv('h.csv', types => {'a': 'money'})", ["SM-0110", "DECIMAL(p, s)"]),
    ] {
        let report = refusal(&located(&format!("select * from {call}"), root)).await;
        assert!(parts.iter().all(|part| report.contains(part)), "{call}: {report}");
    }
    let query = located("select max(a) from read_csv('h.csv', types => {'a': 'DATE'})", root);
    let report = failure(&query, InProcess::default()).await;
    assert!(
        report.contains("SM-0119") && report.contains("`a` is DATE, and `1` is not"),
        "{report}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ragged_records_and_comments_are_read_if_the_query_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    put(&root.join("short.csv"), "a,b\n1\n2,3,4\n5,6\n").await;
    put(&root.join("wrong.csv"), "a,b\n1,x\n2,y,z\nthree\n4,v\n").await;
    put(&root.join("typed.csv"), "a,b\n1,true\nx,true\n3,\n\"4\",yes,no\n5.5,false\n").await;
    put(&root.join("note.csv"), "# made \"today\na,b\n1,x#y\n# no\n2,\"z#\"\n").await;
    for (sql, expected) in [
        (
            "select a, b, column2 from read_csv('short.csv', null_padding => true)",
            "|1|||\n|2|3|4|\n|5|6||",
        ),
        ("select a, b from read_csv('wrong.csv', ignore_errors => true)", "|1|x|\n|4|v|"),
        // Whatever columns a query uses, the same records fit.
        (
            "select count(*) from read_csv('typed.csv', ignore_errors => true, types => {'a': 'INT'})",
            "|2|",
        ),
        (
            "select b, a from read_csv('typed.csv', ignore_errors => true, types => {'a': 'INT'})",
            "|true|1|\n||3|",
        ),
        ("select a, b from read_csv('note.csv', comment => '#')", "|1|x|\n|2|z#|"),
    ] {
        same_for_all(sql, root, expected).await;
    }
    let rows: String = (0..90_000)
        .map(|n| match n % 30_000 {
            29_999 => "x;y;z\n".to_owned(),
            7 => format!("# about {n}\n"),
            _ => format!("{n};some text of a long row\n"),
        })
        .collect();
    put(&root.join("large.csv"), format!("id;s\n{rows}")).await;
    let lenient = "ignore_errors => true, comment => '#'";
    let sql = format!("select count(*), count(id), min(s) from read_csv('large.csv', {lenient})");
    same_for_all(&sql, root, "|89994|89994|sometextofalongrow|").await;
    let sql = "select count(*) from read_csv('large.csv', comment => '#')";
    let report = failure(&located(sql, root), InProcess::default()).await;
    assert!(report.contains("SM-0119") && report.contains("line 30001"), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn options_of_a_query_are_those_of_all_its_csv_files() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    put(&root.join("a.csv"), "n;x\n1;2,5\n").await;
    put(&root.join("b.csv"), "n;x\n1;3,5\n").await;
    let option = |name: &str, value: &str| CsvOption {
        name: name.to_owned(),
        keys: Vec::new(),
        values: vec![value.to_owned()],
    };
    let with = |sql: &str, csv: Vec<CsvOption>| QuerySpec { csv, ..located(sql, root) };
    let sql = "select a.x + b.x + c.x from 'a.csv' a join 'b.csv' b using (n) \
               join read_csv('a.csv', decimal => '.', types => {'x': 'DOUBLE'}) c using (n)";
    // The option of the call counts for its table, where 2,5 is no number.
    let report = failure(&with(sql, vec![option("decimal", ",")]), InProcess::default()).await;
    assert!(report.contains("`x` is DOUBLE, and `2,5` is not"), "{report}");
    let sql = "select a.x + b.x from 'a.csv' a join read_csv('b.csv') b using (n)";
    let (batches, ..) =
        crate::runner::answer(&with(sql, vec![option("decimal", ",")]), std::sync::Arc::default())
            .await
            .unwrap();
    let text = arrow::util::pretty::pretty_format_batches(&batches).unwrap().to_string();
    assert!(text.contains("| 6.0 "), "{text}");
    let typed =
        |column: &str| CsvOption { keys: vec![column.to_owned()], ..option("types", "VARCHAR") };
    put(&root.join("c.csv"), "n;y\n1;2\n").await;
    // One of the tables has the column.
    let joined = "select x || y from 'a.csv' join 'c.csv' using (n)";
    assert!(plan(&with(joined, vec![typed("y"), option("delim", ";")])).await.is_ok());
    let report = refusal(&with(joined, vec![typed("z")])).await;
    assert!(report.contains("SM-0110") && report.contains("`z`, which no file has"), "{report}");
    let report = refusal(&with(sql, vec![option("delimm", ";")])).await;
    assert!(report.contains("SM-0110") && report.contains("delim, quote, escape"), "{report}");
}

/// A line of a comment hides the delimiter from the recognition.
#[tokio::test]
async fn a_file_whose_delimiter_is_not_recognised_is_refused_with_what_to_name() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    put(&root.join("t.csv"), "a;b\n1;2,5\n# x\n3;4\n").await;
    let wrong = failure(&located("select * from 't.csv'", root), InProcess::default()).await;
    assert!(wrong.contains("SM-0119") && wrong.contains("delim => ';'"), "{wrong}");
    let named = "select * from read_csv('t.csv', delim => ';', comment => '#', decimal => ',')";
    same_for_all(named, root, "|1|2.5|\n|3|4.0|").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn marks_inside_of_values_are_read_if_the_query_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let rows = "1,\"x \"y\" z\"\n2,\"line\n\"b\" end\" \n3,\"plain\"\n4,a \"b\" c\n";
    put(&root.join("loose.csv"), format!("n,s\n{rows}")).await;
    let loose = "read_csv('loose.csv', strict_mode => false)";
    for (sql, expected) in [
        (format!("select n, replace(s, chr(10), '/') from {loose} order by n"),
            "|1|x\"y\"z|\n|2|line/\"b\"end|\n|3|plain|\n|4|a\"b\"c|"),
        (format!("select count(*), sum(n) from {loose}"), "|4|10|"),
        ("select count(*), sum(n) from read_csv('loose.csv', strict_mode => false, comment => '#', ignore_errors => true)".to_owned(),
            "|4|10|"),
    ] {
        same_for_all(&sql, root, expected).await;
    }
    let many: String = (0..100_000).map(|n| format!("{n},\"some \"text\" {n}\"\n")).collect();
    put(&root.join("more.csv"), format!("n,s\n{many}")).await;
    let sql = "select count(*), min(s) from read_csv('more.csv', strict_mode => false)";
    same_for_all(sql, root, "|100000|some\"text\"0|").await;
}

/// Else the records up to the next mark would vanish in the value.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_that_may_have_ended_in_an_earlier_line_is_refused_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let wide: String = (0..150_000).map(|n| format!("\"x\",{n}\n")).collect();
    for wrong in ["\"27\"\",5", "\"27\" x,5"] {
        put(&root.join("t.csv"), format!("s,n\na,1\n{wrong}\nb,2\n\"x\",3\n")).await;
        put(&root.join("wide.csv"), format!("s,n\n{wide}{wrong}\nb,2\n\"x\",3\n")).await;
        for (file, line) in [("t.csv", 3), ("wide.csv", 150_002)] {
            for ignores in ["", ", ignore_errors => true"] {
                let sql = format!(
                    "select count(*), max(s) from read_csv('{file}', strict_mode => false{ignores})"
                );
                let report = failure(&located(&sql, root), InProcess::default()).await;
                assert!(report.contains("SM-0119"), "{report}");
                assert!(report.contains(&format!("{file}`, line {line}: ")), "{report}");
                assert!(report.contains("meant as its end"), "{report}");
            }
        }
    }
    put(&root.join("t.csv"), "s,n\n\"27\"\",b\",5\n\"x \"\"y\"\" z\nw\",6\n").await;
    let sql = "select replace(s, chr(10), '/'), n from read_csv('t.csv', strict_mode => false) order by n";
    same_for_all(sql, root, "|27\",b|5|\n|x\"y\"z/w|6|").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_may_have_dates_of_different_forms() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    put(&root.join("d.csv"), "d,e,f,t\n01/02/2024,01/02/2024,2024-02-01,1.2.2024 7h05\n").await;
    put(&root.join("v.csv"), "01/02/2024,01/02/2024\n").await;
    let forms = "dateformat => {'D': '%d/%m/%Y', 'e': '%m/%d/%Y'}";
    let times = "timestampformat => {'t': '%d.%m.%Y %Hh%M'}";
    for (sql, expected) in [
        (format!("select d, e, f, t from read_csv('d.csv', {forms}, {times})"),
            "|2024-02-01|2024-01-02|2024-02-01|2024-02-01T07:05:00|"),
        ("select d, e, f from read_csv('d.csv', dateformat => '%m/%d/%Y', dateformat => {'d': '%d/%m/%Y'})".to_owned(),
            "|2024-02-01|2024-01-02|2024-02-01|"),
        ("select column0, column1 from read_csv('v.csv', header => false, dateformat => {'column1': '%d/%m/%Y'})".to_owned(),
            "|01/02/2024|2024-02-01|"),
        ("select a, b from read_csv('v.csv', names => ['a', 'b'], header => false, dateformat => {'b': '%m/%d/%Y'})".to_owned(),
            "|01/02/2024|2024-01-02|"),
    ] {
        same_for_all(&sql, root, expected).await;
    }
    for (call, part) in [
        ("read_csv('d.csv', dateformat => {'zz': '%d/%m/%Y'})", "`dateformat` has the column `zz`"),
        (
            "read_csv('d.csv', timestampformat => {'zz': '%d/%m/%Y %H:%M'})",
            "`timestampformat` has the column `zz`",
        ),
        ("read_csv('d.csv', dateformat => {'d': '%d'})", "formats of columns by name"),
        ("read_csv('d.csv', dateformat => ['%d/%m/%Y', '%m/%d/%Y'])", "formats of columns by name"),
    ] {
        let report = refusal(&located(&format!("select * from {call}"), root)).await;
        assert!(report.contains("SM-0110") && report.contains(part), "{call}: {report}");
    }
}
