//! Tests that acknowledged writes survive SIGKILL. The killed process is this test binary, started
//! again.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::redb::Redb;
use crate::{Clock, Expect, Page, Store, Transaction};

/// The variable that names the file in the environment of the killed process.
const FILE: &str = "SNOWMELT_STORE_CRASH_FILE";
const ACKNOWLEDGED: &str = "acknowledged ";

#[tokio::test]
async fn acknowledged_writes_survive_sigkill_and_transactions_are_atomic() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    for round in 0..4 {
        let last = killed_after(&path, 5 + round * 7);
        let store = Redb::hold(path.clone(), None, Clock::real()).unwrap();
        let records = store.list("record/", Page::default()).await.unwrap().entries;
        let index = store.list("index/", Page::default()).await.unwrap().entries;
        let number = |key: &str| key.rsplit('/').next().unwrap_or_default().to_owned();
        let numbers: Vec<_> = records.iter().map(|entry| number(&entry.key)).collect();
        assert!(numbers.contains(&last), "{last} was acknowledged");
        assert_eq!(numbers, index.iter().map(|entry| number(&entry.key)).collect::<Vec<_>>());
        // They were written in order, so none before the last may be missing.
        let expected = (0..numbers.len()).map(|number| format!("{number:08}"));
        assert_eq!(numbers, expected.collect::<Vec<_>>());
    }
}

/// Starts a process that writes, and kills it after this many acknowledgements. Returns the last
/// acknowledgement.
fn killed_after(path: &Path, acknowledgements: usize) -> String {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "redb::crash::writes_until_it_is_killed", "--ignored", "--nocapture"])
        .env(FILE, path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut said = lines.filter_map(|line| line.strip_prefix(ACKNOWLEDGED).map(str::to_owned));
    let mut last = said.by_ref().nth(acknowledgements - 1).unwrap();
    child.kill().unwrap();
    // It may have acknowledged more until the signal came.
    last = said.last().unwrap_or(last);
    child.wait().unwrap();
    last
}

#[test]
#[ignore = "runs as the process that is killed"]
fn writes_until_it_is_killed() {
    let Some(path) = std::env::var_os(FILE) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Redb::hold(path.into(), None, Clock::real()).unwrap();
        let mut number = store.list("record/", Page::default()).await.unwrap().entries.len();
        let mut stdout = std::io::stdout();
        writeln!(stdout).unwrap();
        loop {
            let value = vec![7; 10_000 * (number % 3)];
            let both = Transaction::new()
                .put(format!("record/{number:08}"), value, Expect::Absent)
                .put(format!("index/{number:08}"), "", Expect::Absent);
            store.transaction(both).await.unwrap();
            writeln!(stdout, "{ACKNOWLEDGED}{number:08}").unwrap();
            stdout.flush().unwrap();
            number += 1;
        }
    });
}
