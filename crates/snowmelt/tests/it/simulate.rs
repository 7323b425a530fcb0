//! `snowmelt simulate`: what it prints, and what it refuses.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::run::{RunOutput, TestEnv};

const SMALL: [&str; 5] = ["simulate", "--hosts", "7", "--image-size", "10MB"];

fn with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    SMALL.iter().chain(more).copied().collect()
}

#[test]
fn a_simulation_prints_a_row_for_each_strategy() {
    let env = TestEnv::new();
    let ran = env.run(&with(&["--start-bytes", "2MB", "--containers", "16"]));
    assert_eq!(ran.exit, Some(0), "{}", ran.err);
    insta::assert_snapshot!("simulate", format!("{}\n{}", ran.out, ran.err));
}

#[test]
fn the_same_seed_prints_the_same_json() {
    let env = TestEnv::new();
    let seeded = |seed| {
        let more = ["--start-bytes=2MB", "--kill=2", "--strategy=tree,layers", "-o=json", "--seed"];
        let ran = env.run(&with(&[more.as_slice(), &[seed]].concat()));
        assert_eq!(ran.exit, Some(0), "{}", ran.err);
        ran.out
    };
    let first = seeded("3");
    assert_eq!(first, seeded("3"));
    assert_ne!(first, seeded("4"));
    let answer: serde_json::Value = serde_json::from_str(&first).unwrap();
    assert_eq!(answer["simulated"], true);
    assert_eq!(answer["outcomes"][0]["strategy"], "tree");
    assert_eq!(answer["outcomes"][1]["hosts"], 5);
    assert!(!answer["assumptions"].as_array().unwrap().is_empty());
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    let env = TestEnv::new();
    let refused = env.run(&with(&["--start-bytes=20MB"]));
    assert_eq!((refused.exit, refused.out.as_str()), (Some(2), ""));
    assert!(refused.err.contains("SM-0110"), "{}", refused.err);
    assert!(refused.err.contains("a start reads more than the image has"), "{}", refused.err);
    let refused = env.run(&with(&["--start-bytes=2MB", "--kill=7"]));
    assert!(refused.err.contains("no host is left"), "{}", refused.err);
}

const CALLS: &str = "app,func,end_timestamp,duration\n\
                     a,f,2,2\na,f,2.5,2\na,g,92,2\na,f,93,1.5\na,f,2003,1\n";

fn replay<'a>(file: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let small =
        ["simulate", "--hosts=3", "--image-size=10MB", "--start-bytes=2MB", "--trace", file];
    small.iter().chain(more).copied().collect()
}

#[test]
fn a_trace_prints_totals_and_a_table_over_time() {
    let env = TestEnv::new();
    let file = env.write("calls.csv", CALLS).display().to_string();
    let shown = |more: &[&str]| {
        let ran = env.run(&replay(&file, more));
        assert_eq!(ran.exit, Some(0), "{}", ran.err);
        format!("{}\n{}", ran.out, ran.err).replace(&file, "[calls.csv]")
    };
    insta::assert_snapshot!("replay", shown(&["--every=15m"]));
    let json = shown(&["-o=json", "--strategy=stripes,pull"]);
    let answer: serde_json::Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
    assert_eq!((&answer["simulated"], &answer["synthetic"]), (&true.into(), &false.into()));
    let replays = answer["replays"].as_array().unwrap();
    assert_eq!(replays.len(), 2);
    assert_eq!((&replays[0]["calls"], &replays[0]["ran"]), (&5.into(), &5.into()));
    assert_eq!(replays[1]["windows"].as_array().unwrap().len(), 34);
}

#[test]
fn a_synthetic_trace_says_so() {
    let env = TestEnv::new();
    let made = ["--synthetic=gaming", "--image-size=10MB", "--start-bytes=2MB", "--strategy=tree"];
    let ran = |more: &[&str]| {
        let ran = env.run(&[&["simulate", "--hosts=120"], &made[..], more].concat());
        assert_eq!(ran.exit, Some(0), "{}", ran.err);
        ran
    };
    let table = ran(&[]);
    assert!(table.err.contains("of a synthetic trace after FaaSNet's gaming"), "{}", table.err);
    let json = ran(&["-o=json", "--seed=5"]).out;
    assert!(json.contains("\"synthetic\":true"), "{json}");
    assert_eq!(json, ran(&["-o=json", "--seed=5"]).out);
}

#[test]
fn a_trace_may_be_compressed_and_come_from_stdin() {
    let env = TestEnv::new();
    let of = |ran: RunOutput| {
        assert_eq!(ran.exit, Some(0), "{}", ran.err);
        ran.out
    };
    let plain = env.write("calls.csv", CALLS).display().to_string();
    let expected = of(env.run(&replay(&plain, &[])));
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(CALLS.as_bytes()).unwrap();
    let gzip = gzip.finish().unwrap();
    let compressed = env.path("calls").display().to_string();
    std::fs::write(&compressed, &gzip).unwrap();
    assert_eq!(of(env.run(&replay(&compressed, &[]))), expected);
    assert_eq!(of(env.run_fed(&gzip, &replay("-", &[]))), expected);
    let fed = env.run_fed(CALLS, &replay("-", &[]));
    assert!(fed.err.contains("of stdin"), "{}", fed.err);
    assert_eq!(of(fed), expected);
    let cut = env.run_fed(&gzip[..gzip.len() / 2], &replay("-", &[]));
    assert!(cut.exit == Some(1) && cut.err.contains("SM-0106"), "{}", cut.err);
}

#[test]
fn a_trace_that_is_not_as_expected_is_refused() {
    let env = TestEnv::new();
    let file = env
        .write("calls.csv", "app,func,end_timestamp,duration\na,f,1,1\na,f,NaN,1\n")
        .display()
        .to_string();
    let refused = env.run(&replay(&file, &[]));
    assert_eq!((refused.exit, refused.out.as_str()), (Some(1), ""));
    assert!(refused.err.contains("SM-0106"), "{}", refused.err);
    assert!(refused.err.contains("`end_timestamp` is `NaN`, expected seconds"), "{}", refused.err);
    assert!(refused.err.contains("calls.csv:3"), "{}", refused.err);
    let absent = env.run(&replay("absent.csv", &[]));
    assert_eq!(absent.exit, Some(2));
    assert!(absent.err.contains("absent.csv cannot be read"), "{}", absent.err);
    let layers = env.run(&replay(&file, &["--kill=1"]));
    assert_eq!(layers.exit, Some(2), "{}", layers.err);
    let alone = env.run(&["simulate", "--reclaim=5m"]);
    assert_eq!(alone.exit, Some(2), "{}", alone.err);
}

#[test]
fn hosts_of_a_trace_fail_at_their_time() {
    let env = TestEnv::new();
    let file = env.write("calls.csv", CALLS).display().to_string();
    let failing = ["--kill=1@92s,1@400s", "--detect=500ms", "--absent=5m", "--strategy=tree,pull"];
    let ran = |more: &[&str]| {
        let ran = env.run(&replay(&file, &[&failing, more].concat()));
        assert_eq!(ran.exit, Some(0), "{}", ran.err);
        format!("{}\n{}", ran.out, ran.err).replace(&file, "[calls.csv]")
    };
    insta::assert_snapshot!("failures", ran(&["--async=0.5"]));
    let csv = ran(&["-o=csv"]);
    let mut fields = csv.lines().take(3).map(|line| line.split(',').count());
    assert!(fields.all(|count| count == 25), "{csv}");
    let json = ran(&["-o=json"]);
    let answer: serde_json::Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
    let losses = &answer["replays"][0]["losses"];
    assert_eq!((&losses["hosts"], &losses["joined"]), (&2.into(), &2.into()));
}

#[test]
fn failures_that_make_no_sense_are_refused() {
    let env = TestEnv::new();
    let file = env.write("calls.csv", CALLS).display().to_string();
    let refused = |words: &[&str], what: &str| {
        let refused = env.run(words);
        assert_eq!((refused.exit, refused.out.as_str()), (Some(2), ""), "{}", refused.err);
        assert!(refused.err.contains(what), "{}", refused.err);
    };
    let of_trace = |more: &[&str], what: &str| refused(&replay(&file, more), what);
    of_trace(&["--kill=2"], "--kill 2 does not say when");
    of_trace(&["--kill=3@10s"], "no host is left if 3 fail at 10s");
    of_trace(&["--kill=1@2h"], "the last call arrives at 2002s");
    of_trace(&["--kill=0@2s"], "no host fails at 2s");
    of_trace(&["--kill=one@2s"], "`one@2s` is not a number of hosts");
    of_trace(&["--kill=1@soon"], "a length of time");
    of_trace(&["--async=1.5"], "not from 0 to 1");
    of_trace(&["--absent=5s"], "--kill");
    refused(&with(&["--start-bytes=2MB", "--kill=1@5s"]), "at random moments");
    refused(&with(&["--start-bytes=2MB", "--kill=1,2"]), "at random moments");
    refused(&with(&["--start-bytes=2MB", "--async=1"]), "--trace");
}
