//! The rarer forms and functions of DuckDB and PostgreSQL. Each expected answer is DuckDB's, and
//! PostgreSQL's where they differ.

use crate::everyday::{TABLES, check, table};

/// Each refusal has a message and a hint without names of the program.
async fn check_refusals(cases: &[(&str, &str, &str)]) {
    for (sql, message, hint) in cases {
        let answer = table(&format!("{TABLES}{sql}"), 1).await;
        let report = answer.map(|(_, rows)| rows).expect_err(sql);
        assert!(report.contains(message) && report.contains(hint), "{sql}: {report}");
        assert!(!report.contains(" {") && !report.contains("Ident"), "{sql}: {report}");
    }
}

async fn columns_of(sql: &str) -> String {
    table(&format!("{TABLES}{sql}"), 1).await.unwrap().0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_filter_needs_no_where() {
    check(&[
        ("select count(*) filter (k > 1), sum(k) filter(k < 3) from t", &["2|3"]),
        ("select sum(k) filter (k > 1) over () from t limit 1", &["5"]),
        ("select string_agg(a, '' order by b) filter (b < 3) from u", &["xx"]),
        ("select filter from unnest([1, 2]) filter (filter) order by 1", &["1", "2"]),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_are_chosen_by_their_names() {
    for (sql, names) in [
        ("select * like 'n_n%' from nation", "n_nationkey|n_name"),
        ("select * not like 'n_n%' from nation", "n_regionkey|n_comment"),
        ("select * ilike 'N\\_C%' from nation", "n_comment"),
        ("select * glob '*key' from nation", "n_nationkey|n_regionkey"),
        ("select * similar to '%(key|name)' from nation", "n_nationkey|n_name|n_regionkey"),
        ("select n_name, * like '%key' from nation", "n_name|n_nationkey|n_regionkey"),
        ("select max(columns(* like '%key')) from nation", "n_nationkey|n_regionkey"),
        (
            "select columns(lambda c: c like '%key' and c <> 'n_nationkey' or c in ('n_name')) from nation",
            "n_name|n_regionkey",
        ),
    ] {
        assert_eq!(columns_of(sql).await, names, "{sql}");
    }
    check_refusals(&[
        ("select * like 'zz%' from t", "`columns`", "it finds no column"),
        ("select t.* ilike 'k' from t", "a condition of the columns of one table", "write * LIKE"),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subquery_may_be_a_list() {
    check(&[
        (
            "select array(select k from t order by k desc), array(select k from t where k > 5)",
            &["[3, 2, 1]|[]"],
        ),
        (
            "select k, array(select b from u where b <= t.k order by b desc) from t order by k",
            &["1|[1]", "2|[2, 1]", "3|[2, 1]"],
        ),
        ("select array(select distinct a from u where a is not null order by a)", &["[x, y, z]"]),
        ("select array(select a from u group by a order by count(*) desc, a limit 2)", &["[x, y]"]),
        ("select array(select upper(a) from u order by b limit 3)", &["[X, X, Y]"]),
        ("select array(select a as x from u where b < 6 order by b, x)", &["[x, x, y]"]),
        ("select array(select 1 union all select 2 order by 1), array[1, 2]", &["[1, 2]|[1, 2]"]),
        ("select len(array(select null::int from t))", &["3"]),
    ])
    .await;
    check_refusals(&[("select array(select distinct a from u order by b)", "`array`", "DISTINCT")])
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_and_all_of_a_subquery_are_values_where_they_are_in() {
    check(&[
        ("select k, k = any (select b from u where b is not null), k <> all (select b from u where b < 2)
          from t order by k", &["1|true|false", "2|true|true", "3|false|true"]),
        ("select k, k = any (select b from u), k = some (select 2) from t order by k",
            &["1|true|false", "2|true|true", "3||false"]),
        ("select k from t where k > any (select b from u) and k <= all (select 2) order by k", &["2"]),
        ("select k from t where k <> all (select b from u where b < 3)", &["3"]),
        ("select (select count(*) from t where k > any (select b from u)) as n", &["2"]),
    ])
    .await;
    check_refusals(&[(
        "select k > any (select b from u) from t",
        "ANY and ALL with a subquery are conditions of WHERE",
        "SELECT min(y)",
    )])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn functions_may_be_behind_their_first_argument() {
    check(&[
        ("select 'a'.upper(), [3, 1].list_sort(), 'a b'.string_split(' ').len()", &["A|[1, 3]|2"]),
        (
            "select distinct a.upper().concat('!') from u where a.length() = 1 order by 1",
            &["X!", "Y!", "Z!"],
        ),
        ("select u.a.upper(), pg_catalog.lower('A') from u where b = 1", &["X|a"]),
        ("select {'a': 'x'}.a.upper(), t.k.sum() from t group by k order by 2 limit 1", &["X|1"]),
        ("select 5!, 3! + 1, -3!, k! from t where k = 3", &["120|7|-6|6"]),
    ])
    .await;
    check_refusals(&[("select k.nothing() from t", "no function `nothing`", "")]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_forms_are_refused_with_what_to_write() {
    check_refusals(&[
        ("select k from t limit 20%", "no percentage", "QUALIFY row_number()"),
        ("select k from t limit 20 percent", "no percentage", "QUALIFY row_number()"),
        ("select * from t positional join u", "POSITIONAL JOIN is not supported", "row_number()"),
        ("select * from (pivot u on a using sum(b))", "with ON are statements", "FROM t PIVOT"),
        (
            ", p as (pivot u on a using sum(b)) select * from p",
            "with ON are statements",
            "FROM t PIVOT",
        ),
        ("select * from (summarize t)", "are statements, and not tables", "run them alone"),
        (
            ", d as (describe select 1) select * from d",
            "are statements, and not tables",
            "run them alone",
        ),
        (
            "select (select a from u order by b limit 1 offset t.k) from t",
            "no columns",
            "row_number()",
        ),
        ("select range from t, range(2) as r", "no column `range`", "the name of its table"),
        ("select unnest from t, unnest([1]) as u", "no column `unnest`", "the name of its table"),
        ("select fill(k) over (order by k) from t", "no function `fill`", "IGNORE NULLS"),
        ("select hash(k) from t", "no function `hash`", "md5"),
        ("select favg(k) from t", "no function `favg`", "use avg(x)"),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn functions_of_numbers_and_texts() {
    check(&[
        ("select even(2.1), even(-3), even(0), even(null), even(1.5::decimal(4, 1))",
            &["4.0|-4.0|0.0||2.0"]),
        ("select bar(3.3, 0, 10, 4), length(bar(1, 0, 10)), bar(null, 0, 1)", &["█▎  |80|"]),
        ("select damerau_levenshtein('ca', 'abc'), damerau_levenshtein('ab', 'ba'),
                 damerau_levenshtein('é', ''), damerau_levenshtein(null, 'a')", &["2|1|1|"]),
        ("select parse_filename('/a/b.txt'), parse_filename('/a/b.txt', true), parse_filename(null),
                 parse_filename('a\\b/c\\d.x', true, 'forward_slash'), parse_filename('a/b', 'backslash')",
            &[r"b.txt|b||c\d|a/b"]),
        ("select parse_path('/a//b'), parse_path(''), parse_dirname('a/b/c'), parse_dirpath('a/b/c')",
            &["[/, a, b]|[]|a|a/b"]),
        ("select encode('aé'), decode(encode('aé')), decode(null), encode('a', 'hex')", &["61c3a9|aé||61"]),
        ("select regexp_split_to_table('a b c', ' +')", &["a", "b", "c"]),
        ("select x, n from u, regexp_split_to_table(a || '-' || b, '-') with ordinality as x(x, n) where b = 1",
            &["x|1", "1|2"]),
        ("select w, count(*) from regexp_split_to_table('b a b', ' ') as w group by 1 order by 1",
            &["a|1", "b|2"]),
        ("select isoyear(date '2024-12-30'), isoyear(timestamp '2021-01-01 00:00:00'), isoyear(null::date)",
            &["2025|2020|"]),
    ])
    .await;
    check_refusals(&[
        ("select bar(1, 0, 2, 1001)", "a bar cannot have 1001 characters", "from 1 to 1000"),
        (r"select decode('\xff'::blob)", "no text in UTF-8", "hex(x)"),
        ("select encode(1)", "takes a text", ""),
        ("select parse_path('a', 'x')", "no separators `x`", "both_slash"),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn functions_of_lists_structs_and_maps() {
    check(&[
        ("select list_unique([1, 1, null, 2]), list_unique([]::int[]), list_unique(null::int[]), list_unique([null]::int[])",
            &["2|0||0"]),
        ("select map_contains(map(['a'], [1]), 'a'), map_contains(map(['a'], [1]), 'b'),
                 map_contains_value(map([1], ['x']), 'x')", &["true|false|true"]),
        ("select struct_insert({'a': k}, b := 'x', \"C d\" := null) from t where k = 1",
            &["{a: 1, b: x, C d: }"]),
        ("select struct_insert(s, b := 2).a, struct_insert(s, b := 2).b
          from (select case when k > 1 then {'a': k} end as s, k from t) order by k", &["|2", "2|2", "3|2"]),
        (r#"select json_contains('{"a": {"b": 1}}', '{"a": {}}'), json_contains('[1, [2]]', '3'), json_contains(null, '1')"#,
            &["true|false|"]),
        (r#"select to_json(map([1, 2], ['a', null])), json_object('m', map([date '2020-01-01'], [map([true], [1.5])]))"#,
            &[r#"{"1":"a","2":null}|{"m":{"2020-01-01":{"true":1.5}}}"#]),
    ])
    .await;
    check_refusals(&[
        ("select struct_insert({'a': 1}, a := 2)", "two fields with the name `a`", ""),
        ("select struct_insert({'a': 1}, 2)", "`struct_insert`", ""),
        ("select json_contains('1', '{')", "no JSON", "json_valid"),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn buckets_of_times_may_begin_elsewhere() {
    let at = "timestamp '2024-02-05 05:00:00'";
    for (call, expected) in [
        (format!("time_bucket(interval '2 days', {at}, interval '1 day')"), "2024-02-05T00:00:00"),
        (format!("time_bucket(interval '2 days', {at}, timestamp '2024-01-02 00:00:00')"), "2024-02-05T00:00:00"),
        (format!("time_bucket(interval '2 days', {at}, date '2024-01-03')"), "2024-02-04T00:00:00"),
        (format!("time_bucket(interval '2 months', {at}, interval '1 month')"), "2024-02-01T00:00:00"),
        (format!("time_bucket(interval '2 months', {at}, interval '10 days')"), "2024-01-11T00:00:00"),
        (format!("time_bucket(interval '1 month', {at}, timestamp '2024-03-02 00:00:00')"), "2024-02-01T00:00:00"),
        ("time_bucket(interval '3 days', timestamp '1990-02-05 05:00:00', timestamp '2000-01-02 00:00:00')".to_owned(),
            "1990-02-05T00:00:00"),
        ("time_bucket(interval '2 days', null::timestamp, interval '1 day')".to_owned(), ""),
    ] {
        let (_, rows) = table(&format!("select {call}"), 1).await.unwrap();
        assert_eq!(rows, [expected], "{call}");
    }
}
