//! Packages that attack when they are imported, and children of a zygote.

use snowmelt_sandbox::{ForkSpec, Limits, Root, ZygoteSpec};
use snowmelt_types::{End, SandboxId};

use crate::harness::{Rig, interpreter, python, python_root, read_all, until, within};
use crate::system_calls::CALLS;
use crate::twin::{escapes_only_without, never_escapes, open_folder, spawner_of};

fn root(code: &tempfile::TempDir) -> Root {
    let mut root = python_root();
    root.binds.push(snowmelt_sandbox::Bind { source: code.path().into(), target: "/code".into() });
    root
}

/// A zygote that imports the module `package` with this source.
pub fn importing(source: &str) -> (ZygoteSpec, tempfile::TempDir) {
    let code = open_folder();
    std::fs::write(code.path().join("package.py"), source).unwrap();
    let spec = ZygoteSpec {
        id: SandboxId::new(),
        root: root(&code),
        python: interpreter().0.clone().into(),
        python_path: vec!["/code".into()],
        imports: vec!["package".into()],
        env: Vec::new(),
        limits: Limits::default(),
    };
    (spec, code)
}

pub fn child(code: &tempfile::TempDir) -> ForkSpec {
    ForkSpec {
        network: None,
        id: SandboxId::new(),
        root: root(code),
        sys_path: vec!["/code".into()],
        env: Vec::new(),
        limits: Limits::default(),
        entry: "package:attack".into(),
    }
}

/// The same attacks from a child of a zygote as from a program.
#[test]
fn a_child_makes_the_same_attacks_as_a_program() {
    never_escapes(|rig| async move {
        let attack = format!(
            "
def attack(listener):
    exec(CALLS, {{}})
    exec(REST, {{}})
    print('tried all')
CALLS = {CALLS:?}
REST = {REST:?}
"
        );
        let (spec, code) = importing(&attack);
        let zygote = within(rig.spawner.start_zygote(spec)).await.unwrap();
        let mut child = within(rig.spawner.fork(&zygote, child(&code))).await.unwrap();
        let log = child.take_log().unwrap();
        let saw = tokio::task::spawn_blocking(move || read_all(log)).await.unwrap();
        within(child.wait()).await;
        assert!(saw.contains("tried all"), "{saw}");
        saw
    });
}

const REST: &str = "
import ctypes, os, resource, socket
libc = ctypes.CDLL(None)
def attempt(what, call):
    try: call(); print('ESCAPED:', what)
    except (OSError, ValueError, AttributeError): pass
def writes(path): return lambda: open(path, 'w').close()
for path in ('/x', '/code/x', '/run/x', '/dev/x', '/usr/x', '/proc/sys/kernel/panic'):
    attempt('wrote ' + path, writes(path))
attempt('made a device', lambda: os.mknod('/tmp/d', 0o666 | 0o20000, os.makedev(1, 5)))
attempt('linked out', lambda: (open('/tmp/l', 'w').close(), os.link('/tmp/l', '/code/l')))
attempt('set the core limit', lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 1)))
for family in (2, 10, 16, 17): attempt('made a socket', lambda: socket.socket(family, 3))
for name in ('kcore', 'keys', 'timer_list', 'cmdline', 'config.gz', 'interrupts', 'sys/kernel/random/boot_id'):
    attempt('read ' + name, lambda: open('/proc/' + name, 'rb').read(1)[0:1].decode('ascii')[0] if open('/proc/' + name, 'rb').read(1) else os.open('/nowhere', 0))
if [p for p in os.listdir('/proc') if p.isdigit() and p != '1']: print('ESCAPED: sees processes')
if sorted(int(f) for f in os.listdir('/proc/self/fd'))[4:] not in ([], [4]): print('ESCAPED: has descriptors', os.listdir('/proc/self/fd'))
if libc.unshare(0x10000000) == 0: print('ESCAPED: unshared')
if libc.mount(b'x', b'/tmp', b'tmpfs', 0, None) == 0: print('ESCAPED: mounted')
for line in open('/proc/self/status'):
    name, _, value = line.partition(':')
    if name.startswith('Cap') and int(value, 16): print('ESCAPED:', line)
";

/// A zygote that floods its control socket, with packets of every kind, from many processes and
/// endlessly: the spawner serves the others meanwhile, and keeps none of the descriptors.
#[test]
fn a_zygote_floods_the_spawner() {
    never_escapes(|rig| async move {
        // One folder, so that there is one root, which the spawner caches.
        let (calm, code) = importing("");
        let zygote = within(rig.spawner.start_zygote(calm.clone())).await.unwrap();
        within(rig.run(python(""))).await;
        let before = descriptors(&rig);
        drop(zygote);
        for flood in [
            "send(b'{\"exited\": {\"token\": 1, \"code\": 0, \"cpu_us\": 0}}')",
            "send(b'{\"failed\": {\"token\": 1, \"step\": \"lie\", \"errno\": 1}}')",
            "send(b'{\"ready\": {\"failed\": [], \"threads\": 0}}')",
            "send(b'\\xff' * 1000)",
            "send(b'{' * 60000)",
            "socket.send_fds(control, [b'{\"exited\": {\"token\": 1, \"code\": 0, \"cpu_us\": 0}}'], [0] * 8)",
            "socket.send_fds(control, [b'x'], [0] * 200)",
        ] {
            let source = format!(
                "
import os, socket
control = socket.socket(fileno=os.dup(3))
send = control.send
for _ in range(4):
    if os.fork() == 0: break
while True:
    try: {flood}
    except OSError: break
"
            );
            std::fs::write(code.path().join("package.py"), source).unwrap();
            let spec = ZygoteSpec { id: SandboxId::new(), ..calm.clone() };
            let zygote = {
                let rig = rig.clone();
                tokio::spawn(async move { rig.spawner.start_zygote(spec).await })
            };
            for _ in 0..3 {
                let mut other = python("print('served')");
                other.id = SandboxId::new();
                let (text, _) = within(rig.run(other)).await;
                assert_eq!(text, "served\n", "{flood}");
            }
            // Its imports never end: if it was not killed, stop waiting for it.
            zygote.abort();
            drop(zygote.await);
        }
        until("every zygote is gone", || processes(&rig) == 0).await;
        // Its pool of control groups may have grown; the floods sent many thousands.
        until("the spawner has closed the received descriptors", || {
            descriptors(&rig) <= before + 64
        })
        .await;
        String::new()
    });
}

/// Open descriptors of the spawner.
fn descriptors(rig: &Rig) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", spawner_of(rig))).unwrap().count()
}

/// Processes in the control groups of sandboxes.
fn processes(rig: &Rig) -> usize {
    let folders = rig.groups().into_iter().take(1);
    let inside = folders.flat_map(|folder| std::fs::read_dir(folder).unwrap().flatten());
    let lists =
        inside.filter_map(|entry| std::fs::read_to_string(entry.path().join("cgroup.procs")).ok());
    lists.map(|list| list.lines().count()).sum()
}

/// CVE-2022-0492, CVE-2023-25809, CVE-2025-47291: a package that, when imported, mounts control
/// groups in the zygote's namespaces and tries to leave its own, gives a child the host's root as
/// user, or mounts the host's devices.
#[test]
fn a_zygote_uses_its_capabilities_against_the_host() {
    never_escapes(|rig| async move {
        let source = format!("SCRIPT = {ZYGOTE_ATTACK:?}\nexec(SCRIPT, {{}})\n");
        let (spec, _code) = importing(&source);
        let mut zygote = within(rig.spawner.start_zygote(spec)).await.unwrap();
        let log = zygote.take_log().unwrap();
        assert_eq!(zygote.failed_imports(), &[] as &[String]);
        zygote.kill(End::Killed);
        within(zygote.wait()).await;
        let saw = read_all(log);
        assert!(saw.contains("tried all"), "{saw}");
        saw
    });
}

const ZYGOTE_ATTACK: &str = "
import ctypes, os, time
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    return libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in arguments])

def mounted(kind, option):
    context = call(430, kind, 0)
    if context < 0: return None
    if option: call(431, context, 0, option, None, 0)
    if call(431, context, 6, None, None, 0) < 0: return None
    tree = call(432, context, 0, 0)
    return tree if tree >= 0 else None

def walk(tree):
    for name in ('release_agent', 'notify_on_release', 'tasks', 'cgroup.procs', 'memory.limit_in_bytes', 'pids.max', 'cpu.cfs_quota_us', 'cgroup.subtree_control', 'memory.max'):
        try:
            fd = os.open(name, os.O_WRONLY, dir_fd=tree)
            os.write(fd, b'0' if name in ('tasks', 'cgroup.procs') else b'1')
            print('ESCAPED: wrote', name)
        except OSError as error: print(name, error.strerror)
    try: os.mkdir('escaped', dir_fd=tree); print('ESCAPED: made a group')
    except OSError as error: print('mkdir', error.strerror)

libc.unshare(0x02000000)
for kind, option in ((b'cgroup', b'memory'), (b'cgroup', b'pids'), (b'cgroup', b'cpu'), (b'cgroup2', None)):
    tree = mounted(kind, option)
    print(kind, option, 'mounted' if tree else 'refused')
    if tree: walk(tree)

for kind in (b'ext4', b'sysfs', b'devtmpfs', b'debugfs', b'securityfs', b'bpf', b'tracefs', b'configfs'):
    if mounted(kind, None): print('ESCAPED: mounted', kind)

# Its own child gets the ids of the host.
ready, go = os.pipe(), os.pipe()
pid = os.fork()
if pid == 0:
    libc.unshare(0x10000000)
    os.write(ready[1], b'x'); os.read(go[0], 1); os._exit(0)
os.read(ready[0], 1)
for text in ('0 0 4294967295', '0 1000000 1', '0 4294967294 1', '-1 0 1'):
    try:
        with open(f'/proc/{pid}/uid_map', 'w') as file: file.write(text)
        print('ESCAPED: mapped', text, open(f'/proc/{pid}/uid_map').read())
        break
    except OSError as error: print(text, error.strerror)
os.write(go[1], b'x'); os.waitpid(pid, 0)

# Processes of the host by their id, its root by `..`, its devices.
if [p for p in os.listdir('/proc') if p.isdigit() and int(p) > 1000]: print('ESCAPED: sees the host')
for path in ('/proc/1/root/home', '/../../../home', '/proc/self/root/home', '/sys/kernel'):
    if os.path.exists(path): print('ESCAPED: reached', path)
for number in ((8, 0), (254, 0), (1, 1)):
    try: os.mknod('/tmp/d', 0o666 | 0o60000, os.makedev(*number)); print('ESCAPED: made a device')
    except OSError as error: print('mknod', error.strerror)
for number in (101, 310, 321, 425, 298, 323, 304):
    if call(number, 0, 0, 0, 0, 0) != -1 or ctypes.get_errno() != 1: print('ESCAPED: call', number)
print('tried all', flush=True)
";

/// A package keeps the entry files of its children's control groups, and puts processes into the
/// groups faster than they are killed, so that they cannot be removed. Such a zygote is killed, and
/// others are served meanwhile.
#[test]
fn a_zygote_puts_unrelated_processes_into_its_childrens_groups() {
    never_escapes(|rig| async move {
        let (spec, code) = importing(CHURN);
        let zygote = within(rig.spawner.start_zygote(spec)).await.unwrap();
        let forked = within(rig.spawner.fork(&zygote, child(&code))).await;
        assert!(forked.is_err(), "{forked:?}");
        if zygote.failed_imports() == ["no entry files"] {
            return "skipped: this kernel has no entry files".to_owned();
        }
        let (text, _) = within(rig.run(python("print('served')"))).await;
        assert_eq!(text, "served\n");
        within(zygote.wait()).await;
        until("nothing is left of it", || processes(&rig) == 0).await;
        String::new()
    });
}

/// It reports itself that it is ready, and takes the one order.
const CHURN: &str = "
import os, signal, socket
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
control = socket.socket(fileno=os.dup(3))
v1 = any(line.count(':memory:') for line in open('/proc/self/cgroup'))
failed = [] if v1 else ['no entry files']
control.send(b'{\"ready\": {\"failed\": %s, \"threads\": 0}}' % str(failed).replace(chr(39), chr(34)).encode())
order, fds, _, _ = socket.recv_fds(control, 4096, 16)
sync = socket.socket(fileno=fds[0])
setup, given, _, _ = socket.recv_fds(sync, 1 << 18, 16)
entries = given[2:]
# Enough that some always enter between the listing of the group and the kill.
for _ in range(20):
    if os.fork() == 0:
        sync.close()
        while entries:
            try:
                if os.fork(): os._exit(0)
                for entry in entries: os.write(entry, b'0')
            except OSError: pass
sync.close()
while True: signal.pause()
";

/// Resources of a zygote's children count for a host user that owns nothing else, not for root.
#[test]
fn signals_of_a_zygotes_children_count_for_the_hosts_root() {
    escapes_only_without(&["OwnCounts"], |rig| async move {
        let (spec, code) = importing(TIMERS);
        let before = queued();
        let zygote = within(rig.spawner.start_zygote(spec)).await.unwrap();
        let mut child = within(rig.spawner.fork(&zygote, child(&code))).await.unwrap();
        let mut log = std::fs::File::from(child.take_log().unwrap());
        let read = move || std::io::Read::read_exact(&mut log, &mut [0; 5]);
        within(tokio::task::spawn_blocking(read)).await.unwrap().unwrap();
        let after = queued();
        child.kill(End::Killed);
        within(child.wait()).await;
        // Other counts of root change too, but not by so much.
        if after > before + 1000 { format!("ESCAPED: {before}, {after}") } else { String::new() }
    });
}

const TIMERS: &str = "
def attack(listener):
    import ctypes, time
    libc = ctypes.CDLL(None)
    create = getattr(libc, 'timer_create', None) or ctypes.CDLL('librt.so.1').timer_create
    for _ in range(2000): create(1, None, ctypes.byref(ctypes.c_void_p()))
    print('made', flush=True)
    time.sleep(600)
";

/// Pending signals of the user of this process.
fn queued() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("SigQ:")).unwrap();
    line.trim().split('/').next().unwrap().parse().unwrap()
}
