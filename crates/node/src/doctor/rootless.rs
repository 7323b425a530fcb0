//! The checks of a platform that an ordinary user runs: whether the kernel allows it, and what an
//! administrator can do to make it as strong as that of root.

use snowmelt_kernel::rootless::{self, EntryError, NamespaceIds};

use super::{Check, CheckStatus};

/// The names of the checks of the kernel that have another meaning for an ordinary user: what is
/// missing makes the platform weaker or leaves something out, and does not stop it.
const WEAKER: [(&str, &str, &str); 4] = [
    (
        "control groups",
        "to limit processors, and memory without looking at it; without them the platform ends what \
         exceeds its memory, and the kernel limits processes",
        "run the server as root",
    ),
    (
        "FUSE",
        "for block images",
        "sudo chmod 666 /dev/fuse (or a rule of udev, as most distributions have)",
    ),
    ("lazy images", "FUSE, for --image", "see the row FUSE"),
    ("root", "for networks of jobs, egress, clusters and several users", "sudo snowmelt up"),
];

/// The names of the checks of what jobs with networks need, which an ordinary user cannot have.
const OF_NETWORKS: [&str; 6] =
    ["VXLAN", "addresses", "bridge", "network namespaces", "nftables", "veth"];

/// Enters the user namespace that a platform of this user would enter, unless this is root. To be
/// called before the checks, by a process with one thread.
pub(super) fn enter() -> Option<Result<NamespaceIds, EntryError>> {
    if rustix::process::geteuid().is_root() && rootless::entered().is_none() {
        return None;
    }
    // In a copy first: the checks go on in this process, whatever the kernel refuses.
    Some(rootless::attempt().and_then(|()| rootless::enter()))
}

/// Returns the rows about the namespace.
pub(super) fn checks(entered: &Result<NamespaceIds, EntryError>) -> Vec<Check> {
    const NAME: &str = "user namespace";
    const NEEDED: &str = "to run as an ordinary user";
    match entered {
        Err(error) => {
            let found = error.to_string();
            vec![Check::new(NAME, CheckStatus::Fail, found, NEEDED, error.remedy())]
        }
        Ok(ids) => {
            vec![Check::new(NAME, CheckStatus::Ok, "allowed", NEEDED, ""), of_ids(*ids), networks()]
        }
    }
}

fn of_ids(ids: NamespaceIds) -> Check {
    let (status, found) = match ids {
        NamespaceIds::Own => {
            (CheckStatus::Warn, "none: all sandboxes have the id of this user".to_owned())
        }
        NamespaceIds::Subordinate(count) => (CheckStatus::Ok, format!("{count} ids")),
    };
    let mend = "sudo apt-get install uidmap, and sudo usermod --add-subuids 100000-165535 \
                --add-subgids 100000-165535 $USER";
    Check::new("subordinate ids", status, found, "an own id for each program and zygote", mend)
}

fn networks() -> Check {
    let needed = "for jobs with a network, egress and clusters";
    Check::new(
        "networks of jobs",
        CheckStatus::Warn,
        "not without root",
        needed,
        "sudo snowmelt up",
    )
}

/// Returns the row as it is for a platform of an ordinary user; `None` if it says nothing about one.
pub(super) fn of_user(check: Check) -> Option<Check> {
    if OF_NETWORKS.contains(&check.name.as_str()) {
        return None;
    }
    let weaker = WEAKER.iter().find(|(name, ..)| *name == check.name);
    Some(match weaker.filter(|_| check.status != CheckStatus::Ok) {
        Some((_, needed, mend)) => Check {
            status: CheckStatus::Warn,
            needed: (*needed).to_owned(),
            mend: Some((*mend).to_owned()),
            ..check
        },
        None => check,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_user_lacks_is_weaker_and_what_stops_the_platform_fails() {
        let row = |name, found: &str| Check::new(name, CheckStatus::Fail, found, "x", "y");
        let groups = of_user(row("control groups", "none")).unwrap();
        assert_eq!((groups.status, &*groups.found), (CheckStatus::Warn, "none"));
        assert_eq!(of_user(row("veth", "EPERM")), None);
        assert_eq!(of_user(row("Python", "none")), Some(row("Python", "none")));
        let source = std::io::Error::from_raw_os_error(1);
        let refused = checks(&Err(EntryError { step: "make a user namespace", source }));
        assert!(refused[0].status == CheckStatus::Fail && refused[0].mend.is_some());
        assert_eq!(checks(&Ok(NamespaceIds::Own))[1].status, CheckStatus::Warn);
        assert_eq!(checks(&Ok(NamespaceIds::Subordinate(65_000)))[1].status, CheckStatus::Ok);
    }
}
