//! File systems and mounts, by code that zygotes run: imports and shared set-ups.

use snowmelt_sandbox::ZygoteSpec;
use snowmelt_types::{End, SandboxId};

use crate::harness::{Rig, read_all, within};
use crate::twin::escapes_only_without;
use crate::zygotes::importing;

/// What imports and shared set-ups must not reach although their zygote has capabilities over its
/// namespaces: the code of the kernel that configures, makes, moves and removes mounts.
#[test]
fn a_zygote_reaches_the_code_of_file_systems() {
    escapes_only_without(&["Seccomp"], |rig| async move { printed_by_zygotes(&rig, MOUNTS).await });
}

/// Files of `/proc` about the machine, which functions do not see either.
#[test]
fn a_zygote_reads_files_that_identify_the_machine() {
    escapes_only_without(
        &["MaskedProc"],
        |rig| async move { printed_by_zygotes(&rig, MACHINE).await },
    );
}

/// What a module prints when a zygote imports it, and when one below another does.
async fn printed_by_zygotes(rig: &Rig, source: &str) -> String {
    let (spec, _code) = importing(source);
    let calm = ZygoteSpec { id: SandboxId::new(), imports: Vec::new(), ..spec.clone() };
    let above = within(rig.spawner.start_zygote(calm)).await.unwrap();
    let below = ZygoteSpec { id: SandboxId::new(), ..spec.clone() };
    let mut saw = String::new();
    for zygote in [
        within(rig.spawner.start_zygote(spec)).await,
        within(rig.spawner.grow(&above, below)).await,
    ] {
        let mut zygote = zygote.unwrap();
        let log = zygote.take_log().unwrap();
        zygote.kill(End::Killed);
        within(zygote.wait()).await;
        let text = read_all(log);
        assert!(text.contains("tried all"), "{text}");
        saw += &text;
    }
    saw
}

/// The numbers of the calls are the same for all architectures from `open_tree` on. The arguments
/// change nothing: another error than EPERM shows that the call reaches the kernel. The second
/// process has every capability in a user namespace of its own.
const MOUNTS: &str = "
import ctypes, os, platform
libc = ctypes.CDLL(None, use_errno=True)
def attempt(what, number, *arguments):
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in arguments])
    if result >= 0 or ctypes.get_errno() != 1: print('ESCAPED:', what, result, ctypes.get_errno(), flush=True)
def attack(who):
    for kind in (b'proc', b'tmpfs', b'overlay', b'fuse', b'ext4', b'erofs', b'mqueue', b'bpf', b'cgroup2', b'devpts'):
        attempt(f'{who} fsopen of {kind}', 430, kind, 0)
    attempt(f'{who} open_tree', 428, -100, b'/tmp', 1)
    attempt(f'{who} move_mount', 429, -100, b'/nowhere', -100, b'/tmp', 0)
    attempt(f'{who} fsconfig', 431, 0, 6, None, None, 0)
    attempt(f'{who} fsmount', 432, 0, 0, 0)
    attempt(f'{who} fspick', 433, -100, b'/', 0)
    attempt(f'{who} mount_setattr', 442, -100, b'/', 0, None, 0)
    mount, umount, pivot, bpf = (165, 166, 155, 321) if platform.machine() == 'x86_64' else (40, 39, 41, 280)
    attempt(f'{who} mount', mount, b'x', b'/nowhere', b'tmpfs', 0, None)
    attempt(f'{who} umount', umount, b'/nowhere', 2)
    attempt(f'{who} pivot_root', pivot, b'/nowhere', b'/nowhere')
    attempt(f'{who} bpf', bpf, 5, None, 0)
attack('zygote')
pid = os.fork()
if pid == 0:
    libc.unshare(0x10020000)
    attack('own namespace')
    os._exit(0)
os.waitpid(pid, 0)
print('tried all', flush=True)
";

const MACHINE: &str = "
import os
for name in ('cmdline', 'interrupts', 'sys/kernel/random/boot_id'):
    path = '/proc/' + name
    if os.path.exists(path) and open(path, 'rb').read(1): print('ESCAPED: read', name)
print('tried all', flush=True)
";

/// A file system that needs a parameter, like `overlay` or `fuse`, in its own user namespace, and
/// namespaces that no zygote needs: the filter checks the arguments of allowed calls.
#[test]
fn a_zygote_mounts_other_file_systems() {
    escapes_only_without(&["Seccomp", "OwnCounts"], |rig| async move {
        let (spec, _code) = importing(OVERLAY);
        let mut zygote = within(rig.spawner.start_zygote(spec)).await.unwrap();
        let log = zygote.take_log().unwrap();
        zygote.kill(End::Killed);
        within(zygote.wait()).await;
        read_all(log)
    });
}

const OVERLAY: &str = "
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
for kind, name in ((0x04000000, 'uts'), (0x08000000, 'ipc')):
    pid = os.fork()
    if pid == 0:
        if libc.unshare(kind) == 0: print('ESCAPED: has a namespace of', name, flush=True)
        os._exit(0)
    os.waitpid(pid, 0)
context = libc.syscall(430, b'tmpfs', 0)
if libc.syscall(431, context, 1, b'size', b'1m', 0) == 0: print('ESCAPED: set a parameter', flush=True)
";
