//! What a sandbox must not see, reach or do.

use crate::harness::{ask, python, with_spawner};
use snowmelt_sandbox::{Network, SyscallPolicy};
use snowmelt_types::End;

#[test]
fn has_no_privileges_at_all() {
    with_spawner(|rig| async move {
        let script = "
for line in open('/proc/self/status'):
    if line.split(':')[0] in ('Uid', 'Gid', 'Groups', 'CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb', 'NoNewPrivs', 'Seccomp'):
        print(' '.join(line.split()))
";
        let expected = "Uid: 1000 1000 1000 1000\nGid: 1000 1000 1000 1000\nGroups:\n\
            CapInh: 0000000000000000\nCapPrm: 0000000000000000\nCapEff: 0000000000000000\n\
            CapBnd: 0000000000000000\nCapAmb: 0000000000000000\nNoNewPrivs: 1\nSeccomp: 2";
        assert_eq!(rig.printed(script).await, expected);
    });
}

#[test]
fn sees_no_process_but_its_own() {
    with_spawner(|rig| async move {
        let script = "
import os, socket
print(os.getpid(), [p for p in os.listdir('/proc') if p.isdigit()], socket.gethostname())
print(open('/proc/1/cmdline').read().split(chr(0))[1])
try: os.kill(2, 0)
except ProcessLookupError: print('nobody')
";
        assert_eq!(rig.printed(script).await, "1 ['1'] snowmelt\n-I\nnobody");
    });
}

#[test]
fn sees_only_programs_of_the_host() {
    with_spawner(|rig| async move {
        let script = "
import os
for path in ['/etc/shadow', '/root/.bashrc', '/root/.ssh', '/home', '/var/lib', '/sys/kernel', '/boot', '/dev/sda', '/dev/vda', '/dev/kmsg', '/dev/mem', '/dev/tty', '/etc/machine-id']:
    if os.path.exists(path): print('sees', path)
print(sorted(os.listdir('/tmp')), sorted(os.listdir('/dev')), open('/etc/hostname').read().strip())
print([p for p in ('/proc/kcore', '/proc/keys', '/proc/timer_list') if os.path.exists(p) and open(p, 'rb').read(1)])
";
        let expected = "['channel.sock'] ['fd', 'full', 'null', 'random', 'shm', 'stderr', 'stdin', \
            'stdout', 'urandom', 'zero'] snowmelt\n[]";
        assert_eq!(rig.printed(script).await, expected);
    });
}

#[test]
fn can_write_only_to_its_scratch() {
    with_spawner(|rig| async move {
        let script = "
import os
bad = []
for folder, _, _ in os.walk('/'):
    if folder.startswith(('/proc/', '/tmp')): continue
    try:
        open(folder + '/x', 'w').close(); bad.append(folder)
    except OSError: pass
print(bad)
for path in ['/proc/sys/kernel/hostname', '/proc/self/oom_score_adj', '/usr/bin/env', '/proc/sysrq-trigger', '/proc/self/uid_map']:
    try:
        open(path, 'w').write('1'); print('wrote', path)
    except OSError: pass
open('/tmp/x', 'w').write('y'); open('/dev/shm/z', 'w').write('y'); open('/dev/null', 'w').write('y')
print(sorted(os.listdir('/tmp')))
";
        assert_eq!(rig.printed(script).await, "[]\n['channel.sock', 'x', 'z']");
    });
}

#[test]
fn every_mount_except_the_scratch_is_inert() {
    with_spawner(|rig| async move {
        let script = "
for line in open('/proc/self/mountinfo'):
    fields = line.split()
    target, options = fields[4], fields[5].split(',')
    wanted = {'nosuid'} | ({'ro'} if target != '/tmp' else set()) | ({'nodev'} if not target.startswith('/dev') and not target.startswith('/proc/') else set())
    if not wanted <= set(options): print(target, options)
";
        assert_eq!(rig.printed(script).await, "");
    });
}

#[test]
fn has_only_its_four_descriptors() {
    with_spawner(|rig| async move {
        let script = "
import os
for fd in range(0, 1024):
    try: print(fd, os.readlink(f'/proc/self/fd/{fd}').split(':')[0])
    except FileNotFoundError: pass
";
        assert_eq!(rig.printed(script).await, "0 /dev/null\n1 pipe\n2 pipe\n3 socket");
    });
}

const SOCKETS: &str = "
import socket, errno
for family in (socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK, socket.AF_PACKET, 40):
    try: socket.socket(family, socket.SOCK_RAW if family in (16, 17) else socket.SOCK_STREAM); print('made', int(family))
    except OSError as error: print(errno.errorcode[error.errno])
socket.socket(socket.AF_UNIX); socket.socketpair()
";

#[test]
fn can_make_only_local_sockets() {
    with_spawner(|rig| async move {
        assert_eq!(rig.printed(SOCKETS).await, ["EAFNOSUPPORT"; 5].join("\n"));
    });
}

#[test]
fn a_worker_reaches_the_hosts_network_and_the_next_function_does_not() {
    with_spawner(|rig| async move {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut worker = python(&format!(
            "import socket; socket.create_connection(('localhost', {port})); print('reached')"
        ));
        (worker.network, worker.policy) = (Network::Host, SyscallPolicy::Worker);
        let (text, outcome) = rig.run(worker.clone()).await;
        assert_eq!((&*text, outcome.end), ("reached\n", End::Exit { code: 0 }));
        // The same program with the worker's policy, but without the network.
        worker.id = snowmelt_types::SandboxId::new();
        worker.network = Network::None;
        let (text, outcome) = rig.run(worker).await;
        assert_eq!(outcome.end, End::Exit { code: 1 }, "{text}");
    });
}

#[test]
fn system_calls_known_from_escapes_are_denied() {
    with_spawner(|rig| async move {
        let script = "
import ctypes, errno, platform
libc = ctypes.CDLL(None, use_errno=True)
x86 = platform.machine() == 'x86_64'
calls = {'mount': (165, 40), 'umount2': (166, 39), 'unshare': (272, 97), 'setns': (308, 268), 'ptrace': (101, 117), 'bpf': (321, 280), 'keyctl': (250, 219), 'io_uring_setup': (425, 425), 'userfaultfd': (323, 282), 'perf_event_open': (298, 241), 'chroot': (161, 51), 'pivot_root': (155, 41), 'open_tree': (428, 428), 'move_mount': (429, 429), 'fsopen': (430, 430), 'clone3': (435, 435), 'open_by_handle_at': (304, 265), 'process_vm_readv': (310, 270), 'pidfd_getfd': (438, 438), 'mount_setattr': (442, 442)}
for name, numbers in calls.items():
    result = libc.syscall(numbers[0 if x86 else 1], 0x10000000, 0, 0, 0, 0)
    code = ctypes.get_errno()
    if result != -1 or code != (38 if name == 'clone3' else 1): print(name, result, code)
for flag in (0x20000, 0x10000000, 0x40000000, 0x20000000):
    result = libc.syscall(56 if x86 else 220, flag | 17, 0, 0, 0, 0)
    if result == 0: libc._exit(0)
    if result != -1 or ctypes.get_errno() != 1: print('clone', hex(flag), result)
import subprocess, threading
print(subprocess.run(['/bin/echo', 'a child'], capture_output=True).stdout)
thread = threading.Thread(target=print, args=('a thread',)); thread.start(); thread.join()
";
        assert_eq!(rig.printed(script).await, "b'a child\\n'\na thread");
    });
}

#[test]
fn a_channel_replaced_by_a_link_does_not_redirect_the_server() {
    with_spawner(|rig| async move {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("host.sock");
        let host = std::os::unix::net::UnixListener::bind(&path).unwrap();
        host.set_nonblocking(true).unwrap();
        let script = format!(
            "
import os, socket
os.rename('/tmp/channel.sock', '/tmp/other')
os.symlink('{}', '/tmp/channel.sock')
print('swapped', flush=True)
listener = socket.socket(fileno=3)
stream, _ = listener.accept()
stream.makefile('rb').read()
stream.sendall(b'it is me')
",
            path.display()
        );
        let mut sandbox = rig.python(&script).await;
        let mut log = std::fs::File::from(sandbox.take_log().unwrap());
        std::io::Read::read_exact(&mut log, &mut [0; 8]).unwrap();
        assert_eq!(ask(&sandbox, "who").unwrap(), "it is me");
        assert!(host.accept().is_err());
    });
}

#[test]
fn two_sandboxes_have_different_ids_on_the_host() {
    with_spawner(|rig| async move {
        let sleep = "import time; time.sleep(600)";
        let first = rig.python(sleep).await;
        let second = rig.python(sleep).await;
        let owner = |pid: i32| {
            let path = format!("/proc/{pid}/status");
            let status = std::fs::read_to_string(path).unwrap();
            let uid = status.lines().find(|line| line.starts_with("Uid")).unwrap().to_owned();
            uid.split_whitespace().nth(1).unwrap().parse::<u32>().unwrap()
        };
        let ids = [owner(first.pid()), owner(second.pid())];
        assert_ne!(ids[0], ids[1]);
        assert!(ids.iter().all(|id| *id >= 0x7000_0000), "{ids:?}");
    });
}

#[test]
fn two_sandboxes_cannot_meet_by_an_abstract_socket() {
    if snowmelt_kernel::landlock::version() < 6 {
        return eprintln!("skipped: Landlock here cannot scope abstract sockets");
    }
    with_spawner(|rig| async move {
        let listen = "
import socket, time
listener = socket.socket(socket.AF_UNIX); listener.bind(chr(0) + 'meeting'); listener.listen()
print('listening', flush=True); time.sleep(600)
";
        let mut first = rig.python(listen).await;
        let mut log = std::fs::File::from(first.take_log().unwrap());
        std::io::Read::read_exact(&mut log, &mut [0; 9]).unwrap();
        let meet = "
import socket
try: socket.socket(socket.AF_UNIX).connect(chr(0) + 'meeting'); print('met')
except OSError as error: print(type(error).__name__)
";
        assert_eq!(rig.printed(meet).await, "PermissionError");
    });
}
