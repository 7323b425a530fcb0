"""The zygote: imports packages once and forks a handler for each order (SOCK 4).

It runs as process 1 of its own sandbox, as user 0 of its own user namespace, and speaks with the
spawner over descriptor 3. Its invariant: it stays single-threaded and does nothing but fork, so
that a child finds exactly what the imports left. It needs nothing but the standard library, and
the spawner brings it along, so both are always of one version.
"""

import gc
import importlib
import json
import os
import select
import socket
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import enter  # noqa: E402

del sys.path[0]

CONTROL_FD = 3
LONGEST_PACKET = 256 << 10
MOST_FDS = 16


def main() -> None:
    control = socket.socket(fileno=CONTROL_FD)
    begin = json.loads(control.recv(LONGEST_PACKET))
    policy = enter.Filter(control.recv(LONGEST_PACKET))
    sys.path[:0] = begin["python_path"]
    sys.dont_write_bytecode = True
    sys.argv = [""]
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)
    failed = import_all(begin["imports"])
    home = enter.PidNamespace()
    # What is here now is shared by all children: without this, the first collection in a child
    # would touch, and so copy, every object.
    gc.collect()
    gc.freeze()
    ready = {"failed": failed, "threads": count_threads() - 1}
    control.send(json.dumps({"ready": ready}).encode())
    serve(control, home, policy)


def import_all(modules: list[str]) -> list[str]:
    """Imports what can be imported; the children raise the error of the rest themselves."""
    failed = []
    for module in modules:
        try:
            importlib.import_module(module)
        except BaseException as error:  # noqa: BLE001 a module may raise anything, even exit
            text = f"{module}: {type(error).__name__}: {error}"[:500]
            failed.append(text)
            print(f"zygote: cannot import {text}", file=sys.stderr, flush=True)
    return failed[:50]


def count_threads() -> int:
    return len(os.listdir("/proc/self/task"))


def serve(control: socket.socket, home: enter.PidNamespace, policy: enter.Filter) -> None:
    """Forks on order, and says how children ended, until the spawner closes its end."""
    children = {}  # pidfd: (pid, token)
    poll = select.poll()
    poll.register(control, select.POLLIN)
    while True:
        for fd, _ in poll.poll():
            if fd != control.fileno():
                poll.unregister(fd)
                report_end(control, *children.pop(fd))
                os.close(fd)
                continue
            packet, fds, _, _ = socket.recv_fds(control, LONGEST_PACKET, MOST_FDS)
            if not packet:
                os._exit(0)
            order = json.loads(packet)
            try:
                pid = fork(home, policy, order, fds)
            except OSError as error:
                failed = {"token": order["token"], "step": "fork", "errno": error.errno or 0}
                say(control, failed=failed)
                continue
            finally:
                for fd in fds:
                    os.close(fd)
            pidfd = os.pidfd_open(pid)
            children[pidfd] = (pid, order["token"])
            poll.register(pidfd, select.POLLIN)


def fork(home: enter.PidNamespace, policy: enter.Filter, order: dict, fds: list[int]) -> int:
    """Forks one child, in a pid namespace of its own, and gives its process id here."""
    sys.stdout.flush()
    sys.stderr.flush()
    enter.new_pid_namespace()
    try:
        # The interpreter's own fork, so that handlers of libraries run in parent and child.
        pid = os.fork()
    except OSError:
        home.go_back()
        raise
    if pid == 0:
        enter.become(order, fds, policy)
    home.go_back()
    return pid


def report_end(control: socket.socket, pid: int, token: int) -> None:
    _, status, usage = os.wait4(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    cpu_us = int((usage.ru_utime + usage.ru_stime) * 1_000_000)
    say(control, exited={"token": token, "code": code, "cpu_us": cpu_us})


def say(control: socket.socket, **report: dict) -> None:
    control.send(json.dumps(report).encode())


if __name__ == "__main__":
    main()
