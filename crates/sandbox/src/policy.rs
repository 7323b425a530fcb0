//! The system call policies: JSON files put together by who runs and what it can reach.

use snowmelt_kernel::seccomp::{self, CompileError, Program};

use crate::spec::{Network, Policy};
use crate::{Error, Result};

const COMMON: &str = include_str!("../policy/common.json");
const LOCAL_SOCKETS: &str = include_str!("../policy/local-sockets.json");
const INTERNET_SOCKETS: &str = include_str!("../policy/internet-sockets.json");
const ZYGOTE: &str = include_str!("../policy/zygote.json");

/// The programs that the spawner installs, compiled once.
pub(crate) struct Programs {
    local: Program,
    internet: Program,
    zygote: Program,
}

impl Programs {
    /// Compiles them for this machine.
    pub fn compile() -> Result<Self> {
        let compile = |name: &str, parts: &[&str]| {
            let program = put_together(parts).and_then(|policy| policy.compile());
            program
                .map_err(|error| Error::Policy { name: name.to_owned(), reason: error.to_string() })
        };
        Ok(Self {
            local: compile("function", &[COMMON, LOCAL_SOCKETS])?,
            internet: compile("worker", &[COMMON, INTERNET_SOCKETS])?,
            zygote: compile("zygote", &[COMMON, LOCAL_SOCKETS, ZYGOTE])?,
        })
    }

    /// The program for a sandbox.
    pub fn of(&self, policy: Policy, network: Network) -> &Program {
        match (policy, network) {
            (Policy::Zygote, _) => &self.zygote,
            (Policy::Worker, Network::Host) => &self.internet,
            _ => &self.local,
        }
    }
}

fn put_together(parts: &[&str]) -> std::result::Result<seccomp::Policy, CompileError> {
    let mut whole = seccomp::Policy::default();
    for part in parts {
        whole.extend(seccomp::Policy::parse(part)?);
    }
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_compiles_for_every_architecture() {
        for parts in [
            &[COMMON, LOCAL_SOCKETS][..],
            &[COMMON, INTERNET_SOCKETS],
            &[COMMON, LOCAL_SOCKETS, ZYGOTE],
        ] {
            for architecture in ["x86_64", "aarch64"] {
                let policy = put_together(parts).unwrap();
                let program = policy.compile_for(architecture).unwrap();
                assert!(program.length() < 600, "{architecture}: {}", program.length());
            }
        }
    }

    #[test]
    fn no_policy_allows_what_others_escaped_through() {
        let policy = put_together(&[COMMON, INTERNET_SOCKETS, ZYGOTE]).unwrap();
        let conditional = policy.allow.conditional.iter().map(|call| &call.name);
        let only = policy.allow.only.values().flatten();
        let allowed: Vec<_> = policy.allow.names.iter().chain(only).chain(conditional).collect();
        for call in [
            "mount",
            "mount_setattr",
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
