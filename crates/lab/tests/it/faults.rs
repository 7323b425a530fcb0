//! Faults of hosts on demand, and their healing.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use snowmelt_lab::{Error, Fault, LabHost, LabPlan};
use snowmelt_types::ByteSize;

use crate::harness::{Rig, is_root, plan, sleeper, wait_for};

#[test]
fn an_unplugged_host_reaches_no_other_until_it_is_healed() {
    if !is_root() {
        return;
    }
    let rig = Rig::up(3, None);
    rig.lab.fail(&rig.member("host-2"), Fault::Unplug).unwrap();
    assert!(!rig.reaches(1, 2) && !rig.reaches(2, 3) && rig.reaches(1, 3));
    rig.lab.heal(&rig.member("host-2"), &sleeper).unwrap();
    assert!(rig.reaches(1, 2) && rig.reaches(2, 3));
}

#[test]
fn a_partitioned_host_is_reached_by_control_only() {
    if !is_root() {
        return;
    }
    let mut rig = Rig::up(4, None);
    let two = rig.member("host-2");
    let three = rig.member("host-3");
    rig.lab.fail(&two, Fault::Partition).unwrap();
    rig.lab.fail(&three, Fault::Partition).unwrap();
    assert!(rig.reaches(1, 2) && rig.reaches(2, 1) && rig.reaches(1, 3));
    assert!(!rig.reaches(2, 3) && !rig.reaches(4, 2) && !rig.reaches(3, 4));
    rig.lab.heal(&two, &sleeper).unwrap();
    assert!(rig.reaches(4, 2) && rig.reaches(2, 4));
    assert!(!rig.reaches(2, 3) && !rig.reaches(4, 3), "the other one stays partitioned");
    rig.lab.add(1, &sleeper).unwrap();
    assert!(rig.reaches(5, 2) && !rig.reaches(5, 3), "from hosts added later too");
    rig.lab.heal(&three, &sleeper).unwrap();
    assert!(rig.reaches(2, 3) && rig.reaches(5, 3));
}

#[test]
fn a_slow_host_has_a_hundredth_of_its_rate() {
    if !is_root() {
        return;
    }
    let rig = Rig::up(2, Some("1gbit"));
    rig.lab.fail(&rig.member("host-2"), Fault::Slow).unwrap();
    let least = Duration::from_secs_f64(((1 << 20) - (2 << 17)) as f64 * 8.0 / 10e6);
    let took = rig.sends(1, 2, 1 << 20).unwrap();
    assert!(took >= least, "{took:?} is less than {least:?}");
    assert_eq!(rig.lab.states().unwrap()[1].faults, [Fault::Slow]);
    rig.lab.heal(&rig.member("host-2"), &sleeper).unwrap();
    assert!(rig.reaches(1, 2));
    assert_eq!(rig.lab.states().unwrap()[1].faults, []);
}

#[test]
fn a_killed_host_runs_again_when_it_is_healed() {
    if !is_root() {
        return;
    }
    let rig = Rig::up(2, None);
    rig.lab.fail(&rig.member("host-2"), Fault::Kill).unwrap();
    wait_for("the process to end", || rig.running() == [true, false]);
    // A second kill does not hit another process.
    rig.lab.fail(&rig.member("host-2"), Fault::Kill).unwrap();
    assert!(rig.reaches(1, 2), "its network stays");
    rig.lab.heal(&rig.member("host-2"), &sleeper).unwrap();
    assert_eq!(rig.running(), [true, true]);
}

/// The state letter of a host's process.
fn state(rig: &Rig, number: usize) -> char {
    let pid = rig.lab.states().unwrap()[number - 1].pid.unwrap();
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.chars().next().unwrap()
}

#[test]
fn a_frozen_host_goes_on_when_it_is_healed() {
    if !is_root() {
        return;
    }
    let rig = Rig::up(2, None);
    let two = rig.member("host-2");
    rig.lab.fail(&two, Fault::Freeze).unwrap();
    wait_for("the process to stop", || state(&rig, 2) == 'T');
    assert_eq!(rig.running(), [true, true]);
    assert!(rig.reaches(1, 2), "its kernel still answers");
    let before = rig.lab.states().unwrap()[1].pid;
    rig.lab.heal(&two, &sleeper).unwrap();
    wait_for("the process to go on", || state(&rig, 2) != 'T');
    assert_eq!(rig.lab.states().unwrap()[1].pid, before);
    // One that is killed while it is frozen is not frozen any more.
    rig.lab.fail(&two, Fault::Freeze).unwrap();
    rig.lab.fail(&two, Fault::Kill).unwrap();
    wait_for("the process to end", || rig.running() == [true, false]);
    assert_eq!(rig.lab.states().unwrap()[1].faults, []);
}

#[test]
fn a_restarted_host_has_another_process_and_its_other_faults() {
    if !is_root() {
        return;
    }
    let rig = Rig::up(2, None);
    let two = rig.member("host-2");
    let before = rig.lab.states().unwrap()[1].pid;
    rig.lab.fail(&two, Fault::Unplug).unwrap();
    rig.lab.restart(&two, &sleeper).unwrap();
    let after = &rig.lab.states().unwrap()[1];
    assert!(after.runs && after.pid != before);
    assert_eq!(after.faults, [Fault::Unplug]);
}

/// Listens where the agent of a host does.
fn listen(rig: &Rig, at: &LabHost) -> TcpListener {
    thread::scope(|scope| {
        let listener = scope.spawn(|| {
            rig.lab.enter(&at.machine).unwrap();
            TcpListener::bind(at.address).unwrap()
        });
        listener.join().unwrap()
    })
}

/// What a host receives from a listener.
fn received(rig: &Rig, from: &TcpListener, to: &LabHost, sent: &[u8]) -> Vec<u8> {
    let address = from.local_addr().unwrap();
    thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            rig.lab.enter(&to.machine).unwrap();
            let mut received = Vec::new();
            TcpStream::connect(address).unwrap().read_to_end(&mut received).unwrap();
            received
        });
        from.accept().unwrap().0.write_all(sent).unwrap();
        receiver.join().unwrap()
    })
}

/// What a listener receives from a host that connects to it.
fn uploaded(rig: &Rig, from: &LabHost, to: &TcpListener, sent: &[u8]) -> Vec<u8> {
    let address = to.local_addr().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            rig.lab.enter(&from.machine).unwrap();
            TcpStream::connect(address).unwrap().write_all(sent).unwrap();
        });
        let mut received = Vec::new();
        to.accept().unwrap().0.read_to_end(&mut received).unwrap();
        received
    })
}

#[test]
fn a_corrupt_host_sends_wrong_bytes_to_all_hosts() {
    if !is_root() {
        return;
    }
    let rig = Rig::up(3, None);
    let two = rig.member("host-2");
    let hosts = rig.lab.hosts();
    let agents = [listen(&rig, &hosts[1]), listen(&rig, &hosts[2])];
    let sent = vec![7; 1 << 20];
    let arrives = |from: usize, to: usize| {
        let received = received(&rig, &agents[from - 2], &hosts[to - 1], &sent);
        assert_eq!(received.len(), sent.len());
        received == sent
    };
    assert!(arrives(2, 3));
    rig.lab.fail(&two, Fault::Corrupt).unwrap();
    assert!(!arrives(2, 3) && !arrives(2, 1) && arrives(3, 2));
    // Also over a connection that it has opened itself.
    assert_ne!(uploaded(&rig, &hosts[1], &agents[1], &sent), sent);
    assert_eq!(uploaded(&rig, &hosts[0], &agents[1], &sent), sent);
    let little = vec![7; 1000];
    assert_eq!(received(&rig, &agents[0], &hosts[2], &little), little);
    rig.lab.heal(&two, &sleeper).unwrap();
    assert!(arrives(2, 3));
}

#[test]
fn a_full_disk_takes_nothing_until_it_is_healed() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let rig = Rig::with(folder, LabPlan { disk: Some(ByteSize::mib(8)), ..plan(2, None) });
    let two = rig.member("host-2");
    let file = rig.host(2).state.join("file");
    fs::write(&file, vec![7; 1 << 20]).unwrap();
    assert!(fs::write(file.with_file_name("large"), vec![7; 16 << 20]).is_err());
    fs::remove_file(file.with_file_name("large")).unwrap();
    rig.lab.fail(&two, Fault::DiskFull).unwrap();
    let refused = fs::write(file.with_file_name("another"), vec![7; 1 << 20]).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::StorageFull);
    assert_eq!(fs::read(&file).unwrap().len(), 1 << 20);
    fs::write(rig.host(1).state.join("file"), "of another host").unwrap();
    rig.lab.heal(&two, &sleeper).unwrap();
    fs::write(file.with_file_name("another"), vec![7; 1 << 20]).unwrap();
}

#[test]
fn a_disk_of_its_own_is_needed_for_a_full_one() {
    if !is_root() {
        return;
    }
    let rig = Rig::up(1, None);
    let refused = rig.lab.fail(&rig.member("host-1"), Fault::DiskFull).unwrap_err();
    assert!(matches!(refused, Error::NoDisk { .. }), "{refused}");
}
