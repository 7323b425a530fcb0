//! The features of this machine that job networks need, found by using them.
//!
//! Invariant: the probe leaves nothing behind. Devices and rules are created in a network namespace
//! that is gone with the thread that created it, and programs are not attached.

use std::fs::{self, File};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::net::netlink::NETFILTER;
use snowmelt_kernel::namespace::{flags, unshare};

use crate::devices::link::{self, Overlay};
use crate::enforcement::verify_programs;
use crate::netlink::*;
use crate::{Allow, Egress, PORT, Range, egress};

/// A result for `snowmelt doctor`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The feature.
    pub name: &'static str,
    /// The finding, or the kernel's error.
    pub found: String,
    /// Whether the feature is sufficient.
    pub ok: bool,
}

/// Tries `network namespaces`, `veth`, `VXLAN`, `bridge`, `nftables` and the enforcement of
/// `addresses`. Takes some 100 ms.
pub fn probe() -> Vec<Probe> {
    let mut probes = devices();
    probes.push(addresses());
    probes
}

fn fact(name: &'static str, tried: io::Result<&str>) -> Probe {
    match tried {
        Ok(found) => Probe { name, found: found.to_owned(), ok: true },
        Err(error) => Probe { name, found: error.to_string(), ok: false },
    }
}

/// Probes devices and rules in a namespace of its own.
fn devices() -> Vec<Probe> {
    let visitor =
        std::thread::Builder::new().name("network-probe".into()).spawn(|| {
            match unshare(flags::NETWORK) {
                Err(error) => vec![fact(NAMESPACES, Err(error))],
                Ok(()) => {
                    let mut probes = vec![fact(NAMESPACES, Ok(AVAILABLE))];
                    probes.extend(within());
                    probes
                }
            }
        });
    let panicked = |_| Err(io::Error::other("the probe failed"));
    let tried = visitor.and_then(|visitor| visitor.join().or_else(panicked));
    tried.unwrap_or_else(|error| vec![fact(NAMESPACES, Err(error))])
}

const NAMESPACES: &str = "network namespaces";

/// Probes devices and rules in the calling thread's namespace, which must be fresh.
fn within() -> Vec<Probe> {
    let rules = Socket::open(Some(NETFILTER)).and_then(|mut socket| run(&mut socket, some_rules()));
    // The overlay has a fixed index, so it is created before devices that take the next free one.
    let overlay = make(overlay);
    let pair = make(|batch, own| link::add_pair(batch, "probe", own.as_fd()));
    vec![
        fact("veth", pair.map(|()| AVAILABLE)),
        fact("VXLAN", overlay.map(|()| AVAILABLE)),
        fact("bridge", make(|batch, _| bridge(batch)).map(|()| AVAILABLE)),
        fact("nftables", rules.map(|()| "available, with masquerading")),
    ]
}

const AVAILABLE: &str = "available";

fn make(fill: impl FnOnce(&mut Batch, &File)) -> io::Result<()> {
    let own = File::open("/proc/thread-self/ns/net")?;
    let mut batch = Batch::new();
    fill(&mut batch, &own);
    run(&mut Socket::open(None)?, batch)
}

fn run(socket: &mut Socket, batch: Batch) -> io::Result<()> {
    socket.run(batch).map_err(|failed| failed.source)
}

fn overlay(batch: &mut Batch, own: &File) {
    let local = Ipv4Addr::LOCALHOST.into();
    let mac = [0x02, 0x73, 0, 0, 0, 1];
    let mtu = link::inner_mtu(1500, local);
    link::add_overlay(batch, &Overlay { vni: 1, local, port: PORT, mac, mtu }, own.as_fd());
}

fn bridge(batch: &mut Batch) {
    batch.add("make a bridge", RTM_NEWLINK, NEW, &link::fixed(0, 0, 0), |a| {
        a.text(IFLA_IFNAME, "bridge").nest(IFLA_LINKINFO, |a| {
            a.text(IFLA_INFO_KIND, "bridge");
        });
    });
}

/// The rules of a job with a policy.
fn some_rules() -> Batch {
    let to = Range::v4(Ipv4Addr::new(192, 0, 2, 0), 24);
    let policy = Egress(vec![Allow { to, ports: vec![(443, 443)] }]);
    egress::rules(&policy, PORT)
}

/// Address enforcement: by programs on control groups, or by answers to system calls.
fn addresses() -> Probe {
    const NAME: &str = "addresses";
    let groups = verify_programs().and_then(|()| {
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        let mounted = mounts.lines().any(|line| line.split(' ').nth(2) == Some("cgroup2"));
        mounted.then_some(()).ok_or_else(|| io::Error::other("no cgroup2 is mounted"))
    });
    let Err(error) = groups else {
        return fact(NAME, Ok("programs on control groups"));
    };
    match has_notifications() {
        true => {
            let found = format!("answers to system calls; no programs on groups: {error}");
            Probe { name: NAME, found, ok: true }
        }
        false => fact(NAME, Err(error)),
    }
}

fn has_notifications() -> bool {
    let actions = fs::read_to_string(Path::new("/proc/sys/kernel/seccomp/actions_avail"));
    let is_known =
        actions.is_ok_and(|actions| actions.split_whitespace().any(|one| one == "user_notif"));
    is_known && answers_with_descriptors(&rustix::system::uname().release().to_string_lossy())
}

/// Whether a kernel can answer a call with a descriptor (`SECCOMP_ADDFD_FLAG_SEND`, Linux 5.14).
/// Notifications are older, and this cannot be tried without a call that waits.
fn answers_with_descriptors(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= (5, 14),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notifications_are_enough_from_linux_5_14_on() {
        for release in ["5.14.0-427.el9.x86_64", "5.15.0-1051-aws", "6.1", "10.0.0"] {
            assert!(answers_with_descriptors(release), "{release}");
        }
        for release in ["5.10.0-28-amd64", "4.18.0", "5.13.19", "", "rolling"] {
            assert!(!answers_with_descriptors(release), "{release}");
        }
    }

    #[test]
    fn finds_something_of_each_and_leaves_no_device() {
        let devices = || fs::read_dir("/sys/class/net").map_or(0, |entries| entries.count());
        let before = devices();
        let probes = probe();
        assert!(probes.iter().all(|probe| !probe.found.is_empty()), "{probes:?}");
        if rustix::process::geteuid().is_root() {
            let names: Vec<_> = probes.iter().map(|probe| probe.name).collect();
            let all = [NAMESPACES, "veth", "VXLAN", "bridge", "nftables", "addresses"];
            assert_eq!(names, all, "{probes:?}");
            assert!(probes.iter().all(|probe| probe.ok), "other tests here use all: {probes:?}");
        }
        assert_eq!(devices(), before);
    }
}
