//! Labs from creation to removal.

use std::fs;
use std::process::Command;

use snowmelt_lab::{Error, Lab, LabHost, MAX_HOSTS};

use crate::harness::{Rig, is_root, name, plan, roots, sleeper, wait_for};

/// Mounts below a folder.
fn mounts(folder: &tempfile::TempDir) -> usize {
    let folder = folder.path().to_str().unwrap();
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    table.lines().filter(|line| line.contains(folder)).count()
}

/// How many of these processes still run.
fn alive(pids: &[i32]) -> usize {
    let sleeps = |pid: &&i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.starts_with(b"sleep\x003600\0")
    };
    pids.iter().filter(sleeps).count()
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
fn a_running_lab_is_not_created_again() {
    if !is_root() {
        return;
    }
    let rig = Rig::up(2, None);
    let roots = roots(&rig.folder);
    let refused = Lab::up(&roots, &name(), plan(1, None), &sleeper).unwrap_err();
    assert!(matches!(refused, Error::Runs { .. }), "{refused}");
    assert_eq!(rig.running(), [true, true]);
    assert_eq!(Lab::open(&roots, &name()).unwrap().plan().hosts, 2);
}

#[test]
fn an_incomplete_lab_is_removed_first() {
    if !is_root() {
        return;
    }
    let rig = Rig::up(3, None);
    // The plan is written last: without it the lab is incomplete.
    fs::remove_file(rig.folder.path().join("run/labs/lab/lab.json")).unwrap();
    let lab = Lab::up(&roots(&rig.folder), &name(), plan(1, None), &sleeper).unwrap();
    assert_eq!((lab.hosts().len(), mounts(&rig.folder)), (1, 2));
    let inside = fs::read_dir(rig.folder.path().join("run/labs/lab/net")).unwrap().count();
    assert_eq!(inside, 2);
}

#[test]
fn a_failed_creation_leaves_nothing() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let missing = |_: &LabHost| Command::new("/nonexistent/program");
    let failed = Lab::up(&roots(&folder), &name(), plan(2, None), &missing).unwrap_err();
    assert!(matches!(failed, Error::Step { .. }), "{failed}");
    assert!(!folder.path().join("run/labs").exists());
    assert_eq!(mounts(&folder), 0);
}

#[test]
fn a_process_that_ends_early_is_reported_with_its_log() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let ends = |_: &LabHost| {
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
fn at_most_the_maximum_of_hosts_is_created() {
    if !is_root() {
        return;
    }
    let mut rig = Rig::up(MAX_HOSTS, Some("1gbit"));
    assert!(rig.running().iter().all(|runs| *runs));
    assert!(rig.reaches(1, MAX_HOSTS));
    let refused = rig.lab.add(1, &sleeper).unwrap_err();
    assert!(matches!(refused, Error::Hosts { .. }), "{refused}");
    let pids: Vec<i32> = rig.lab.states().unwrap().iter().filter_map(|state| state.pid).collect();
    assert_eq!(alive(&pids), MAX_HOSTS as usize);
    Lab::down(&roots(&rig.folder), &name()).unwrap();
    assert_eq!(alive(&pids), 0);
}
