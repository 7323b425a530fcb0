//! Functions of JSON, and aggregates that need all values. Each expected answer is DuckDB's.

use crate::everyday::{check, table};
use crate::runner::{refusal, spec};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_of_json() {
    check(&[
        (r#"select json_extract('{"a": {"b": [1, 2]}}', '$.a.b[1]'), json_extract('[1, 2]', 1), json_extract('{"a": 1}', 'x')"#,
            &["2|2|"]),
        (r#"select '{"a": [1, 2]}' -> 'a' -> 0, '{"a": "x"}' ->> 'a' = 'x', '{"a": {"b": "é"}}' -> 'a' ->> 'b'"#,
            &["1|true|é"]),
        (r#"select '{"a": null}' -> '$.a', '{"a": null}' ->> '$.a', json_extract_string('{"a": [ 1 ]}', '$.a')"#,
            &["null||[1]"]),
        (r#"select json_extract('{"a": [{"b": 1}, {"b": 2}, {}]}', '$.a[*].b'), json_extract_string('["x", "y"]', '$[*]')"#,
            &["[1, 2]|[x, y]"]),
        (r#"select json_type('{}'), json_type('1'), json_type('-1'), json_type('[1.5]', '$[0]'), json_type('"s"')"#,
            &["OBJECT|UBIGINT|BIGINT|DOUBLE|VARCHAR"]),
        (r#"select json_array_length('[1, 2]'), json_array_length('{"a": [1]}', '$.a'), json_array_length('{}')"#,
            &["2|1|0"]),
        (r#"select json_keys('{"b": 1, "a": 2}'), json_exists('{"a": null}', '$.a'), json_value('{"a": [1]}', '$.a')"#,
            &["[b, a]|true|"]),
        ("select json_valid('{'), json_valid('[1]'), json_valid(null)", &["false|true|"]),
        (r#"select '{"a": 1}'::json ->> 'a', ('{"a": 2}' ->> 'a')::int + 1, json '[ 1 ]'"#, &["1|3|[1]"]),
        (r#"select unnest(json_extract('[1, {"a": 2}]', '$[*]'))"#, &["1", r#"{"a":2}"#]),
        (r#"select n_regionkey, sum(('{"k": ' || n_nationkey || '}' ->> 'k')::bigint) from nation group by 1 order by 1 limit 2"#,
            &["0|50", "1|47"]),
    ])
    .await;
    for (sql, part) in [
        ("select n_name -> 'a' from nation", "a text is no JSON"),
        ("select json_extract('{}', '$[')", "no path of JSON"),
        ("select json_array_length('[[1]]', '$[*]')", "not a single value"),
    ] {
        let failed = table(sql, 2).await.unwrap_err();
        assert!(failed.contains(part), "{sql}: {failed}");
    }
    for sql in ["select [1, 2] -> 0", "select json_keys(n_nationkey) from nation"] {
        let report = refusal(&spec(sql, 1)).await;
        assert!(report.contains("SM-0103") && report.contains("type of texts"), "{sql}: {report}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_as_json() {
    check(&[
        ("select to_json({'a': 1, 'b': [1, null]}), to_json('x\"'), to_json(1.5), to_json(null), to_json(true)",
            &[r#"{"a":1,"b":[1,null]}|"x\""|1.5||true"#]),
        ("select to_json(timestamp '2024-01-01 10:00:00'), to_json(date '2024-01-02')",
            &[r#""2024-01-01 10:00:00"|"2024-01-02""#]),
        ("select json_object('a', k, 'b', k::varchar), json_array(k, 'a', null) from t order by k limit 1",
            &[r#"{"a":1,"b":"1"}|[1,"a",null]"#]),
        ("select a, json_group_array(b) from u where a = 'y' group by a", &["y|[5]"]),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aggregates_of_all_values() {
    check(&[
        ("select mode(a), mode(b), mode(b) filter (where b > 2), mode(null) from u", &["x|1|5|"]),
        ("select mode() within group (order by a) from u", &["x"]),
        ("select quantile_disc(b, 0.5), quantile_disc(b, 0), quantile_disc(b, 1), quantile_disc(b, [0.25, 0.75]) from u",
            &["2|1|7|[1, 5]"]),
        ("select percentile_disc(0.25) within group (order by k), percentile_disc(0.25) within group (order by k desc) from t",
            &["1|3"]),
        ("select mad(b), mad(b) filter (where b > 9), mad(b) filter (where b > 2) from u", &["2.0||1.0"]),
        ("select round(skewness(b), 9), round(kurtosis(b), 9), skewness(k) from u, t where k = 1",
            &["0.323231408|-3.032967033|"]),
        ("select k, mode(b) over (order by k rows unbounded preceding) from t join u on b >= k order by k, b limit 1",
            &["1|1"]),
        ("select n_regionkey, mode(n_nationkey % 3), quantile_disc(n_name, 0.5) from nation group by 1 order by 1 limit 2",
            &["0|0|KENYA", "1|0|CANADA"]),
        ("select list_aggregate([1, 2, 2], 'mode'), list_aggregate([1, 2], 'sum'), list_aggregate(['b', 'a'], 'min')",
            &["2|3|a"]),
        ("select time_bucket(interval '2 days', timestamp '2024-01-06 05:00:00'), time_bucket(interval '3 months', timestamp '1999-02-10 00:00:00'),
                 time_bucket(interval '15 minutes', timestamp '2024-01-06 05:17:00')",
            &["2024-01-05T00:00:00|1999-01-01T00:00:00|2024-01-06T05:15:00"]),
    ])
    .await;
    let failed = table("select quantile_disc(n_nationkey, 2) from nation", 2).await.unwrap_err();
    assert!(failed.contains("between 0 and 1"), "{failed}");
}
