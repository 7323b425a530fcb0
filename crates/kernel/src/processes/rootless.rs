//! The user namespace in which the platform of an ordinary user runs.
//!
//! The process enters it before it has a second thread, and is user 0 of it: with every capability
//! over what is made inside, and over nothing else. Further ids are those of `/etc/subuid` and
//! `/etc/subgid`, which `newuidmap` and `newgidmap` map from outside, where the administrator has
//! installed them.
//!
//! Invariant: user 0 of the namespace is the user who started the process, and no other id of it is
//! the id of a user of the machine.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{WaitId, WaitIdOptions, getgid, getuid, waitid};
use serde::{Deserialize, Serialize};

use super::clone::{Cloned, check_single_thread, clone_into};
use super::namespace::{flags, unshare};
use crate::{fds, mount};

/// The user ids besides 0 that the namespace has for sandboxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NamespaceIds {
    /// No further ids: every sandbox has that of the user who runs the platform.
    Own,
    /// The subordinate ids of this user, as 1 to this number.
    Subordinate(u32),
}

/// The fewest subordinate ids that are of use. Fewer are not mapped.
const FEWEST: u32 = 4096;

/// The most subordinate ids that are mapped: below 65534, which the kernel shows for every id that
/// is not mapped.
const MOST: u32 = 65_000;

static ENTERED: OnceLock<NamespaceIds> = OnceLock::new();

/// The ids of the namespace that this process, or the one that started it, has entered; `None` for
/// a process with the rights that it was started with.
pub fn entered() -> Option<NamespaceIds> {
    ENTERED.get().copied()
}

/// Takes note that the process that started this one has entered the namespace.
pub fn inherit(ids: NamespaceIds) {
    // Set once: a process is told by the one that started it.
    let _ = ENTERED.set(ids);
}

/// Whether this process is root of the machine, and not only of a namespace of its own.
pub fn is_root_of_machine() -> bool {
    rustix::process::geteuid().is_root() && entered().is_none()
}

/// The reason why the namespace cannot be entered.
#[derive(Debug, thiserror::Error)]
#[error("cannot {step}: {source}")]
pub struct EntryError {
    /// The failed step, as a verb phrase.
    pub step: &'static str,
    /// The kernel's error.
    pub source: io::Error,
}

impl EntryError {
    /// Returns what an administrator does about the refusal, as a command where there is one.
    pub fn remedy(&self) -> String {
        let set = |name: &str, value: &str| {
            let path = Path::new("/proc/sys").join(name.replace('.', "/"));
            fs::read_to_string(path).is_ok_and(|found| found.trim() == value)
        };
        self.remedy_where(set).to_owned()
    }

    fn remedy_where(&self, is_set: impl Fn(&str, &str) -> bool) -> &'static str {
        if is_set("user.max_user_namespaces", "0") {
            "sudo sysctl -w user.max_user_namespaces=15000"
        } else if is_set("kernel.unprivileged_userns_clone", "0") {
            "sudo sysctl -w kernel.unprivileged_userns_clone=1"
        } else if is_set("kernel.apparmor_restrict_unprivileged_userns", "1") {
            "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or allow it to this \
             program alone by a profile of AppArmor (docs/how-to/rootless.md)"
        } else {
            "in a container, allow user namespaces (docker run --security-opt seccomp=unconfined \
             --security-opt systempaths=unconfined), or run snowmelt as root"
        }
    }
}

/// Enters a new user namespace and a new mount namespace, once. Must be called before the process
/// has a second thread.
///
/// # Errors
/// The step that the kernel refuses; the process is of no use for a platform then.
pub fn enter() -> Result<NamespaceIds, EntryError> {
    if let Some(ids) = entered() {
        return Ok(ids);
    }
    step("enter a namespace with threads", check_single_thread())?;
    // The programs that map ids act from outside, so they wait in a process that stays there.
    let mapper = Ranges::of_this_user().and_then(|ranges| Mapper::start(ranges).ok());
    let numbers = [getuid().as_raw(), getgid().as_raw()];
    step("make a user namespace", unshare(flags::USER | flags::MOUNT))?;
    let ids = match mapper.and_then(Mapper::map) {
        Some(count) => NamespaceIds::Subordinate(count),
        None => {
            step("map its user", map_own(numbers))?;
            NamespaceIds::Own
        }
    };
    // A module of the kernel may allow the namespace and refuse what is done in it.
    step("mount in a user namespace", try_mount())?;
    Ok(*ENTERED.get_or_init(|| ids))
}

/// Tries to enter in a copy of this process, which must have one thread.
///
/// # Errors
/// The step and the kernel's error, as [`enter`].
pub fn attempt() -> Result<(), EntryError> {
    let copy = clone_into(0, None, || match enter() {
        Ok(_) => 0,
        Err(error) => error.source.raw_os_error().unwrap_or(libc::EPERM).clamp(1, 255),
    });
    let copy = step("copy this process", copy)?;
    match step("wait for a process", exit_code(copy.pidfd.as_fd()))? {
        0 => Ok(()),
        errno => step("use a user namespace", Err(io::Error::from_raw_os_error(errno))),
    }
}

fn step<T>(step: &'static str, done: io::Result<T>) -> Result<T, EntryError> {
    done.map_err(|source| EntryError { step, source })
}

fn exit_code(process: BorrowedFd<'_>) -> io::Result<i32> {
    let ended = waitid(WaitId::PidFd(process), WaitIdOptions::EXITED)?;
    Ok(ended.and_then(|status| status.exit_status()).unwrap_or(libc::EPERM))
}

/// Maps this user and this group as 0, and nothing else. The kernel lets an ordinary user map the
/// own group only where groups cannot be dropped: a file may deny something to a group.
fn map_own([user, group]: [u32; 2]) -> io::Result<()> {
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("0 {group} 1"))
}

fn try_mount() -> io::Result<()> {
    // The file system vanishes with its descriptor.
    mount::fresh("tmpfs", &[("size", "64k")], mount::inert()).map(drop)
}

/// Subordinate ids: users from the first number on, groups from the second.
struct Ranges {
    firsts: [u32; 2],
    count: u32,
    programs: [PathBuf; 2],
}

impl Ranges {
    /// The ids of the user of this process; `None` where there are none, or no program to map them.
    fn of_this_user() -> Option<Self> {
        let user = getuid().as_raw();
        let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let names = [user.to_string(), name_of(user, &users).unwrap_or_default().to_owned()];
        let read = |file| fs::read_to_string(file).ok().and_then(|text| range(&text, &names));
        let of_users = read("/etc/subuid")?;
        let of_groups = read("/etc/subgid")?;
        let count = of_users.count.min(of_groups.count).min(MOST);
        let programs = [program("newuidmap")?, program("newgidmap")?];
        let firsts = [of_users.first, of_groups.first];
        (count >= FEWEST).then_some(Self { firsts, count, programs })
    }
}

/// A line of `/etc/subuid`.
#[derive(Debug, PartialEq, Eq)]
struct SubordinateRange {
    first: u32,
    count: u32,
}

fn name_of(user: u32, passwd: &str) -> Option<&str> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(user)).then_some(name)
    })
}

/// The largest range of a user with one of these names.
fn range(text: &str, names: &[String]) -> Option<SubordinateRange> {
    let parsed = text.lines().filter_map(|line| {
        let mut fields = line.trim().split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        let first: u32 = fields.next()?.parse().ok()?;
        let count: u32 = fields.next()?.parse().ok()?;
        // Root's own id is never subordinate, whatever the file says.
        let is_usable = names.iter().any(|known| known == name) && first > 0;
        (is_usable && first.checked_add(count).is_some())
            .then_some(SubordinateRange { first, count })
    });
    parsed.max_by_key(|range| range.count)
}

/// The path of a program of the machine. Folders of the user are not searched.
fn program(name: &str) -> Option<PathBuf> {
    let folders = ["/usr/bin", "/bin", "/usr/sbin", "/usr/local/bin", "/run/wrappers/bin"];
    folders.iter().map(|folder| Path::new(folder).join(name)).find(|path| path.exists())
}

/// A process outside of the namespace, which maps subordinate ids when it is asked to.
struct Mapper {
    process: Cloned,
    go: OwnedFd,
    count: u32,
}

impl Mapper {
    fn start(ranges: Ranges) -> io::Result<Self> {
        let (wait, go) = pipe_with(PipeFlags::CLOEXEC)?;
        let mapped = std::process::id();
        let numbers = [getuid().as_raw(), getgid().as_raw()];
        let count = ranges.count;
        let process = clone_into(0, None, || {
            // The write end of its own pipe is closed: with that, it would wait for itself.
            let alone = fds::duplicate_to(wait.as_fd(), 0).and_then(|()| fds::close_from(1));
            let told = alone.and_then(|()| {
                Ok(rustix::io::retry_on_intr(|| rustix::io::read(io::stdin(), &mut [0; 1]))?)
            });
            i32::from(!(told.is_ok_and(|count| count == 1) && ranges.map(mapped, numbers)))
        })?;
        Ok(Self { process, go, count })
    }

    /// Lets the process map the ids; returns their number, or `None` if that failed.
    fn map(self) -> Option<u32> {
        let told = rustix::io::write(&self.go, b"x");
        drop(self.go);
        let code = exit_code(self.process.pidfd.as_fd());
        (told.is_ok() && code.is_ok_and(|code| code == 0)).then_some(self.count)
    }
}

impl Ranges {
    /// Runs both programs, that of the groups first: if it is refused, no user is mapped either, and
    /// the process can still map its own.
    fn map(&self, process: u32, numbers: [u32; 2]) -> bool {
        [1, 0].into_iter().all(|kind| {
            let number = numbers[kind].to_string();
            let first = self.firsts[kind].to_string();
            let mut command = Command::new(&self.programs[kind]);
            command.args([&process.to_string(), "0", &number, "1"]);
            command.args(["1", &first, &self.count.to_string()]);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_range_of_the_user_is_taken() {
        let names = ["1000".to_owned(), "ada".to_owned()];
        let text = "bob:900000:65536\nada:100000:65536\n1000:300000:131072\n\nada:7\n";
        let found = range(text, &names);
        assert_eq!(found, Some(SubordinateRange { first: 300_000, count: 131_072 }));
        for bad in ["", "bob:1:2", "ada:0:65536", "ada:4294967295:2", ":1:2", "ada:x:2"] {
            assert_eq!(range(bad, &["ada".to_owned(), String::new()]), None, "{bad}");
        }
    }

    #[test]
    fn names_of_users_are_found_by_number() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nada:x:1000:1000::/home/ada:/bin/sh\n";
        assert_eq!(name_of(1000, passwd), Some("ada"));
        assert_eq!(name_of(7, passwd), None);
    }

    #[test]
    fn the_remedy_names_the_setting_that_refuses() {
        let source = io::Error::from_raw_os_error(libc::EPERM);
        let error = EntryError { step: "make a user namespace", source };
        for (name, value) in [
            ("user.max_user_namespaces", "0"),
            ("kernel.unprivileged_userns_clone", "0"),
            ("kernel.apparmor_restrict_unprivileged_userns", "1"),
        ] {
            let remedy = error.remedy_where(|known, set| (known, set) == (name, value));
            assert!(remedy.starts_with(&format!("sudo sysctl -w {name}=")), "{remedy}");
        }
        assert!(error.remedy_where(|_, _| false).contains("as root"));
    }

    #[test]
    fn a_process_with_threads_is_refused_and_unchanged() {
        let (send, receive) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || receive.recv());
        let error = enter().unwrap_err();
        assert_eq!(error.source.raw_os_error(), Some(libc::EBUSY), "{error}");
        assert_eq!(entered(), None);
        drop(send);
        assert!(other.join().unwrap().is_err());
    }
}
