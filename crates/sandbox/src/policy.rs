//! System call policies: combinations of the JSON files in `crates/sandbox/policy/`, by kind of
//! process and by network.
//!
//! The spawner confines itself first, to the calls of its sandboxes and the calls that make
//! sandboxes. A program inherits that filter and installs only the difference to its own policy:
//! the kernel translates a filter anew at each installation, so the length of a filter adds to the
//! time of each start.

use snowmelt_kernel::rootless;
use snowmelt_kernel::seccomp::{self, CompileError, FilterProgram};

use crate::spec::{Network, SyscallPolicy};
use crate::{Error, Result};

const COMMON: &str = include_str!("../policy/common.json");
const LOCAL_SOCKETS: &str = include_str!("../policy/local-sockets.json");
const INTERNET_SOCKETS: &str = include_str!("../policy/internet-sockets.json");
const ZYGOTE: &str = include_str!("../policy/zygote.json");
const NO_CONTROL_GROUP: &str = include_str!("../policy/no-control-group.json");
const SPAWNER: &str = include_str!("../policy/spawner.json");
const SERVER: &str = include_str!("../policy/server.json");
const IMAGE_DAEMON: &str = include_str!("../policy/image-daemon.json");
const NETWORK_DAEMON: &str = include_str!("../policy/network-daemon.json");

/// A process of the platform, outside of sandboxes, whose server has given up the rights of root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlatformProcess {
    /// The server, with all programs that it executes.
    Server,
    /// The daemon that mounts images.
    ImageDaemon,
    /// The daemon that makes networks of jobs.
    NetworkDaemon,
}

impl PlatformProcess {
    fn policy(self) -> std::result::Result<seccomp::SeccompPolicy, CompileError> {
        match self {
            Self::Server => put_together(&[COMMON, INTERNET_SOCKETS, SERVER]),
            Self::ImageDaemon => put_together(&[COMMON, INTERNET_SOCKETS, SERVER, IMAGE_DAEMON]),
            Self::NetworkDaemon => put_together(&[COMMON, NETWORK_DAEMON]),
        }
    }

    /// Restricts this process, and all threads and programs that it starts, to the system calls of
    /// its kind. Needs `no_new_privs`.
    ///
    /// # Errors
    /// [`Error::Policy`] for a policy that does not compile, or that the kernel does not take.
    pub fn restrict_system_calls(self) -> Result<()> {
        let failed = |reason: String| Error::Policy { name: format!("{self:?}"), reason };
        let program = self.policy().and_then(|policy| policy.compile());
        let program = program.map_err(|error| failed(error.to_string()))?;
        program.install().map_err(|error| failed(error.to_string()))
    }
}

/// The filters that the spawner installs, compiled once.
pub(crate) struct Programs {
    spawner: FilterProgram,
    local: FilterProgram,
    internet: FilterProgram,
    zygote: FilterProgram,
    fork: FilterProgram,
    fork_with_network: FilterProgram,
}

impl Programs {
    /// Compiles the filters for this machine.
    pub fn compile() -> Result<Self> {
        let compile = |name: &str, parts: &[&str]| {
            let program = put_together(parts).and_then(|policy| policy.compile());
            program.map_err(|error| refused(name, &error))
        };
        let within = |name: &str, parts: &[&str]| {
            let program = put_together(parts).and_then(|policy| policy.compile_within(&spawner()?));
            program.map_err(|error| refused(name, &error))
        };
        let refusal = |name: &str, parts: &[&str]| {
            let program = put_together(parts).and_then(|policy| policy.compile_refusal());
            program.map_err(|error| refused(name, &error))
        };
        let own = spawner().and_then(|policy| policy.compile());
        Ok(Self {
            spawner: own.map_err(|error| refused("spawner", &error))?,
            local: within("function", &[COMMON, LOCAL_SOCKETS])?,
            internet: within("worker", &[COMMON, INTERNET_SOCKETS])?,
            // Children inherit this filter, and some have a network; the zygote itself has no
            // network.
            zygote: compile("zygote", &[COMMON, INTERNET_SOCKETS, ZYGOTE])?,
            fork: refusal("fork", &[LOCAL_SOCKETS, ZYGOTE])?,
            fork_with_network: refusal("fork with network", &[ZYGOTE])?,
        })
    }

    /// Confines this process, which is the spawner, after its set-up.
    pub fn confine_spawner(&self) -> std::io::Result<()> {
        self.spawner.install()
    }

    /// The filter for a sandbox, on top of the spawner's filter that it inherits.
    pub fn of(&self, policy: SyscallPolicy, network: Network) -> &FilterProgram {
        match (policy, network) {
            (SyscallPolicy::Zygote, _) => &self.zygote,
            (SyscallPolicy::Worker, Network::Host) | (SyscallPolicy::Function, Network::Job(_)) => {
                &self.internet
            }
            _ => &self.local,
        }
    }

    /// The filter that a child of a zygote installs on top of the zygote's, which it inherits: it
    /// refuses the calls that only zygotes may make. The kernel takes 200 microseconds to install
    /// the whole policy of functions, and 20 for the difference.
    pub fn of_fork(&self, has_network: bool) -> &FilterProgram {
        if has_network { &self.fork_with_network } else { &self.fork }
    }
}

fn refused(name: &str, error: &CompileError) -> Error {
    Error::Policy { name: name.to_owned(), reason: error.to_string() }
}

/// The spawner's policy: all calls of its sandboxes, and the calls that make sandboxes. It has the
/// refusals in common to all sandboxes, so that a program need not install them again. Calls that
/// the spawner itself needs are not refused.
fn spawner() -> std::result::Result<seccomp::SeccompPolicy, CompileError> {
    let own = seccomp::SeccompPolicy::parse(SPAWNER)?;
    let mut whole = put_together(&[COMMON, SPAWNER])?;
    let is_needed = |name: &String| own.allow.names.contains(name);
    whole.refuse.retain(|refusal| !refusal.calls.names.iter().any(is_needed));
    Ok(whole)
}

fn put_together(parts: &[&str]) -> std::result::Result<seccomp::SeccompPolicy, CompileError> {
    let mut whole = seccomp::SeccompPolicy::default();
    let has_groups = rootless::entered().is_none();
    // Where nothing counts it, no process may have such memory.
    let counted = (!has_groups && parts.contains(&COMMON)).then_some(&NO_CONTROL_GROUP);
    for part in parts.iter().chain(counted) {
        whole.extend(seccomp::SeccompPolicy::parse(part)?);
    }
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The architecture of this build, as the kernel numbers it.
    const ARCHITECTURE: u32 = if cfg!(target_arch = "aarch64") { 0xC000_00B7 } else { 0xC000_003E };

    /// The result of two filters in the kernel: the stricter one counts. The two results in use are
    /// "allow" and an error, whose number is in the result.
    fn stricter(outer: u32, inner: u32) -> u32 {
        const ALLOW: u32 = 0x7fff_0000;
        if inner == ALLOW { outer } else { inner }
    }

    #[test]
    fn a_difference_filter_and_the_inherited_filter_equal_the_whole_policy() {
        let programs = Programs::compile().unwrap();
        for (parts, inherited, program) in [
            (&[COMMON, LOCAL_SOCKETS][..], &programs.spawner, &programs.local),
            (&[COMMON, INTERNET_SOCKETS], &programs.spawner, &programs.internet),
            (&[COMMON, LOCAL_SOCKETS], &programs.zygote, &programs.fork),
            (&[COMMON, INTERNET_SOCKETS], &programs.zygote, &programs.fork_with_network),
        ] {
            let whole = put_together(parts).unwrap().compile().unwrap();
            let mut denied = 0;
            for number in 0..1000 {
                for first in [0, 1, 2, 10, 16, 17, 0x1002_0000, 0x2000_0000, 0x2_0000, 0x4_0000, !0]
                {
                    for second in [0, 2, 4, 6, 0x2_0000, 0x2000_0000, 21522, 21532] {
                        let call = (number, [first, second, 0, first, 0, 0]);
                        let ask = |program: &FilterProgram| {
                            program.answer(ARCHITECTURE, call.0, call.1).unwrap()
                        };
                        let both = stricter(ask(inherited), ask(program));
                        assert_eq!(both, ask(&whole), "{call:?}");
                        denied += u32::from(both != 0x7fff_0000);
                    }
                }
            }
            assert!(denied > 10_000 && program.length() < 240, "{denied} {}", program.length());
        }
        // Each start pays for what these two have.
        for program in [&programs.local, &programs.internet] {
            assert!(program.length() < 100, "{}", program.length());
        }
    }

    /// Calls that the filter allows with other arguments, or that programs fall back from.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn code_of_the_kernel_that_programs_do_not_need_is_not_reachable() {
        let programs = Programs::compile().unwrap();
        let ask = |number, arguments: [u64; 6]| {
            let answers = [&programs.local, &programs.internet, &programs.zygote];
            let of =
                |program: &FilterProgram| program.answer(ARCHITECTURE, number, arguments).unwrap();
            answers.map(|program| stricter(of(&programs.spawner), of(program)))
        };
        let refused = |errno: u32| [0x0005_0000 | errno; 3];
        let allowed = [0x7fff_0000; 3];
        // MSG_OOB, alone and with MSG_NOSIGNAL.
        for (call, place) in [(44, 3), (46, 2), (307, 3)] {
            for (flags, answers) in
                [(0, allowed), (0x4000, allowed), (1, refused(95)), (0x4001, refused(95))]
            {
                let mut arguments = [0; 6];
                arguments[place] = flags;
                assert_eq!(ask(call, arguments), answers, "{call} {flags:x}");
            }
        }
        for call in [275, 276, 278] {
            assert_eq!(ask(call, [0; 6]), refused(22), "splice, tee, vmsplice");
        }
        let own_process = u64::from(!(1_u32 | 8));
        for (call, clocks) in
            [(222, &[2, 3, own_process][..]), (230, &[2, own_process]), (38, &[1, 2])]
        {
            for clock in clocks {
                assert_eq!(ask(call, [*clock, 0, 0, 0, 0, 0]), refused(22), "{call} {clock}");
            }
        }
        for (call, clock) in [(222, 0), (222, 1), (222, 7), (230, 0), (230, 1), (38, 0)] {
            assert_eq!(ask(call, [clock, 0, 0, 0, 0, 0]), allowed, "{call} {clock}");
        }
        assert_eq!(ask(54, [3, 17, 100, 0, 0, 0]), refused(92), "UDP_ENCAP");
        assert_eq!(ask(54, [3, 17, 1, 0, 0, 0]), allowed, "UDP_CORK");
        assert_eq!(ask(54, [3, 6, 100, 0, 0, 0]), allowed, "of another protocol");
    }

    #[test]
    fn every_policy_compiles_for_every_architecture() {
        for parts in [
            &[COMMON, LOCAL_SOCKETS][..],
            &[COMMON, INTERNET_SOCKETS],
            &[COMMON, LOCAL_SOCKETS, ZYGOTE],
            &[COMMON, INTERNET_SOCKETS, SERVER],
            &[COMMON, INTERNET_SOCKETS, SERVER, IMAGE_DAEMON],
            &[COMMON, NETWORK_DAEMON],
        ] {
            for architecture in ["x86_64", "aarch64"] {
                let policy = put_together(parts).unwrap();
                let program = policy.compile_for(architecture).unwrap();
                assert!(program.length() < 600, "{architecture}: {}", program.length());
            }
        }
    }

    #[test]
    fn no_policy_allows_system_calls_known_from_container_escapes() {
        let policy = put_together(&[COMMON, INTERNET_SOCKETS, ZYGOTE]).unwrap();
        let conditional = policy.allow.conditional.iter().map(|call| &call.name);
        let only = policy.allow.only.values().flatten();
        let allowed: Vec<_> = policy.allow.names.iter().chain(only).chain(conditional).collect();
        for call in [
            "mount",
            "mount_setattr",
            "fsconfig",
            "fsmount",
            "fsopen",
            "fspick",
            "move_mount",
            "open_tree",
            "pivot_root",
            "umount2",
            "bpf",
            "keyctl",
            "add_key",
            "request_key",
            "io_uring_setup",
            "userfaultfd",
            "perf_event_open",
            "ptrace",
            "process_vm_readv",
            "process_vm_writev",
            "open_by_handle_at",
            "init_module",
            "finit_module",
            "kexec_load",
            "chroot",
            "clone3",
            "pidfd_getfd",
            "fanotify_init",
            "syslog",
            "reboot",
            "swapon",
            "quotactl",
            "modify_ldt",
        ] {
            assert!(!allowed.iter().any(|name| *name == call), "{call}");
        }
    }
}
