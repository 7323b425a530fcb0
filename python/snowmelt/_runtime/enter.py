"""How a forked child of a zygote lands in a sandbox of its own (SOCK 4.2, relocation).

The spawner has made the root, the scratch, the channel, the log and the control group, and sends
them as descriptors; the child takes its own user id, leaves the zygote's namespaces, attaches the
mounts, gives up every privilege and calls its entry. Its invariant is the one of the spawner's
own children: privileges only go down, and the system call filter comes last.
"""

import ctypes
import importlib
import os
import platform
import resource
import socket
import struct
import sys

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000

AT_FDCWD = -100
MNT_DETACH = 2
MOVE_MOUNT_F_EMPTY_PATH = 0x4
OPEN_TREE_CLONE = 0x1
FSCONFIG_CMD_CREATE = 6
# Read-only, nosuid, nodev, noexec.
MOUNT_ATTR_INERT = 0x1 | 0x2 | 0x4 | 0x8

PR_SET_DUMPABLE = 4
PR_SET_SECCOMP = 22
PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_CLEAR_ALL = 4
SECCOMP_MODE_FILTER = 2
CAPABILITY_VERSION_3 = 0x20080522

SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}.get(platform.machine(), -1)
SYS_OPEN_TREE = 428
SYS_MOVE_MOUNT = 429
SYS_FSOPEN = 430
SYS_FSCONFIG = 431
SYS_FSMOUNT = 432
SYS_CLOSE_RANGE = 436
SYS_LANDLOCK_CREATE_RULESET = 444
SYS_LANDLOCK_ADD_RULE = 445
SYS_LANDLOCK_RESTRICT_SELF = 446
LANDLOCK_VERSION = 1
LANDLOCK_RULE_PATH_BENEATH = 1
# Write, remove, make, move; then what later versions know: truncate (3), control devices (5).
LANDLOCK_FILES = 0x2 | 0x1FF << 4 | 1 << 13
LANDLOCK_LATER = ((3, 1 << 14), (5, 1 << 15))
LANDLOCK_MAKE_DEVICES = 1 << 6 | 1 << 11
# Abstract unix sockets and signals (6).
LANDLOCK_SCOPES = 0x1 | 0x2

CHANNEL_FD = 3
USER = 1000
# Files of /proc about the whole machine that a sandbox has no business with, as far as this kernel
# has them: the zygote looks once for all its children.
MASKED = [name for name in ("kcore", "keys", "timer_list") if os.path.exists(f"/proc/{name}")]

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


class Fault(Exception):
    """A step that failed, and the kernel's error number."""

    def __init__(self, step: str, number: int) -> None:
        super().__init__(step, number)
        self.step, self.number = step, number


def check(step: str, result: int) -> int:
    if result < 0:
        raise Fault(step, ctypes.get_errno())
    return result


def syscall(number: int, *arguments) -> int:
    wide = (ctypes.c_long(a) if isinstance(a, int) else a for a in arguments)
    return libc.syscall(ctypes.c_long(number), *wide)


def new_pid_namespace() -> None:
    """The next process that is forked begins a pid namespace."""
    if libc.unshare(CLONE_NEWPID) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


class PidNamespace:
    """The pid namespace that this process lives in, to fork into again."""

    def __init__(self) -> None:
        self.fd = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)

    def go_back(self) -> None:
        if libc.setns(self.fd, CLONE_NEWPID) < 0:
            # The next child would be no process 1: better no zygote than that.
            os._exit(1)


class Filter(ctypes.Structure):
    """A compiled system call policy as the kernel takes it (struct sock_fprog). The zygote makes
    it once: to make a class costs a child more than to install the filter."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))

    def __init__(self, instructions: bytes) -> None:
        super().__init__(len(instructions) // 8, instructions)

    def install(self) -> None:
        installed = libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(self), 0, 0)
        check("install the system call policy", installed)


def become(order: dict, fds: list[int], policy: Filter) -> None:
    """Turns this freshly forked process into the sandbox of the order; never returns."""
    root, scratch, listener, log, sync_fd, *doors = fds
    sync = socket.socket(fileno=sync_fd)
    try:
        enter_group(doors)
        proc = make_proc()
        take_identity(order["number"], sync)
        enter_root(root, scratch, proc)
        wait_for_go(sync)
        drop_privileges(order["open_files"])
        refresh(order)
        place_descriptors(listener, log)
        policy.install()
    except BaseException as error:  # noqa: BLE001 whatever it is, the spawner must hear of it
        report(sync, error)
        os._exit(1)
    sync.detach()
    # Closes the spawner's socket too, which says that all is done.
    syscall(SYS_CLOSE_RANGE, CHANNEL_FD + 1, 0xFFFFFFFF, 0)
    os._exit(call(order["entry"]))


def enter_group(doors: list[int]) -> None:
    """Moves itself into its control group; the spawner checks that it did. With version 2 of
    control groups there are no doors, and the spawner moves it."""
    for door in doors:
        os.write(door, b"0")


def make_proc() -> int:
    """A /proc of the child's pid namespace, mounted nowhere. That namespace belongs to the
    zygote's user namespace, so this comes before the child leaves it."""
    context = check("make /proc", syscall(SYS_FSOPEN, b"proc", 0))
    check("make /proc", syscall(SYS_FSCONFIG, context, FSCONFIG_CMD_CREATE, None, None, 0))
    proc = check("make /proc", syscall(SYS_FSMOUNT, context, 0, MOUNT_ATTR_INERT))
    os.close(context)
    return proc


def take_identity(number: int, sync: socket.socket) -> None:
    """Takes the child's own user id and tells the spawner, which learns the process from it."""
    os.setresgid(number, number, number)
    os.setresuid(number, number, number)
    # A process that changed its user may not write its own id maps unless it says so.
    check("stay dumpable", libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0))
    sync.send(b"here")
    kinds = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS
    check("leave the zygote's namespaces", libc.unshare(kinds))
    write("/proc/self/setgroups", "deny")
    write("/proc/self/uid_map", f"{USER} {number} 1")
    write("/proc/self/gid_map", f"{USER} {number} 1")


def write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    os.write(fd, text.encode())
    os.close(fd)


def enter_root(root: int, scratch: int, proc: int) -> None:
    """Attaches root, scratch and /proc, and lets go of everything else."""
    attach("attach the root", root, AT_FDCWD, b"/mnt")
    attach("attach the scratch", scratch, root, b"tmp")
    attach("attach /proc", proc, root, b"proc")
    for name in MASKED:
        null = syscall(SYS_OPEN_TREE, root, b"dev/null", OPEN_TREE_CLONE)
        attach("mask /proc", check("mask /proc", null), proc, name.encode())
    os.fchdir(root)
    check("enter the root", syscall(SYS_PIVOT_ROOT, b".", b"."))
    check("let go of the zygote's root", libc.umount2(b".", MNT_DETACH))
    os.chdir("/tmp")


def attach(step: str, tree: int, folder: int, path: bytes) -> None:
    flags = MOVE_MOUNT_F_EMPTY_PATH
    check(step, syscall(SYS_MOVE_MOUNT, tree, b"", folder, path, flags))


def wait_for_go(sync: socket.socket) -> None:
    if not sync.recv(8):
        os._exit(1)
    # Now that the control group is the child's own, it is the root of what it sees.
    check("leave the control group namespace", libc.unshare(CLONE_NEWCGROUP))


def drop_privileges(open_files: int) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = open_files if most == resource.RLIM_INFINITY else min(open_files, most)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    capability = 0
    while libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) == 0:
        capability += 1
    ambient = libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    check("clear ambient capabilities", ambient)
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    check("drop capabilities", libc.capset(header, (ctypes.c_uint32 * 6)()))
    check("renounce new privileges", libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    FENCE.put_up()


class Fence:
    """What a child may change by Landlock, as far as this kernel can: files only beneath /tmp, of
    devices only those of /dev, and neither abstract unix sockets nor processes outside. A second
    fence; `snowmelt_kernel::landlock::confine` is the same for programs. The zygote prepares it
    for all children."""

    def __init__(self) -> None:
        version = syscall(SYS_LANDLOCK_CREATE_RULESET, None, 0, LANDLOCK_VERSION)
        later = sum(right for since, right in LANDLOCK_LATER if version >= since)
        files, scopes = LANDLOCK_FILES | later, LANDLOCK_SCOPES if version >= 6 else 0
        # An older version forbids all moves between folders, which breaks programs.
        self.is_there = version >= 2
        self.ruleset = (ctypes.c_uint64 * 3)(files, 0, scopes)
        self.rules = (
            ("/tmp", files & ~(LANDLOCK_MAKE_DEVICES | 1 << 15)),
            ("/dev", files & (0x2 | 1 << 14 | 1 << 15)),
        )

    def put_up(self) -> None:
        if not self.is_there:
            return
        step, size = "cut it off from files and neighbours", ctypes.sizeof(self.ruleset)
        fd = check(step, libc.syscall(SYS_LANDLOCK_CREATE_RULESET, self.ruleset, size, 0))
        for folder, allowed in self.rules:
            parent = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            rule = struct.pack("=Qi", allowed, parent)
            kind = LANDLOCK_RULE_PATH_BENEATH
            check(step, libc.syscall(SYS_LANDLOCK_ADD_RULE, fd, kind, rule, 0))
            os.close(parent)
        check(step, libc.syscall(SYS_LANDLOCK_RESTRICT_SELF, fd, 0))
        os.close(fd)


FENCE = Fence()


def place_descriptors(listener: int, log: int) -> None:
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.dup2(listener, CHANNEL_FD, inheritable=False)


def refresh(order: dict) -> None:
    """Makes what was the zygote's the child's own: environment, import path, randomness."""
    os.environ.clear()
    os.environ.update(order["env"])
    sys.path[:0] = order["sys_path"]
    for path in order["sys_path"]:
        # The zygote may have seen another folder there, or none. Not invalidate_caches, which
        # imports a tenth of the standard library.
        sys.path_importer_cache.pop(path, None)
    reseed()


def reseed() -> None:
    """Gives each child randomness of its own. The interpreter's `random` does so at a fork by
    itself; others know a fork by the process id, which is 1 in zygote and child alike."""
    if "ssl" in sys.modules:
        sys.modules["ssl"].RAND_add(os.urandom(32), 32.0)
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()


def report(sync: socket.socket, error: BaseException) -> None:
    number = getattr(error, "number", None) or getattr(error, "errno", None) or 0
    step = error.step if isinstance(error, Fault) else f"land: {type(error).__name__}: {error}"
    try:
        sync.send(f"fault {number} {step}".encode()[:500])
    except OSError:
        pass


def call(entry: str) -> int:
    """Calls the entry and gives the exit code of the process."""
    module, _, function = entry.partition(":")
    code = 0
    try:
        listener = socket.socket(fileno=CHANNEL_FD)
        getattr(importlib.import_module(module), function)(listener)
    except SystemExit as end:
        code = exit_code(end.code)
    except BaseException:  # noqa: BLE001 as the interpreter does at its top
        sys.excepthook(*sys.exc_info())
        code = 1
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            pass
    return code


def exit_code(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1
