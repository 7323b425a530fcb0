//! The checks of the kernel: what `snowmelt_sandbox::probe` tried, with what is needed and how to
//! get it.

use std::fs;

use snowmelt_image::mount::{Chosen, Form, MountChoice};
use snowmelt_sandbox::{Probe, probe};

use super::{Check, CheckStatus};

/// The probes of the kernel: the name of the probe, how bad its failure is, what is needed, how to
/// get it.
const NEEDS: [(&str, CheckStatus, &str, &str); 10] = [
    ("kernel", CheckStatus::Fail, "5.10 or newer", "boot a newer kernel"),
    (
        "root",
        CheckStatus::Warn,
        "user id 0, for networks of jobs, clusters and more defences",
        "sudo snowmelt up; docs/how-to/rootless.md says what is weaker",
    ),
    (
        "control groups",
        CheckStatus::Fail,
        "memory, cpu and pids (v1 or v2), writable",
        "echo '+memory +cpu +pids' > /sys/fs/cgroup/cgroup.subtree_control",
    ),
    (
        "namespaces",
        CheckStatus::Fail,
        "user, pid, ipc, uts and mount",
        "sysctl -w user.max_user_namespaces=15000",
    ),
    ("mount API", CheckStatus::Fail, "fsopen and open_tree", "boot a newer kernel"),
    ("seccomp", CheckStatus::Fail, "filters", "boot a kernel with CONFIG_SECCOMP_FILTER=y"),
    ("overlayfs", CheckStatus::Warn, "for block images", "modprobe overlay"),
    ("EROFS", CheckStatus::Warn, "for block images", "modprobe erofs"),
    ("FUSE", CheckStatus::Warn, "for block images", "modprobe fuse"),
    (
        "Landlock",
        CheckStatus::Warn,
        "a further wall, where it is there",
        "boot with landlock in the kernel's lsm= list",
    ),
];

pub(super) fn checks(mount: MountChoice) -> Vec<Check> {
    let mut checks: Vec<Check> = probe().into_iter().map(check).collect();
    checks.push(images(mount));
    checks.push(freezer());
    checks
}

/// Checks whether functions can run in block images and in which form, by mounting an empty one.
fn images(mount: MountChoice) -> Check {
    let (status, found) = match mount.choose() {
        Ok(chosen) => described(mount, &chosen),
        Err(error) => (CheckStatus::Warn, error.to_string()),
    };
    let mend = "modprobe -a fuse erofs; a kernel before 6.12 mounts no EROFS on files";
    Check::new("lazy images", status, found, "EROFS on files over FUSE, for --image", mend)
}

fn described(mount: MountChoice, chosen: &Chosen) -> (CheckStatus, String) {
    match (chosen.form, &chosen.erofs_error) {
        (Form::Erofs, _) => (CheckStatus::Ok, "EROFS over FUSE".to_owned()),
        (Form::Fuse, None) => {
            (CheckStatus::Ok, format!("FUSE alone, as images.mount = {mount} says"))
        }
        // Functions run, with a question to the daemon for each name that is new to the kernel.
        (Form::Fuse, Some(error)) => (CheckStatus::Warn, format!("FUSE alone: {error}")),
    }
}

fn check(probe: Probe) -> Check {
    let known = NEEDS.iter().find(|(name, ..)| *name == probe.name);
    let (bad, needed, mend) = match known {
        Some((_, bad, needed, mend)) => (*bad, *needed, *mend),
        None => (CheckStatus::Warn, "there", "boot a newer kernel"),
    };
    let status = if probe.ok { CheckStatus::Ok } else { bad };
    Check::new(probe.name, status, probe.found, needed, mend)
}

/// Checks for a means to pause and resume: the v1 controller, or any cgroup2 mount, which freezes
/// without controllers.
fn freezer() -> Check {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let found = freezer_in(&mounts);
    let status = if found.is_some() { CheckStatus::Ok } else { CheckStatus::Warn };
    Check::new(
        "freezer",
        status,
        found.unwrap_or("not mounted"),
        "to pause idle functions",
        "mkdir -p /sys/fs/cgroup/freezer && mount -t cgroup -o freezer none /sys/fs/cgroup/freezer",
    )
}

fn freezer_in(mounts: &str) -> Option<&'static str> {
    let has = |kind: &str, option: Option<&str>| {
        mounts.lines().any(|line| {
            let mut fields = line.split(' ').skip(2);
            let same_kind = fields.next() == Some(kind);
            let options = fields.next().unwrap_or_default();
            same_kind && option.is_none_or(|wanted| options.split(',').any(|one| one == wanted))
        })
    };
    let v1 = has("cgroup", Some("freezer")).then_some("the v1 controller");
    v1.or_else(|| has("cgroup2", None).then_some("cgroup.freeze of v2"))
}

#[cfg(test)]
mod tests {
    use snowmelt_image::mount::Form;

    use super::*;

    #[test]
    fn every_probe_has_its_need() {
        for probe in probe() {
            assert!(NEEDS.iter().any(|(name, ..)| *name == probe.name), "{}", probe.name);
        }
    }

    #[test]
    fn says_why_images_are_mounted_without_erofs() {
        let lacking = snowmelt_image::Error::Mount {
            step: "mount EROFS on files",
            source: std::io::Error::other("no block device"),
        };
        let fuse = |lacking| Chosen { form: Form::Fuse, erofs_error: lacking };
        let (status, found) = described(MountChoice::Auto, &fuse(Some(lacking)));
        assert_eq!(status, CheckStatus::Warn);
        assert!(found.starts_with("FUSE alone: ") && found.contains("no block device"), "{found}");
        let (status, found) = described(MountChoice::Fuse, &fuse(None));
        assert!(status == CheckStatus::Ok && found.contains("images.mount = fuse"), "{found}");
        let erofs = Chosen { form: Form::Erofs, erofs_error: None };
        assert_eq!(
            described(MountChoice::Auto, &erofs),
            (CheckStatus::Ok, "EROFS over FUSE".to_owned())
        );
    }

    #[test]
    fn finds_the_freezer_of_both_versions() {
        let v1 = "cgroup /sys/fs/cgroup/freezer cgroup rw,relatime,freezer 0 0\n";
        let v2 = "none /sys/fs/cgroup cgroup2 rw 0 0\n";
        assert_eq!(freezer_in(&format!("{v2}{v1}")), Some("the v1 controller"));
        assert_eq!(freezer_in(v2), Some("cgroup.freeze of v2"));
        assert_eq!(freezer_in("cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n"), None);
    }
}
