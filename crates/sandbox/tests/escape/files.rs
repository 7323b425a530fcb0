//! Files of the host: binds are read-only and inert, and `/proc` is masked.

use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

use crate::harness::python;
use crate::twin::{escapes_only_without, open_folder, printed, set_mode, with_bind};

/// A world-writable folder of the host is mounted in a sandbox.
#[test]
fn a_file_appears_on_the_host() {
    escapes_only_without(&["Inert", "Landlock"], |rig| async move {
        let code = open_folder();
        set_mode(code.path(), 0o777);
        let saw = printed(&rig, with_bind(python(WRITE), code.path(), "/code")).await;
        if code.path().join("planted").exists() { format!("ESCAPED {saw}") } else { saw }
    });
}

const WRITE: &str = "open('/code/planted', 'w').write('x')";

/// Only the second barrier: the bind is writable, and Landlock refuses the write.
#[test]
fn a_file_appears_on_a_mount_that_is_not_read_only() {
    if snowmelt_kernel::landlock::version() < 2 {
        return eprintln!("skipped: Landlock here has no rules for files");
    }
    crate::twin::never_escapes_without(&["Inert"], |rig| async move {
        let code = open_folder();
        set_mode(code.path(), 0o777);
        let saw = printed(&rig, with_bind(python(WRITE), code.path(), "/code")).await;
        assert!(saw.contains("PermissionError"), "{saw}");
        if code.path().join("planted").exists() { format!("ESCAPED {saw}") } else { saw }
    });
}

/// A device node in a package or an image.
#[test]
fn a_device_node_in_a_package_is_opened() {
    escapes_only_without(&["Inert"], |rig| async move {
        let code = open_folder();
        device(&code.path().join("device"));
        let script = "
try: print('ESCAPED: read', open('/code/device', 'rb').read(1))
except OSError as error: print(error)
";
        printed(&rig, with_bind(python(script), code.path(), "/code")).await
    });
}

/// The device `/dev/zero`, harmless in itself.
fn device(path: &Path) {
    let mode = Mode::from_raw_mode(0o666);
    let zero = makedev(1, 5);
    mknodat(CWD, path, FileType::CharacterDevice, mode, zero).unwrap();
    set_mode(path, 0o666);
}

/// A device node made in the scratch: refused by missing capabilities on the host, by Landlock and
/// by the mount, so all are disabled.
#[test]
fn a_device_is_made_and_opened() {
    escapes_only_without(&["User", "Capabilities", "Landlock", "Inert"], |rig| async move {
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

/// Files of `/proc` about the whole machine; their modes also refuse all but root.
#[test]
fn machine_wide_proc_files_are_read() {
    escapes_only_without(&["MaskedProc", "User"], |rig| async move {
        let script = "
for name in ('kcore', 'keys', 'timer_list'):
    try:
        if open('/proc/' + name, 'rb').read(1): print('ESCAPED: read', name)
    except OSError as error: print(error)
";
        printed(&rig, python(script)).await
    });
}

/// World-readable files about the machine's boot parameters, build, activity and identity.
#[test]
fn files_that_identify_the_machine_are_read() {
    let here: Vec<_> = ["cmdline", "config.gz", "interrupts", "sys/kernel/random/boot_id"]
        .into_iter()
        .filter(|name| Path::new("/proc").join(name).exists())
        .collect();
    escapes_only_without(&["MaskedProc"], |rig| {
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

/// A kernel setting is written; the attack writes the present value.
#[test]
fn a_setting_of_the_kernel_is_written() {
    escapes_only_without(&["ReadOnlyProc", "User", "Landlock"], |rig| async move {
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

/// No file of the scratch gets a link elsewhere: another file system, and Landlock.
#[test]
fn a_hard_link_leads_out_of_the_scratch() {
    crate::twin::never_escapes(|rig| async move {
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
print('links inside work')
";
        let saw = printed(&rig, with_bind(python(script), code.path(), "/code")).await;
        assert!(saw.contains("links inside work"), "{saw}");
        saw
    });
}
