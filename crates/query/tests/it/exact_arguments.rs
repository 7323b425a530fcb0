//! Numbers in calls of functions whose parameters are floats.

use crate::runner::{InProcess, failure, spec};
use crate::udfs::first_cell;

/// Columns, constants and computed values: a float has them exactly, or the query fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_are_never_rounded_on_their_way_into_a_float() {
    for (call, expected) in [
        ("same_double(9007199254740992)", "9007199254740992.0"),
        ("same_double(sum(id) * 0 - 9007199254740992)", "-9007199254740992.0"),
        ("same_double(100000000000000000000)", "1e20"),
        ("same_double(0.1)", "0.1"),
        ("same_double(max(0.1::decimal(38, 20)))", "0.1"),
        (
            "same_double(max(small))",
            &format!("{}.0", first_cell("select max(small) from odd").await),
        ),
        ("same_real(16777216)", "16777216.0"),
        ("same_real(0.1)", "0.1"),
    ] {
        assert_eq!(first_cell(&format!("select {call} from odd")).await, expected, "{call}");
    }
    for (call, number) in [
        ("same_double(9007199254740993)", "9007199254740993"),
        ("same_double(100000000000000000001)", "100000000000000000001"),
        ("same_double(id - id + 9007199254740993)", "9007199254740993"),
        ("same_double(9007199254740993::decimal(20, 0))", "9007199254740993"),
        ("same_double('90071992547409.93'::decimal(20, 2))", "90071992547409.93"),
        ("same_real(16777217)", "16777217"),
        ("total_of_doubles(id - id + 9007199254740993)", "9007199254740993"),
    ] {
        let query = spec(&format!("select max({call}) from odd"), 2);
        let query = match call.starts_with("total") {
            true => spec(&format!("select {call} from odd"), 2),
            false => query,
        };
        let report = failure(&query, InProcess::default()).await;
        assert!(report.starts_with("error[SM-0109]"), "{call}: {report}");
        assert!(report.contains(&format!("has no exact {number}")), "{call}: {report}");
    }
}
