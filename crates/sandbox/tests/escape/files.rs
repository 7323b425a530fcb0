//! Files of the host: what is shown is read-only and inert, and `/proc` is masked.

use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

use crate::harness::python;
use crate::twin::{open_folder, printed, set_mode, showing, shown};

/// A folder of the host that everybody may write to is shown to a sandbox.
#[test]
fn a_file_appears_on_the_host() {
    shown(&["Inert", "Landlock"], |rig| async move {
        let code = open_folder();
        set_mode(code.path(), 0o777);
        let saw = printed(&rig, showing(python(WRITE), code.path(), "/code")).await;
        if code.path().join("planted").exists() { format!("ESCAPED {saw}") } else { saw }
    });
}

const WRITE: &str = "open('/code/planted', 'w').write('x')";

/// The second fence alone: what is shown could be written to, and Landlock refuses it.
#[test]
fn a_file_appears_on_a_mount_that_is_not_read_only() {
    if snowmelt_kernel::landlock::version() < 2 {
        return eprintln!("skipped: Landlock here has no rules for files");
    }
    crate::twin::held_without(&["Inert"], |rig| async move {
        let code = open_folder();
        set_mode(code.path(), 0o777);
        let saw = printed(&rig, showing(python(WRITE), code.path(), "/code")).await;
        assert!(saw.contains("PermissionError"), "{saw}");
        if code.path().join("planted").exists() { format!("ESCAPED {saw}") } else { saw }
    });
}

/// A device node that a package or an image brings along.
#[test]
fn a_device_that_a_package_brings_is_opened() {
    shown(&["Inert"], |rig| async move {
        let code = open_folder();
        device(&code.path().join("device"));
        let script = "
try: print('ESCAPED: read', open('/code/device', 'rb').read(1))
except OSError as error: print(error)
";
        printed(&rig, showing(python(script), code.path(), "/code")).await
    });
}

/// The zeroes' device, harmless in itself.
fn device(path: &Path) {
    let (mode, zero) = (Mode::from_raw_mode(0o666), makedev(1, 5));
    mknodat(CWD, path, FileType::CharacterDevice, mode, zero).unwrap();
    set_mode(path, 0o666);
}

/// A device node made in the scratch: refused for want of capabilities on the host, by Landlock
/// and by the mount, so all are left out.
#[test]
fn a_device_is_made_and_opened() {
    shown(&["User", "Capabilities", "Landlock", "Inert"], |rig| async move {
        let script = "
import os, stat
try:
    os.mknod('/tmp/device', 0o666 | stat.S_IFCHR, os.makedev(1, 5))
    print('ESCAPED: read', open('/tmp/device', 'rb').read(1))
except OSError as error: print(error)
";
        printed(&rig, python(script)).await
    });
}

/// Files of `/proc` about the whole machine; their modes refuse all but root as well.
#[test]
fn what_proc_says_of_the_machine_is_read() {
    shown(&["MaskedProc", "User"], |rig| async move {
        let script = "
for name in ('kcore', 'keys', 'timer_list'):
    try:
        if open('/proc/' + name, 'rb').read(1): print('ESCAPED: read', name)
    except OSError as error: print(error)
";
        printed(&rig, python(script)).await
    });
}

/// How the machine was started and built, what it does, and which one it is: everybody may read it.
#[test]
fn what_tells_one_machine_from_another_is_read() {
    let here: Vec<_> = ["cmdline", "config.gz", "interrupts", "sys/kernel/random/boot_id"]
        .into_iter()
        .filter(|name| Path::new("/proc").join(name).exists())
        .collect();
    shown(&["MaskedProc"], |rig| {
        let here = here.clone();
        async move {
            let script = format!(
                "
for name in {here:?}:
    if open('/proc/' + name, 'rb').read(1): print('ESCAPED: read', name)
"
            );
            printed(&rig, python(&script)).await
        }
    });
}

/// A setting of the kernel is written; the attack writes what is there already.
#[test]
fn a_setting_of_the_kernel_is_written() {
    shown(&["ReadOnlyProc", "User", "Landlock"], |rig| async move {
        let script = "
path = '/proc/sys/kernel/panic'
value = open(path).read()
try:
    with open(path, 'w') as file: file.write(value)
    print('ESCAPED: wrote', value)
except OSError as error: print(error)
";
        printed(&rig, python(script)).await
    });
}

/// Nothing of the scratch gets a name elsewhere: another file system, and Landlock.
#[test]
fn a_hard_link_leads_out_of_the_scratch() {
    crate::twin::held(|rig| async move {
        let code = open_folder();
        set_mode(code.path(), 0o777);
        let script = "
import os
open('/tmp/x', 'w').close()
for target in ('/code/x', '/run/x', '/dev/x', '/x'):
    for move in (os.link, os.rename):
        try: move('/tmp/x', target); print('ESCAPED to', target)
        except OSError as error: print(error)
os.mkdir('/tmp/a'); os.link('/tmp/x', '/tmp/a/y'); os.rename('/tmp/a/y', '/tmp/z')
print('and inside all works')
";
        let saw = printed(&rig, showing(python(script), code.path(), "/code")).await;
        assert!(saw.contains("and inside all works"), "{saw}");
        saw
    });
}
