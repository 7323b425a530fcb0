use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::chain::{CURRENT, files};
use super::follower::{FollowerPlace, read};
use super::*;

fn settings(folder: &Path) -> AuditSettings {
    let folder = folder.to_owned();
    AuditSettings {
        folder,
        file_size: ByteSize::mib(1),
        files: 0,
        is_required: false,
        collector: None,
    }
}

fn request(number: u32) -> AuditedRequest {
    AuditedRequest {
        principal: "user 1000".into(),
        tenant: "acme".into(),
        role: "administrator".into(),
        address: None,
        action: "POST /v1/functions".into(),
        object: format!("f-{number}"),
        request: String::new(),
    }
}

/// Writes the lines of some actions, from a start to an end.
async fn write(settings: AuditSettings, actions: std::ops::Range<u32>) {
    let audit = Audit::open(settings).unwrap();
    for number in actions {
        AuditNote::begin(&audit, request(number)).answered(201, "");
    }
    audit.close().await;
}

fn lines(folder: &Path) -> Vec<Value> {
    let files = files(folder).unwrap();
    let text: String = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn a_start_goes_on_with_the_chain() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("audit");
    write(settings(&at), 0..3).await;
    write(settings(&at), 3..4).await;
    let checked = verify(&at).unwrap();
    assert_eq!((checked.lines, checked.first, checked.last, checked.is_torn), (8, 1, 8, false));
    let lines = lines(&at);
    let events: Vec<_> = lines.iter().map(|line| line["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["start", "action", "action", "action", "end", "start", "action", "end"]);
    assert_eq!(lines[1]["object"], "f-0");
    assert_eq!((&lines[1]["status"], &lines[1]["principal"]), (&201.into(), &"user 1000".into()));
    let mode = |path: &Path| {
        use std::os::unix::fs::PermissionsExt;
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    };
    assert_eq!((mode(&at), mode(&at.join(CURRENT))), (0o700, 0o600));
}

#[tokio::test]
async fn the_first_line_that_was_changed_or_removed_shows() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(CURRENT);
    write(settings(folder.path()), 0..6).await;
    let whole = fs::read_to_string(&file).unwrap();
    let broken = |text: String| {
        fs::write(&file, text).unwrap();
        match verify(folder.path()) {
            Err(AuditBreak::Line { line, .. }) => Some(line),
            Err(other) => panic!("{other}"),
            Ok(_) => None,
        }
    };
    for number in 0..8 {
        let mut kept: Vec<_> = whole.lines().collect();
        kept.remove(number);
        let is_last = number == 7;
        // The line after it, which is in its place now. The first one is missed by its number, as
        // if a file had been removed, and the last one by nobody.
        let at = (!is_last && number > 0).then_some(number as u64 + 1);
        assert_eq!(broken(kept.join("\n") + "\n"), at, "without line {number}");
        let changed = whole.lines().enumerate();
        let changed = changed.map(|(at, line)| match at == number {
            true => line.replace("\"time\":\"2", "\"time\":\"3") + "\n",
            false => line.to_owned() + "\n",
        });
        let at = (!is_last).then_some(number as u64 + 2);
        assert_eq!(broken(changed.collect()), at, "with another line {number}");
    }
    assert_eq!(broken(whole.clone()), None);
    assert_eq!(broken(format!("{whole}{{\"seq\":")), None, "a line that is being written");
    let twice = whole.lines().next().unwrap();
    assert_eq!(broken(format!("{whole}{twice}\n")), Some(9));
}

#[tokio::test]
async fn files_are_closed_without_a_break_and_the_oldest_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let small =
        |files| AuditSettings { file_size: ByteSize(600), files, ..settings(folder.path()) };
    for number in 0..10 {
        write(small(0), number..number + 1).await;
    }
    let count = files(folder.path()).unwrap().len();
    assert!(count > 3, "{count}");
    let checked = verify(folder.path()).unwrap();
    assert_eq!((checked.lines, checked.first), (30, 1));
    write(small(2), 10..14).await;
    assert!(files(folder.path()).unwrap().len() <= 3);
    let checked = verify(folder.path()).unwrap();
    assert!(checked.first > 1 && checked.last == 36, "{checked:?}");
}

#[tokio::test]
async fn a_line_that_a_crash_has_cut_is_told_of() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(CURRENT);
    write(settings(folder.path()), 0..1).await;
    let whole = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{whole}{{\"seq\":4,\"ev")).unwrap();
    assert!(verify(folder.path()).unwrap().is_torn);
    write(settings(folder.path()), 1..2).await;
    assert!(!verify(folder.path()).unwrap().is_torn);
    let lines = lines(folder.path());
    assert_eq!((&lines[3]["event"], &lines[3]["lost"]), (&"gap".into(), &1.into()));
    // A file that is none of the audit's is not written over.
    fs::write(&file, "something else\n").unwrap();
    assert_eq!(Audit::open(settings(folder.path())).unwrap_err().known_code(), Code::AUDIT);
    assert_eq!(fs::read_to_string(&file).unwrap(), "something else\n");
}

#[tokio::test]
async fn an_action_whose_client_is_gone_has_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let audit = Audit::open(settings(folder.path())).unwrap();
    let note = AuditNote::begin(&audit, request(0));
    let goes_on = note.clone();
    note.answered(200, "");
    drop(note);
    goes_on.ended("dropped");
    drop(goes_on);
    drop(AuditNote::begin(&audit, request(1)));
    audit.close().await;
    let lines = lines(folder.path());
    assert_eq!((&lines[1]["status"], &lines[1]["code"]), (&200.into(), &"dropped".into()));
    assert_eq!((&lines[2]["status"], &lines[2]["object"]), (&Value::Null, &"f-1".into()));
}

#[tokio::test]
async fn more_lines_than_wait_are_counted_in_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let audit = Audit::open(settings(folder.path())).unwrap();
    let all = 3 * MAX_QUEUED as u64;
    for number in 0..all {
        drop(AuditNote::begin(&audit, request(number as u32)));
    }
    audit.close().await;
    let lines = lines(folder.path());
    let of = |event: &str| lines.iter().filter(|line| line["event"] == event).collect::<Vec<_>>();
    let lost: u64 = of("gap").iter().map(|gap| gap["lost"].as_u64().unwrap()).sum();
    // The last line may have found no place either.
    let ends = of("end").len() as u64;
    assert_eq!(of("action").len() as u64 + lost + ends, all + 1);
    verify(folder.path()).unwrap();
}

/// A full disk, which this file system is: each write to it fails.
#[tokio::test]
async fn what_cannot_be_written_is_refused_if_the_operator_wants_that() {
    let folder = tempfile::tempdir().unwrap();
    let is_required = AuditSettings { is_required: true, ..settings(folder.path()) };
    let audit = Audit::open(is_required).unwrap();
    audit.check().unwrap();
    let inner = audit.inner.clone().unwrap();
    inner.state.is_failing.store(true, Ordering::Relaxed);
    let refused = audit.check().unwrap_err();
    assert_eq!((refused.known_code(), refused.retry_after_s), (Code::AUDIT, Some(1)));
    // The next line is written, so requests are served again.
    drop(AuditNote::begin(&audit, request(0)));
    for _ in 0..1000 {
        if audit.check().is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    audit.check().unwrap();
    audit.close().await;
}

#[tokio::test]
async fn a_follower_reads_each_line_once_however_files_are_closed() {
    let folder = tempfile::tempdir().unwrap();
    let small =
        |files| AuditSettings { file_size: ByteSize(600), files, ..settings(folder.path()) };
    let mut at = FollowerPlace::default();
    let mut seen = Vec::new();
    for number in 0..10 {
        write(small(0), number..number + 1).await;
        loop {
            let some = read(folder.path(), at).unwrap();
            at = some.after;
            assert_eq!(some.lost, 0);
            if some.text.is_empty() {
                break;
            }
            let text = String::from_utf8(some.text).unwrap();
            let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
            seen.extend(lines.map(|line| line["seq"].as_u64().unwrap()));
        }
    }
    assert_eq!(seen, (1..=30).collect::<Vec<_>>());
    // Those that were removed meanwhile are counted.
    for number in 10..20 {
        write(small(1), number..number + 1).await;
    }
    let first = verify(folder.path()).unwrap().first;
    let some = read(folder.path(), at).unwrap();
    assert_eq!(some.lost, first - 31);
}
