//! The checks for jobs with a network: what `snowmelt_network::probe` tried, with how to get it.
//! The platform works without.

use snowmelt_network::{Probe, probe};

use super::{Check, CheckStatus};

/// The probes of the network: the name of the probe, what is needed, how to get it.
const NEEDS: [(&str, &str, &str); 6] = [
    (
        "network namespaces",
        "for jobs with a network",
        "sysctl -w user.max_net_namespaces=15000, as root",
    ),
    ("veth", "for jobs with a network", "modprobe veth"),
    ("VXLAN", "for jobs with a network over several hosts", "modprobe vxlan"),
    ("bridge", "for emulated hosts on this machine", "modprobe bridge"),
    ("nftables", "for jobs that may reach what is outside", "modprobe nf_tables nft_masq"),
    (
        "addresses",
        "to hold functions to theirs: cgroup2 and eBPF, or Linux 5.14",
        "mkdir -p /sys/fs/cgroup/unified && mount -t cgroup2 none /sys/fs/cgroup/unified",
    ),
];

pub(super) fn checks() -> Vec<Check> {
    probe().into_iter().map(check).collect()
}

fn check(probe: Probe) -> Check {
    let known = NEEDS.iter().find(|(name, ..)| *name == probe.name);
    let (needed, mend) = known.map_or(("there", "boot a newer kernel"), |known| (known.1, known.2));
    let status = if probe.ok { CheckStatus::Ok } else { CheckStatus::Warn };
    Check::new(probe.name, status, probe.found, needed, mend)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_probe_has_its_need() {
        for probe in probe() {
            assert!(NEEDS.iter().any(|(name, ..)| *name == probe.name), "{}", probe.name);
        }
    }

    #[test]
    fn a_missing_tool_is_a_warning_with_its_command() {
        let probe = Probe { name: "VXLAN", found: "Operation not supported".into(), ok: false };
        let row = check(probe);
        assert_eq!((row.status, row.mend.as_deref()), (CheckStatus::Warn, Some("modprobe vxlan")));
    }
}
