//! The sandbox's identity on the host: users, groups, capabilities.

use std::os::unix::fs::chown;

use crate::harness::python;
use crate::twin::{
    escapes_only_without, escapes_only_without_behind, open_folder, printed, set_mode, with_bind,
};

const READ: &str = "
try: print('ESCAPED:', open('/code/secret').read())
except OSError as error: print(error)
";

/// CVE-2024-40635: a sandbox that is user 0 of the host reads files that only root may read.
#[test]
fn a_file_of_the_hosts_root_is_read() {
    escapes_only_without(&["User"], |rig| async move {
        let code = open_folder();
        std::fs::write(code.path().join("secret"), "of root").unwrap();
        set_mode(&code.path().join("secret"), 0o600);
        printed(&rig, with_bind(python(READ), code.path(), "/code")).await
    });
}

/// CVE-2023-25173: the groups of the user who started the platform.
#[test]
fn a_file_of_a_supplementary_group_is_read() {
    const GROUP: u32 = 4242;
    let join = "import os, sys; os.setgroups([4242]); os.execv(sys.argv[1], sys.argv[1:])";
    let front = ["/usr/bin/env", "python3", "-c", join];
    escapes_only_without_behind(&front, &["Groups"], |rig| async move {
        let code = open_folder();
        let secret = code.path().join("secret");
        std::fs::write(&secret, "of the group").unwrap();
        chown(&secret, Some(0), Some(GROUP)).unwrap();
        set_mode(&secret, 0o640);
        printed(&rig, with_bind(python(READ), code.path(), "/code")).await
    });
}

/// CVE-2022-24769, CVE-2022-29162: capabilities in any set, including inheritable.
#[test]
fn a_capability_is_left() {
    escapes_only_without(&["Capabilities"], |rig| async move {
        let script = "
for line in open('/proc/self/status'):
    name, _, value = line.partition(':')
    if name in ('CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb') and int(value, 16):
        print('ESCAPED:', line)
";
        printed(&rig, python(script)).await
    });
}

/// A set-user-id program of the host gives the id of its owner. Four defences prevent this: the
/// user namespace without such an id, `no_new_privs`, nosuid mounts, and the filter, which cannot
/// be installed without `no_new_privs`, nor can Landlock's rules.
#[test]
fn a_set_user_id_program_changes_the_user() {
    let lacking = ["User", "NoNewPrivileges", "Inert", "Seccomp", "Landlock"];
    escapes_only_without(&lacking, |rig| async move {
        let code = open_folder();
        let program = code.path().join("id");
        std::fs::copy("/usr/bin/id", &program).unwrap();
        chown(&program, Some(4242), Some(4242)).unwrap();
        set_mode(&program, 0o4755);
        let script = "
import subprocess
uid = subprocess.run(['/code/id', '-u'], capture_output=True, text=True).stdout.strip()
print('ESCAPED: it is' if uid == '4242' else 'it is', uid)
";
        printed(&rig, with_bind(python(script), code.path(), "/code")).await
    });
}

/// A program that is root in its own namespace has every capability there, and with them access to
/// most kernel vulnerabilities of recent years (CVE-2022-0185, CVE-2024-1086).
#[test]
fn a_user_namespace_is_made() {
    escapes_only_without(&["Seccomp"], |rig| async move {
        let script = "
import ctypes
if ctypes.CDLL(None).unshare(0x10000000) == 0: print('ESCAPED: it is root in its own namespace')
";
        printed(&rig, python(script)).await
    });
}

/// The same with a mount: Landlock refuses mounts as well, so both are disabled.
#[test]
fn a_file_system_is_mounted_in_a_user_namespace() {
    escapes_only_without(&["Seccomp", "Landlock"], |rig| async move {
        let script = "
import ctypes
libc = ctypes.CDLL(None)
if libc.unshare(0x10020000) == 0 and libc.mount(b'x', b'/tmp', b'tmpfs', 0, None) == 0:
    print('ESCAPED: mounted')
";
        printed(&rig, python(script)).await
    });
}

/// `chroot` within a user namespace, the first step of the classical escape from a root.
#[test]
fn the_root_is_changed() {
    escapes_only_without(&["Seccomp"], |rig| async move {
        let script = "
import ctypes
libc = ctypes.CDLL(None)
if libc.unshare(0x10000000) == 0 and libc.chroot(b'/tmp') == 0: print('ESCAPED: another root')
";
        printed(&rig, python(script)).await
    });
}
