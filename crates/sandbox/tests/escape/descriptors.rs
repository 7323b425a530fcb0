//! Descriptors that a process may inherit, or reach through `/proc/self`.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use snowmelt_kernel::keyring;

use crate::harness::{interpreter, python, spawner_program, spec};
use crate::twin::{
    escapes_only_without, escapes_only_without_behind, open_folder, printed, with_bind,
};

/// CVE-2024-21626, CVE-2016-9962: a host folder that was open when the platform was started is open
/// in the sandbox.
#[test]
fn a_leaked_descriptor_leads_to_the_host() {
    let leak = ["/bin/sh", "-c", "exec 9</etc; exec \"$@\"", "sh"];
    escapes_only_without_behind(&leak, &["Descriptors"], |rig| async move {
        let script = "
import os
for fd in range(4, 256):
    try:
        os.open('passwd', os.O_RDONLY, dir_fd=fd)
        print('ESCAPED: the passwd of the host by descriptor', fd)
    except OSError: pass
";
        printed(&rig, python(script)).await
    });
}

/// CVE-2019-5736: the sandbox executes the platform's own binary, which it can name by
/// `/proc/self/exe` when that is the program to start, and writes to it. While the platform runs,
/// the kernel refuses even the owner (ETXTBSY); the attack has succeeded if only that error stops
/// it.
#[test]
fn the_platforms_binary_is_opened_for_writing_through_proc_self_exe() {
    escapes_only_without(&["User", "Landlock"], |rig| async move {
        let code = open_folder();
        std::fs::copy(evil_library(), code.path().join("evil.so")).unwrap();
        let script = "
import os, sys, errno
try: os.open(f'/proc/self/fd/{sys.argv[1]}', os.O_WRONLY)
except OSError as error:
    print(errno.errorcode[error.errno])
    if error.errno != errno.ETXTBSY: sys.exit()
print('ESCAPED: only ETXTBSY keeps it from being overwritten')
";
        std::fs::write(code.path().join("write.py"), script).unwrap();
        let mut own = with_bind(spec(&["/proc/self/exe"]), code.path(), "/code");
        own.env.push(("LD_PRELOAD".into(), "/code/evil.so".into()));
        own.env.push(("PYTHON".into(), interpreter().0.clone()));
        printed(&rig, own).await
    });
}

/// A library that keeps the binary that loaded it open and executes the script.
fn evil_library() -> &'static PathBuf {
    static MADE: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, library) = MADE.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("evil.c");
        std::fs::write(&source, include_str!("evil.c")).unwrap();
        let library = folder.path().join("evil.so");
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source);
        assert!(cc.status().unwrap().success());
        (folder, library)
    });
    library
}

/// Every process that inherits the session keyring of the platform's user can use the keys in it,
/// whatever its user id.
#[test]
fn a_key_of_the_platforms_user_is_read() {
    if keyring::leave_session().is_err() {
        return eprintln!("skipped: no keyrings here");
    }
    let add_key = "
import ctypes, os, sys
libc = ctypes.CDLL(None)
libc.syscall(ADD_KEY, b'user', b'snowmelt-escape', b'secret', 6, -3)
os.execv(sys.argv[1], sys.argv[1:])
";
    let add_key = numbered(add_key);
    let front = [&*interpreter().0, "-c", &add_key];
    escapes_only_without_behind(&front, &["Keyring", "Seccomp"], |rig| async move {
        let script = "
import ctypes
libc = ctypes.CDLL(None)
key = libc.syscall(KEYCTL, 10, -3, b'user', b'snowmelt-escape', 0)
buffer = ctypes.create_string_buffer(16)
if key > 0 and libc.syscall(KEYCTL, 11, key, buffer, 16, 0) == 6:
    print('ESCAPED: read', buffer.value)
";
        printed(&rig, python(&numbered(script))).await
    });
}

/// Replaces the names of system calls with their numbers.
fn numbered(script: &str) -> String {
    let numbers = if cfg!(target_arch = "x86_64") { ("248", "250") } else { ("217", "219") };
    script.replace("ADD_KEY", numbers.0).replace("KEYCTL", numbers.1)
}

/// A crash writes the memory of the process, with its input data, to a file.
#[test]
fn a_crash_is_dumped() {
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    if pattern.trim() != "core" {
        return eprintln!("skipped: crashes are dumped elsewhere here: {pattern}");
    }
    let unlimited = ["/bin/sh", "-c", "ulimit -c unlimited; exec \"$@\"", "sh"];
    escapes_only_without_behind(&unlimited, &["CoreLimit", "Seccomp"], |rig| async move {
        let script = "
import os, signal, resource
try: resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY,) * 2)
except (OSError, ValueError) as error: print(error)
pid = os.fork()
if pid == 0: os.kill(os.getpid(), signal.SIGSEGV)
os.waitpid(pid, 0)
dumped = [name for name in os.listdir('/tmp') if name.startswith('core')]
if dumped: print('ESCAPED:', dumped)
";
        printed(&rig, python(script)).await
    });
}

/// The spawner's own file must not be writable by others, or the other defences are useless.
#[test]
fn the_spawner_binary_is_not_writable_by_others() {
    let mode = std::fs::metadata(spawner_program()).unwrap().permissions().mode();
    assert_eq!(mode & 0o002, 0, "{mode:o}");
}
