//! Casts, literals and zones with PostgreSQL's answers, where DataFusion gives others.

use crate::everyday::{check, table};

/// A cast to fewer digits gives several values the same result: a comparison with it is not one with
/// the column (datafusion 23095).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_decimal_with_fewer_digits_is_compared_after_its_cast() {
    const D: &str = "(values (1.23::decimal(9, 2)), (1.16::decimal(9, 2)), (1.31::decimal(9, 2)))
                     d(x)";
    for condition in [
        "x::decimal(9, 1) = 1.2",
        "x::decimal(9, 1) = 1.2::decimal(9, 1)",
        "x::decimal(9, 1) in (1.2, 7.0)",
        "x::decimal(9, 1) between 1.2 and 1.2",
        "try_cast(x as decimal(9, 1)) = 1.2",
        "not x::decimal(9, 1) <> 1.2",
    ] {
        check(&[(&format!("select x from {D} where {condition} order by x"), &["1.16", "1.23"])])
            .await;
    }
    check(&[
        (
            &format!(
                "select d.x, y from {D} join (values (1.2::decimal(9, 1))) e(y)
                   on d.x::decimal(9, 1) = e.y order by 1"
            ),
            &["1.16|1.2", "1.23|1.2"],
        ),
        (
            &format!(
                "select x::decimal(9, 1) r, count(*) from {D} group by x::decimal(9, 1)
                   order by x::decimal(9, 1)"
            ),
            &["1.2|2", "1.3|1"],
        ),
    ])
    .await;
    let (names, _) = table(&format!("select x::decimal(9, 1) from {D}"), 1).await.unwrap();
    assert_eq!(names, "x");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn times_become_texts_as_in_postgresql() {
    check(&[
        (
            "select timestamp '2024-07-01 06:30:01.500', (timestamp '2024-07-01 06:30:01.500')::varchar",
            &["2024-07-01T06:30:01.500|2024-07-01 06:30:01.5"],
        ),
        ("select (timestamptz '2024-07-01 06:30:01Z')::varchar", &["2024-07-01 06:30:01+00"]),
        ("select timestamp '2024-07-01' || '!', concat(time '01:02:03.5', '!')",
            &["2024-07-01 00:00:00!|01:02:03.5!"]),
        ("select (interval '1 day 2 hours')::varchar, null::timestamp::varchar",
            &["1 day 02:00:00|"]),
        ("select (timestamp '2024-03-01 12:00:00' - timestamp '2024-02-28')::varchar",
            &["2 days 12:00:00"]),
        ("select count(*) from (values (timestamp '2024-07-01 06:30:00'), (null)) n(x)
          where x::varchar like '2024-07-01 06%'", &["1"]),
        ("select x::varchar, count(*) from (values (timestamp '2024-07-01 06:30:00')) n(x)
          group by x::varchar", &["2024-07-01 06:30:00|1"]),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_zone_changes_between_what_clocks_show_and_utc() {
    check(&[
        ("select (timestamptz '2024-07-01 18:00:00Z' at time zone 'America/Denver')::timestamp",
            &["2024-07-01T12:00:00"]),
        ("select timestamp '2024-07-01 12:00:00' at time zone 'America/Denver'",
            &["2024-07-01T18:00:00Z"]),
        ("select extract(hour from timestamp '2024-07-01 12:00:00' at time zone 'America/Denver')",
            &["18"]),
        ("select (x at time zone z)::varchar from (values
            (timestamptz '2024-01-01 00:00:00Z', 'Asia/Kolkata'),
            (timestamptz '2024-01-01 00:00:00Z', 'America/New_York'),
            (timestamptz '2024-01-01 00:00:00Z', null), (null, 'UTC')) v(x, z) order by 1",
            &["2023-12-31 19:00:00", "2024-01-01 05:30:00", "", ""]),
        ("select timezone('UTC', timestamp '9999-12-31 23:59:59')", &["9999-12-31T23:59:59Z"]),
    ])
    .await;
    for (zone, words) in [("Nowhere/Land", "no time zone"), ("+05:30", "not the name")] {
        let sql = format!("select timestamp '2024-07-01' at time zone '{zone}'");
        let error = table(&sql, 1).await.unwrap_err();
        assert!(error.contains(words), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_whole_number_beyond_integers_keeps_its_digits() {
    check(&[
        (
            "select 99999999999999999999999999999999999999",
            &["99999999999999999999999999999999999999"],
        ),
        (
            "select 18446744073709551616 + 1, -18446744073709551616",
            &["18446744073709551617|-18446744073709551616"],
        ),
        (
            "select 18446744073709551615, 9223372036854775808",
            &["18446744073709551615|9223372036854775808"],
        ),
    ])
    .await;
}

const TRIPS: &str = "(values (timestamp '2024-01-03', timestamp '2024-01-01'),
    (timestamp '2024-01-01 12:00:00', timestamp '2024-01-01'), (null, timestamp '2024-01-01')) t(b, a)";

/// A month has 30 days, and a day 24 hours.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn intervals_are_compared_by_their_length() {
    let of_trips = |sql: &str| sql.replace("TRIPS", TRIPS);
    for (sql, expected) in [
        ("select count(*) from TRIPS where b - a > interval '1 day'", "1"),
        ("select count(*) from TRIPS where interval '1 day' >= b - a", "1"),
        ("select count(*) from TRIPS where b - a between interval '11 hours' and interval '1 day'",
            "1"),
        ("select count(*) from TRIPS where b - a = interval '48 hours'", "1"),
        ("select count(*) from TRIPS where b - a in (interval '2 days', interval '3 days')", "1"),
        ("select count(*) from TRIPS where b - a is distinct from interval '2 days'", "2"),
        ("select count(*) filter (where b - a > interval '1 day') from TRIPS", "1"),
        ("select max(b - a)::varchar || min(b - a)::varchar from TRIPS", "2 days12:00:00"),
        ("select case when max(b - a) > interval '1 day' then 'long' end from TRIPS", "long"),
        ("select interval '25 hours' > interval '1 day' and interval '1 month' = interval '30 days'
          and interval '1 year' <> interval '365 days'", "true"),
        ("select count(*) from (values (interval '24 hours')) a(x)
          join (values (interval '1 day'), (interval '2 days')) b(x) on a.x = b.x", "1"),
        ("select max(x)::varchar || ' ' || min(x)::varchar
          from (values (interval '25 hours'), (interval '1 day'), (null)) t(x)", "25:00:00 1 day"),
        ("select string_agg(x::varchar, ', ' order by x desc)
          from (values (interval '25 hours'), (interval '1 day')) t(x)", "25:00:00, 1 day"),
        ("select x::varchar from (values (interval '25 hours'), (interval '1 day')) t(x)
          order by x limit 1", "1 day"),
        ("select x::varchar from (values (interval '25 hours'), (interval '1 day')) t(x)
          qualify row_number() over (order by x) = 1", "1 day"),
    ] {
        check(&[(&of_trips(sql), &[expected])]).await;
    }
    check(&[
        ("select count(*) from (values (interval '30 days')) t(i)
          where i in (select interval '1 month')", &["1"]),
        ("select count(*) from (values (interval '30 days'), (interval '1 day')) t(i)
          where i not in (select interval '1 month')", &["1"]),
        ("select case i when interval '1 month' then 'same' end, nullif(i, interval '1 month') is null
          from (values (interval '30 days')) t(i)", &["same|true"]),
        ("select distinct on (k) k, i::varchar from (values (1, interval '1 day'),
            (1, interval '20 hours')) t(k, i) order by k, i", &["1|20:00:00"]),
    ])
    .await;
    for (sql, part) in [
        ("select count(*) from (values (interval '1 day')) t(x) group by rollup (x)", "ROLLUP"),
        (
            "select array_agg(distinct x) from (values (interval '1 day')) t(x)",
            "different intervals",
        ),
        (
            "select list_contains(l, interval '1 day') from (values ([interval '24 hours'])) t(l)",
            "for an interval in a list",
        ),
        ("select list_distinct([interval '1 day'])", "`array_distinct` of intervals"),
        ("select mode(x) from (values (interval '1 day')) t(x)", "`list_mode` of intervals"),
        ("select max(x) over () from (values (interval '1 day')) t(x)", "no window functions"),
        ("select greatest(x, x) from (values (interval '1 day')) t(x)", "`greatest` of intervals"),
        ("select list_max([interval '1 day'])", "`array_max` of intervals"),
        ("select checked_span(interval '1 day')", "no function `checked_span`"),
        ("select 'abc' at time zone 'UTC'", "abc"),
    ] {
        let error = table(sql, 1).await.unwrap_err();
        assert!(error.contains(part), "{sql}: {error}");
    }
}

/// Intervals of one length are one group, as in PostgreSQL.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn intervals_are_grouped_by_their_length() {
    const SPANS: &str =
        "(values (1, interval '1 day'), (2, interval '24 hours'), (3, interval '1 month'),
        (4, interval '30 days'), (5, null), (6, interval '1 day')) s(n, i)";
    let of_spans = |sql: &str| sql.replace("SPANS", SPANS);
    for (sql, expected) in [
        (
            "select i::varchar, count(*), sum(n) from SPANS group by i order by i",
            &["1 day|3|9", "1 mon|2|7", "|1|5"][..],
        ),
        ("select count(*) from (select distinct i from SPANS)", &["3"]),
        ("select count(distinct i), count(distinct n) from SPANS", &["2|6"]),
        (
            "select n % 2, count(*) from SPANS group by n % 2, i order by 1, 2",
            &["0|1", "0|2", "1|1", "1|1", "1|1"],
        ),
        ("select count(*) from (select i from SPANS union select interval '720 hours')", &["3"]),
        (
            "select n, count(*) over (partition by i) from SPANS order by n limit 3",
            &["1|3", "2|3", "3|2"],
        ),
        ("select distinct on (i) n from SPANS order by i, n", &["1", "3", "5"]),
        ("select max(n) from SPANS where i = any([interval '24 hours', null])", &["6"]),
        ("select list_contains([interval '24 hours'], interval '1 day')", &["true"]),
    ] {
        check(&[(&of_spans(sql), expected)]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn intervals_are_read_as_postgresql_writes_them() {
    check(&[
        ("select interval '1 day 02:03:04'::varchar, '1:30'::interval::varchar, interval '-0:30'::varchar,
            interval '1-2'::varchar, interval 'P1DT2H'::varchar",
            &["1 day 02:03:04|01:30:00|-00:30:00|1 year 2 mons|1 day 02:00:00"]),
        ("select (interval (k) day)::varchar, date '2024-01-31' + interval (k) month from t order by k limit 1",
            &["1 day|2024-02-29T00:00:00"]),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn types_have_the_names_of_other_databases() {
    check(&[
        ("select '2024-01-02 03:04:05.6789'::timestamp_ms::varchar, '2024-01-02 03:04:05'::timestamp_s::varchar,
            '2024-01-02 03:04:05.123456789'::timestamp_ns::varchar, cast('2024-01-02 03:04:05' as datetime)::varchar",
            &["2024-01-02 03:04:05.678|2024-01-02 03:04:05|2024-01-02 03:04:05.123456789|2024-01-02 03:04:05"]),
        ("select typeof(1::uinteger), typeof(1::ubigint), typeof(1::utinyint), 1::long, 'a'::bpchar",
            &["INTEGER UNSIGNED|BIGINT UNSIGNED|TINYINT UNSIGNED|1|a"]),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn intervals_have_multiples() {
    check(&[
        (
            "select (interval '1 day' * 2)::varchar, (2 * interval '1 month')::varchar,
            (interval '1 hour' / 2)::varchar, (interval '1 month' * 1.5)::varchar",
            &["2 days|2 mons|00:30:00|1 mon 15 days"],
        ),
        (
            "select (date '2024-01-31' + interval '1 month' * k)::date from t order by k",
            &["2024-02-29", "2024-03-31", "2024-04-30"],
        ),
        (
            &format!("select sum(b - a)::varchar, ((max(b - a) / 2) * 3)::varchar from {TRIPS}"),
            &["2 days 12:00:00|3 days"],
        ),
        ("select interval '1 day' * null", &[""]),
        ("select (v / m)::varchar from (values (0, null::interval), (2, interval '1 day')) t(m, v)
          order by 1", &["12:00:00", ""]),
        ("select timestamp '1970-01-01' + 1700000000457 * interval '1 millisecond'
            = to_timestamp_millis(1700000000457)", &["true"]),
    ])
    .await;
    let error = table("select interval '1 day' / 0", 1).await.unwrap_err();
    assert!(error.to_lowercase().contains("zero"), "{error}");
    let error = table("select interval '1 year' * 1e12", 1).await.unwrap_err();
    assert!(error.contains("too long"), "{error}");
}
