//! The same sandboxes on a kernel without the newest mount calls.

use std::ffi::OsString;

use crate::harness::{Rig, ask, is_root, program, python, runtime, within};
use crate::zygote::{Code, child, zygote};
use snowmelt_sandbox::Bind;

const MOUNTS: &str = "
import os
for line in open('/proc/self/mountinfo'):
    fields = line.split()
    target, options = fields[4], fields[5].split(',')
    wanted = {'nosuid'} | ({'ro'} if target != '/tmp' else set()) | ({'nodev'} if not target.startswith('/dev') and not target.startswith('/proc/') else set())
    if not wanted <= set(options): print(target, options)
    if target.startswith('/srv'): print(target, *sorted(set(options) & {'ro', 'nosuid', 'nodev', 'noexec'}))
for fd in range(0, 1024):
    try: print(fd, os.readlink(f'/proc/self/fd/{fd}').split(':')[0])
    except FileNotFoundError: pass
";

/// Mounts below a bind are as inert as the bind, and keep their earlier restrictions.
#[test]
fn sandboxes_are_as_inert_before_linux_5_12() {
    if !is_root() {
        eprintln!("skipped: only root can make sandboxes with limits");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let outer = folder.path().join("with space");
    std::fs::create_dir_all(outer.join("inner")).unwrap();
    // The host's mounts as only this spawner sees them.
    let script = "mount -t tmpfs one \"$1\" && mkdir \"$1/inner\" && \
        mount -t tmpfs -o noexec two \"$1/inner\" && shift && exec \"$@\"";
    let mut command: Vec<OsString> =
        ["unshare", "--mount", "sh", "-c", script, "sh"].map(OsString::from).into();
    command.extend([outer.clone().into(), program("old_kernel").into()]);
    runtime().block_on(async {
        let rig = Rig::with(command);
        let mut spec = python(MOUNTS);
        spec.root.binds.push(Bind { source: outer, target: "/srv".into() });
        let (text, outcome) = rig.run(spec).await;
        assert_eq!(outcome.end, snowmelt_types::End::Exit { code: 0 }, "{text}");
        let expected = "/srv nodev nosuid ro\n/srv/inner nodev noexec nosuid ro\n\
            0 /dev/null\n1 pipe\n2 pipe\n3 socket";
        assert_eq!(text.trim(), expected);
        rig.spawner.shutdown().await.unwrap();
        rig.assert_nothing_left();
    });
}

/// Before Linux 6.18 only a process of a child's pid namespace can make the child's `/proc`.
#[test]
fn children_of_zygotes_see_their_own_processes_before_linux_6_18() {
    if !is_root() {
        eprintln!("skipped: only root can make sandboxes with limits");
        return;
    }
    runtime().block_on(async {
        let rig = Rig::with(vec![program("old_kernel").into()]);
        let code = Code::new(&[]);
        let top = zygote(&rig, &code, &[]).await;
        let below = within(rig.spawner.grow(&top, code.zygote(&[]))).await.unwrap();
        for zygote in [&top, &below] {
            let child = child(&rig, zygote, &code).await;
            let processes = "[p for p in __import__('os').listdir('/proc') if p.isdigit()]";
            assert_eq!(ask(&child, processes).unwrap(), "['1']");
            child.kill(snowmelt_types::End::Killed);
            within(child.wait()).await;
        }
        drop((below, top));
        rig.spawner.shutdown().await.unwrap();
        rig.assert_nothing_left();
    });
}
