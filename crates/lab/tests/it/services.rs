//! The registry and the S3 server of a lab. The registry is the real program, which `scripts/setup`
//! installs for these tests; that of the store is tried in the end-to-end tests.

use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

use snowmelt_lab::{Error, Fault, Lab, LabLink, LabPlan, ServiceKind, ServicePlan};

use crate::harness::{Rig, is_root, name, plan, roots, sleeper, wait_for};

fn with_registry(program: &str) -> LabPlan {
    let link = LabLink { rate: "100mbit".parse().ok(), delay: None };
    let registry = ServicePlan { program: PathBuf::from(program), link };
    LabPlan { registry: Some(registry), ..plan(2, Some("1gbit")) }
}

/// Whether a host can connect to the registry.
fn is_reached(rig: &Rig) -> bool {
    let [registry] = rig.lab.services().try_into().unwrap();
    std::thread::scope(|scope| {
        let tried = scope.spawn(move || {
            rig.lab.enter(&rig.host(2).machine).unwrap();
            TcpStream::connect_timeout(&registry.address, Duration::from_secs(3)).is_ok()
        });
        tried.join().unwrap()
    })
}

#[test]
fn hosts_reach_the_registry_until_it_is_killed_or_unplugged() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut rig = Rig::with(folder, with_registry(ServiceKind::Registry.program()));
    rig.lab.wait_for_services().unwrap();
    assert!(is_reached(&rig));
    let registry = rig.member("registry");
    rig.lab.fail(&registry, Fault::Unplug).unwrap();
    assert!(!is_reached(&rig));
    rig.lab.heal(&registry, &sleeper).unwrap();
    rig.lab.fail(&registry, Fault::Kill).unwrap();
    wait_for("the registry to end", || !is_reached(&rig));
    rig.lab.heal(&registry, &sleeper).unwrap();
    rig.lab.wait_for_services().unwrap();
    rig.lab.add(1, &sleeper).unwrap();
    assert!(is_reached(&rig));
    let refused = rig.lab.fail(&registry, Fault::Partition).unwrap_err();
    assert!(matches!(refused, Error::NoHostFault { .. }), "{refused}");
}

#[test]
fn a_program_that_is_missing_is_named_before_anything_is_created() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let missing = with_registry("no-such-registry");
    let refused = Lab::up(&roots(&folder), &name(), missing, &sleeper).unwrap_err();
    assert!(matches!(refused, Error::Program { .. }), "{refused}");
    assert!(!folder.path().join("run/labs").exists());
}
