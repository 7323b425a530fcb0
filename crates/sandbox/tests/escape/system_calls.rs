//! The kernel's interface: calls that no function needs and that are known from escapes.

use std::process::Command;

use crate::harness::{python, spec};
use crate::twin::{ESCAPED, escapes_only_without, open_folder, printed, with_bind};

/// Calls with arguments for which the kernel returns another error than EPERM, which shows whether
/// they reached the kernel.
pub const CALLS: &str = "
import ctypes, platform
libc = ctypes.CDLL(None, use_errno=True)
x86 = platform.machine() == 'x86_64'
NOBODY = 0x3fffffff
calls = {
    'add_key': (248, 217, 0, 0), 'adjtimex': (159, 171, 0), 'bpf': (321, 280, 0x1000, 0, 0),
    'cachestat': (451, 451, -1, 0, 0, 0), 'chroot': (161, 51, 0), 'clone3': (435, 435, 0, 0),
    'fanotify_init': (300, 262, 0x200, 0), 'inotify_init1': (294, 26, -1), 'io_uring_enter': (426, 426, -1, 0, 0, 0, 0),
    'io_uring_register': (427, 427, -1, 0, 0, 0), 'kcmp': (312, 272, NOBODY, NOBODY, 0, 0, 0),
    'keyctl': (250, 219, 0, -3, 1), 'migrate_pages': (256, 238, NOBODY, 0, 0, 0),
    'move_pages': (279, 239, NOBODY, 0, 0, 0, 0, 0), 'mq_open': (240, 180, 0, 0, 0, 0),
    'msgget': (68, 186, 0x5eed, 0), 'name_to_handle_at': (303, 264, -100, 0, 0, 0, 0),
    'open_tree': (428, 428, -1, 0, 0), 'perf_event_open': (298, 241, 0, 0, -1, -1, 0),
    'pidfd_getfd': (438, 438, -1, 0, 0), 'process_madvise': (440, 440, -1, 0, 0, 0, 0),
    'process_vm_readv': (310, 270, NOBODY, 0, 0, 0, 0, 0),
    'process_vm_writev': (311, 271, NOBODY, 0, 0, 0, 0, 0), 'ptrace': (101, 117, 16, NOBODY, 0, 0),
    'request_key': (249, 218, 0, 0, 0, 0), 'semget': (64, 190, 0x5eed, 0, 0),
    'set_mempolicy': (238, 237, 99, 0, 0), 'setns': (308, 268, -1, 0), 'shmget': (29, 194, 0x5eed, 0, 0),
    'umount2': (166, 39, 0, 0xff000), 'unshare': (272, 97, 0), 'userfaultfd': (323, 282, 1),
    'ioctl TIOCSTI': (16, 29, 3, 0x5412, 0), 'ioctl TIOCLINUX': (16, 29, 3, 0x541c, 0),
    'personality': (135, 92, 0x40000), 'sched_setscheduler': (144, 119, NOBODY, 1, 0),
}
reached, refused = [], []
for name, (on_x86, on_arm, *arguments) in calls.items():
    ctypes.set_errno(0)
    number = on_x86 if x86 else on_arm
    result = libc.syscall(*map(ctypes.c_long, (number, *arguments)))
    denied = result == -1 and ctypes.get_errno() == (38 if name in ('clone3', 'inotify_init1') else 1)
    (refused if denied else reached).append(name)
if reached: print('ESCAPED to the kernel:', reached, 'refused:', refused)
";

#[test]
fn system_calls_known_from_escapes_reach_the_kernel() {
    escapes_only_without(&["Seccomp"], |rig| async move {
        let saw = printed(&rig, python(CALLS)).await;
        // Without the filter each must reach the kernel, or the test proves nothing.
        assert!(!saw.contains(ESCAPED) || saw.contains("refused: []"), "{saw}");
        saw
    });
}

/// Call numbers of the 32-bit interface are different: a filter that checks only numbers allows the
/// wrong calls.
#[test]
#[cfg(target_arch = "x86_64")]
fn a_call_by_the_interface_of_another_architecture_reaches_the_kernel() {
    let code = open_folder();
    let source = code.path().join("old.c");
    let program = code.path().join("old");
    std::fs::write(&source, include_str!("old.c")).unwrap();
    assert!(Command::new("cc").arg("-o").arg(&program).arg(&source).status().unwrap().success());
    let here = Command::new(&program).output().unwrap();
    if here.stdout.is_empty() {
        return eprintln!("skipped: this kernel has no 32-bit interface");
    }
    let folder = code.path();
    escapes_only_without(&["Seccomp"], |rig| async move {
        printed(&rig, with_bind(spec(&["/code/old"]), folder, "/code")).await
    });
}
