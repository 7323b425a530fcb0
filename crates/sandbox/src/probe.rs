//! Probes what sandboxes need on this machine, by trying it where that is cheap.
//!
//! Invariant: a probe leaves nothing behind.

use std::fs;
use std::io;
use std::path::Path;

use snowmelt_kernel::mount;
use snowmelt_kernel::namespace::flags;
use snowmelt_kernel::{clone, landlock, rootless};

use crate::spec::Limits;
use crate::{Result, cgroup};

/// A fact about the machine for `snowmelt doctor`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The name of the requirement.
    pub name: &'static str,
    /// The result, or the kernel's error.
    pub found: String,
    /// Whether the machine is sufficient in this respect.
    pub ok: bool,
}

/// Probes everything that sandboxes need (`root`, `kernel`, `control groups`, `namespaces`, `mount
/// API`, `seccomp`) or can use (`overlayfs`, `EROFS`, `FUSE`, `Landlock`).
pub fn probe() -> Vec<Probe> {
    vec![
        root(),
        kernel(),
        control_groups(),
        namespaces(),
        mounts(),
        seccomp(),
        file_system("overlayfs", "overlay"),
        file_system("EROFS", "erofs"),
        fuse(),
        landlock(),
    ]
}

fn fact(name: &'static str, outcome: std::result::Result<String, String>) -> Probe {
    let ok = outcome.is_ok();
    Probe { name, found: outcome.unwrap_or_else(|found| found), ok }
}

fn root() -> Probe {
    let id = rustix::process::geteuid();
    let found = match rootless::entered() {
        None => format!("user id {}", id.as_raw()),
        Some(_) => "an ordinary user, in a user namespace".to_owned(),
    };
    fact("root", if rootless::is_root_of_machine() { Ok(found) } else { Err(found) })
}

/// The oldest maintained long-term kernel. mount_setattr(2) of 5.12 and `CLOSE_RANGE_CLOEXEC` of
/// 5.11 are optional.
fn kernel() -> Probe {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    fact("kernel", if version >= (5, 10) { Ok(release) } else { Err(release) })
}

fn control_groups() -> Probe {
    if rootless::entered().is_some() {
        return fact("control groups", cgroup::describe().map(str::to_owned));
    }
    let tried = cgroup::describe().and_then(|found| match try_control_group() {
        Ok(()) => Ok(found.to_owned()),
        Err(error) => Err(format!("{found}, but {error}")),
    });
    fact("control groups", tried)
}

fn try_control_group() -> Result<()> {
    let backend = cgroup::detect()?;
    let parent = format!("snowmelt/probe-{}", std::process::id());
    let made = backend
        .prepare(&parent)
        .and_then(|()| backend.create(&format!("{parent}/probe")))
        .and_then(|()| backend.set_limits(&format!("{parent}/probe"), &Limits::default()));
    made.and(cgroup::remove_tree(backend.as_ref(), &parent))
}

fn namespaces() -> Probe {
    let kinds = flags::USER | flags::PID | flags::IPC | flags::UTS | flags::MOUNT;
    fact("namespaces", outcome_of(clone::try_namespaces(kinds), "user, pid, ipc, uts and mount"))
}

fn mounts() -> Probe {
    // The probe mounts nothing: the file system vanishes with its descriptor.
    let found = mount::sets_attributes_of_detached().map(|whole| {
        let rest = if whole { "mount_setattr" } else { "a remount for each mount" };
        format!("fsopen, open_tree and {rest}")
    });
    fact("mount API", found.map_err(|error| error.to_string()))
}

fn seccomp() -> Probe {
    let actions = fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail");
    let found = match actions {
        Ok(actions) if actions.split_whitespace().any(|action| action == "errno") => {
            Ok("filters".to_owned())
        }
        Ok(actions) => Err(format!("only {}", actions.trim())),
        Err(error) => Err(error.to_string()),
    };
    fact("seccomp", found)
}

fn file_system(name: &'static str, kind: &str) -> Probe {
    fact(name, outcome_of(mount::supports_file_system(kind), "supported"))
}

fn fuse() -> Probe {
    let device = Path::new("/dev/fuse");
    let known = mount::supports_file_system("fuse");
    // An ordinary user needs its permission, and not only that it is there.
    let open = || fs::File::options().read(true).write(true).open(device).map(drop);
    let found = known.and_then(|()| match rootless::entered() {
        Some(_) => open(),
        None => fs::metadata(device).map(drop),
    });
    fact("FUSE", outcome_of(found, "supported, with /dev/fuse"))
}

fn landlock() -> Probe {
    match landlock::version() {
        0 => fact("Landlock", Err("not supported".to_owned())),
        version => fact("Landlock", Ok(format!("version {version}"))),
    }
}

fn outcome_of(tried: io::Result<()>, found: &str) -> std::result::Result<String, String> {
    tried.map(|()| found.to_owned()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_every_requirement_and_leaves_no_control_group() {
        let facts = probe();
        assert_eq!(facts.len(), 10);
        assert!(facts.iter().all(|fact| !fact.found.is_empty()), "{facts:?}");
        let parent = format!("snowmelt/probe-{}", std::process::id());
        if let Ok(backend) = cgroup::detect() {
            assert!(backend.folders(&parent).iter().all(|folder| !folder.exists()));
        }
    }
}
