//! A node that is killed at any moment leaves nothing that is not removed by the kernel or by the
//! next node.

use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use snowmelt_network::{Allow, Egress, JobSpec, Networks, Options};

use crate::harness::*;

const STATE: &str = "SNOWMELT_TEST_NETWORK_STATE";
/// How many times a node is killed, each time a little later in its work.
const KILLS: u32 = 40;
const STEP: Duration = Duration::from_micros(700);

/// A job with an egress policy, so that every step is executed.
fn wanted() -> JobSpec {
    let host = "192.0.2.1".parse().unwrap();
    let part = |number, host| snowmelt_network::JobPeer {
        host,
        range4: range("10.77.0.0/16").part(18, number).unwrap(),
        range6: range("fd77::/64").part(114, number).unwrap(),
    };
    let all = [part(0, host), part(1, "192.0.2.2".parse().unwrap())];
    let allow = Allow { to: range("192.0.2.0/24"), ports: vec![(80, 80)] };
    JobSpec { egress: Egress(vec![allow]), ..spec("a", 6, &all[0], &all) }
}

fn open_here(state: &Path) -> Networks {
    Networks::open(Options::new(state)).unwrap()
}

/// Not a test but the node of the test below, as a process of its own: it creates and closes
/// networks until it is killed.
#[test]
#[ignore = "the other half of a_node_is_killed_at_any_moment"]
fn a_node_that_never_stops() {
    let Ok(state) = std::env::var(STATE) else { return };
    let networks = open_here(state.as_ref());
    println!("ready");
    loop {
        networks.create(wanted()).unwrap().close(TIMEOUT).unwrap();
    }
}

#[test]
fn a_node_is_killed_at_any_moment() {
    if !is_root() {
        return;
    }
    let mut underlay = Underlay::new();
    let host = underlay.host();
    drop(host.networks);
    for number in 0..KILLS {
        let state = host.state.path();
        let mut node = within(host.namespace.as_fd(), || start_node(state));
        std::thread::sleep(STEP * number);
        node.kill().unwrap();
        node.wait().unwrap();
        // In the host's namespace only devices are left, which are removed with the job's.
        wait_until("no device of the dead node is left", || {
            devices_in(host.namespace.as_fd()).is_empty()
        });
        within(host.namespace.as_fd(), || {
            let next = open_here(state);
            assert!(next.leases().unwrap().is_empty(), "after {number} steps");
            next.create(wanted()).unwrap().close(TIMEOUT).unwrap();
        });
        assert_eq!(std::fs::read_dir(state.join("networks")).unwrap().count(), 0);
    }
}

/// Starts the node and waits until it works.
fn start_node(state: &Path) -> std::process::Child {
    let mut node = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kill::a_node_that_never_stops", "--ignored", "--nocapture"])
        .env(STATE, state)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = std::io::BufReader::new(node.stdout.take().unwrap());
    let ready = std::io::BufRead::lines(output).any(|line| line.unwrap().contains("ready"));
    assert!(ready, "the node did not start");
    node
}
