//! The families of built-in functions in docs/reference/query.md, tested with the examples there.

use std::sync::Arc;

use arrow::util::pretty::pretty_format_batches;

use crate::runner::{answer, spec};

const CALLS: &[(&str, &str)] = &[
    ("md5('snow')", "2b93fbdf27d43547bec8794054c28e00"),
    (
        "encode(sha256('snow'), 'hex')",
        "a746222f09d85605c52d4e636788d6ffdc274698b98b8c5f3244c06958683a69",
    ),
    ("encode('snow', 'base64')", "c25vdw"),
    ("arrow_cast(decode('c25vdw', 'base64'), 'Utf8')", "snow"),
    ("date_trunc('month', timestamp '2024-05-06 07:08:09')", "2024-05-01T00:00:00"),
    ("round(sqrt(2), 3)", "1.414"),
    ("array_length([1, 2, 3])", "3"),
    ("regexp_replace('snow', 'o', '0')", "sn0w"),
    ("upper('snow')", "SNOW"),
    ("character_length('schnée')", "6"),
    ("coalesce(null, 'x')", "x"),
];

/// A call of each function that docs/reference/query.md names as an example.
const NAMED: &[&str] = &[
    "coalesce(s, 'x'), nullif(n, 1), greatest(n, id), arrow_cast(n, 'Utf8'), named_struct('a', n)",
    "upper(s), replace(s, 'w', 'v'), split_part(s, ' ', 1), character_length(s), substr(s, 2), levenshtein(s, 'w')",
    "regexp_like(s, 'w'), regexp_match(s, 'w'), regexp_replace(s, 'w', 'v'), regexp_count(s, 'w')",
    "date_trunc('day', day), date_part('year', day), to_timestamp(n), date_bin(interval '1' hour, to_timestamp(n))",
    "round(x), sqrt(x), power(x, 2), log(x + 1), random()",
    "md5(s), sha224(s), sha256(s), sha384(s), sha512(s), digest(s, 'sha256')",
    "encode(s, 'hex'), decode(encode(s, 'base64'), 'base64')",
    "array_length(list), flatten([list]), map(['a'], [n])",
    "row_number() over (order by id), rank() over (order by id), lag(n) over (order by id), lead(n) over (order by id), first_value(n) over (order by id), ntile(3) over (order by id)",
];

const AGGREGATES: &str = "sum(n), avg(n), count(n), median(n), approx_distinct(n), stddev(n), string_agg(s, ','), array_agg(n)";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_named_function_exists() {
    let rows =
        NAMED.iter().map(|calls| format!("select {calls} from odd where id between 4 and 8"));
    let groups = format!("select {AGGREGATES} from odd where id < 100");
    for sql in rows.chain([groups, "select unnest(list) from odd limit 3".to_owned()]) {
        for workers in [1, 3] {
            let answered = answer(&spec(&sql, workers), Arc::default()).await;
            assert!(answered.is_ok(), "{sql}: {}", answered.unwrap_err());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_family_of_functions_works() {
    for (call, expected) in CALLS {
        // The column `id` prevents that the whole query is evaluated during planning.
        let sql = format!("select {call} v, id from odd where id = 7");
        let (batches, _) = answer(&spec(&sql, 2), Arc::default())
            .await
            .unwrap_or_else(|error| panic!("{call}: {error}"));
        let text = pretty_format_batches(&batches).unwrap().to_string();
        assert!(text.contains(expected), "{call} is not {expected}\n{text}");
    }
}
