//! From the first namespace to the last.

use std::fs;
use std::process::Command;

use snowmelt_lab::{Error, Host, Lab, MOST_HOSTS};

use crate::harness::{Rig, is_root, name, plan, roots, wait_for, waits};

/// Mounts below a folder.
fn mounts(folder: &tempfile::TempDir) -> usize {
    let folder = folder.path().to_str().unwrap();
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    table.lines().filter(|line| line.contains(folder)).count()
}

/// Which of these processes still wait for their end.
fn waiting(pids: &[i32]) -> usize {
    let waits = |pid: &&i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.starts_with(b"sleep\x003600\0")
    };
    pids.iter().filter(waits).count()
}

#[test]
fn nothing_is_left_of_a_lab_that_has_ended() {
    if !is_root() {
        return;
    }
    let rig = Rig::up(3, Some("1gbit"));
    assert_eq!((rig.running(), mounts(&rig.folder)), (vec![true; 3], 4));
    Lab::down(&roots(&rig.folder), &name()).unwrap();
    assert_eq!(mounts(&rig.folder), 0);
    for root in ["run/labs", "state/labs"] {
        assert!(!rig.folder.path().join(root).exists(), "{root}");
    }
    let again = Lab::down(&roots(&rig.folder), &name()).unwrap_err();
    assert!(matches!(again, Error::NoLab { .. }), "{again}");
}

#[test]
fn one_that_runs_is_not_made_twice() {
    if !is_root() {
        return;
    }
    let rig = Rig::up(2, None);
    let roots = roots(&rig.folder);
    let refused = Lab::up(&roots, &name(), plan(1, None), &waits).unwrap_err();
    assert!(matches!(refused, Error::Runs { .. }), "{refused}");
    assert_eq!(rig.running(), [true, true]);
    assert_eq!(Lab::open(&roots, &name()).unwrap().plan().hosts, 2);
}

#[test]
fn what_an_unfinished_one_left_is_cleared() {
    if !is_root() {
        return;
    }
    let rig = Rig::up(3, None);
    // The plan is written last: without it the lab was not finished.
    fs::remove_file(rig.folder.path().join("run/labs/lab/lab.json")).unwrap();
    let lab = Lab::up(&roots(&rig.folder), &name(), plan(1, None), &waits).unwrap();
    assert_eq!((lab.hosts().len(), mounts(&rig.folder)), (1, 2));
    let inside = fs::read_dir(rig.folder.path().join("run/labs/lab/net")).unwrap().count();
    assert_eq!(inside, 2);
}

#[test]
fn one_that_cannot_be_made_leaves_nothing() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let missing = |_: &Host| Command::new("/nonexistent/program");
    let failed = Lab::up(&roots(&folder), &name(), plan(2, None), &missing).unwrap_err();
    assert!(matches!(failed, Error::Step { .. }), "{failed}");
    assert!(!folder.path().join("run/labs").exists());
    assert_eq!(mounts(&folder), 0);
}

#[test]
fn a_process_that_ends_at_once_is_told_with_its_log() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let ends = |_: &Host| {
        let mut command = Command::new("sh");
        command.args(["-c", "echo no such token >&2; exit 1"]);
        command
    };
    let lab = Lab::up(&roots(&folder), &name(), plan(1, None), &ends).unwrap();
    wait_for("its end", || lab.check_running().is_err());
    let Err(Error::Ended { host, log, .. }) = lab.check_running() else { unreachable!() };
    assert_eq!((host.as_str(), log), ("host-1", vec!["no such token".to_owned()]));
    Lab::down(&roots(&folder), &name()).unwrap();
}

#[test]
fn the_most_hosts_are_made_and_no_more() {
    if !is_root() {
        return;
    }
    let mut rig = Rig::up(MOST_HOSTS, Some("1gbit"));
    assert!(rig.running().iter().all(|runs| *runs));
    assert!(rig.reaches(1, MOST_HOSTS));
    let refused = rig.lab.add(1, &waits).unwrap_err();
    assert!(matches!(refused, Error::Hosts { .. }), "{refused}");
    let pids: Vec<i32> = rig.lab.states().unwrap().iter().filter_map(|state| state.pid).collect();
    assert_eq!(waiting(&pids), MOST_HOSTS as usize);
    Lab::down(&roots(&rig.folder), &name()).unwrap();
    assert_eq!(waiting(&pids), 0);
}
