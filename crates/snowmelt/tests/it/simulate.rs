//! `snowmelt simulate`: what it prints, and what it refuses.

use crate::run::TestEnv;

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
