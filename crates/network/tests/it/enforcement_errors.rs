//! A job on one host whose functions are held to their addresses, and the errors that they get.

use std::os::fd::AsFd;
use std::path::PathBuf;

use snowmelt_network::{JobNetwork, Networks, Options};

use crate::function::*;
use crate::harness::*;

pub const EPERM: i32 = 1;
pub const EADDRNOTAVAIL: i32 = 99;
pub const TIMED_OUT: i32 = 110;
pub const REFUSED: i32 = 111;
pub const AGAIN: i32 = 11;
pub const IN_PROGRESS: i32 = 115;
pub const IN_USE: i32 = 98;
pub const TOO_MANY: i32 = 24;

/// A job on one host with a method of address enforcement.
pub struct Rig {
    by: By,
    pub above: PathBuf,
    pub network: JobNetwork,
    _networks: Networks,
    _host: Host,
    _underlay: Underlay,
}

impl Rig {
    /// None, with a message, where there are no control groups of version 2.
    pub fn new(by: By, name: &str) -> Option<Self> {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        let root = mounts.lines().find_map(|line| {
            let mut fields = line.split(' ').skip(1);
            let target = fields.next()?;
            let kind = fields.next()?;
            (kind == "cgroup2").then(|| PathBuf::from(target))
        });
        let Some(root) = root.filter(|_| is_root()) else {
            eprintln!("skipped: no control groups of version 2");
            return None;
        };
        let above = root.join(format!("snowmelt-network-{name}-{}", std::process::id()));
        std::fs::create_dir(&above).unwrap();
        let mut underlay = Underlay::new();
        let host = underlay.host();
        let networks = within(host.namespace.as_fd(), || {
            let options = Options::new(host.state.path());
            let group = (by == By::Cgroups).then(|| above.clone());
            Networks::open(Options { group, ..options }).unwrap()
        });
        let all = parts(&[&host]);
        let network = networks.create(spec("a", 77, &all[0], &all)).unwrap();
        Some(Self { by, above, network, _networks: networks, _host: host, _underlay: underlay })
    }

    pub fn function(&self, slot: u32, linked: Linked) -> Function {
        Function::start(self.by, &self.network, &self.above, slot, linked)
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        std::fs::remove_dir(&self.above).unwrap();
    }
}

/// Runs a test with both methods of enforcement, for a static and for a dynamic program.
pub fn each(name: &str, test: impl Fn(&mut Function, &mut Function)) {
    for by in [By::Cgroups, By::Notifier] {
        for linked in [Linked::Static, Linked::Dynamic] {
            eprintln!("{by:?}, {linked:?}");
            let Some(rig) = Rig::new(by, &format!("{name}-{by:?}-{linked:?}")) else { return };
            let mut one = rig.function(0, linked);
            let mut other = rig.function(1, linked);
            test(&mut one, &mut other);
        }
    }
}
