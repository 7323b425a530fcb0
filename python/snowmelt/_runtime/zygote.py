"""The zygote: imports packages once and forks a handler for each order (SOCK 4).

It runs as process 1 of its own sandbox, as user 0 of its own user namespace, and communicates with
the spawner over descriptor 3. Forking is native (`runtimes/native/snowmelt_zygote.c`): the zygote
runs no Python after its first child, and a child runs none before its set-up is done, so that
neither writes the memory that they share. Invariant: it stays single-threaded. It needs only the
standard library, and the spawner contains it, so both always have the same version.
"""

import ctypes
import gc
import importlib
import json
import os
import socket
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import enter  # noqa: E402
import fault_probe  # noqa: E402

del sys.path[0]

CONTROL_FD = 3
LONGEST_PACKET = 256 << 10
MAX_FAILED, MAX_MISSED = 50, 2000

HUGE_PAGE = 2 << 20
MADV_COLLAPSE = 25
HANDLER = 0

_pointer = ctypes.c_void_p


class Hooks(ctypes.Structure):
    """struct snowmelt_hooks: the interpreter's hooks around a fork, as `os.fork` runs them."""

    _fields_ = (
        ("fork", _pointer),
        ("before", _pointer),
        ("after_in_parent", _pointer),
        ("after_in_child", _pointer),
        ("warm_in_child", _pointer),
    )


class Order(ctypes.Structure):
    """struct snowmelt_order."""

    _fields_ = (("entries", _pointer), ("length", ctypes.c_ulong))


class ArenaAllocator(ctypes.Structure):
    """PyObjectArenaAllocator: the interpreter's source of memory for small objects."""

    _fields_ = (("context", _pointer), ("alloc", _pointer), ("free", _pointer))


# Runs with the interpreter's lock, which is never released.
warm = ctypes.PYFUNCTYPE(None)(enter.warm)
libc = ctypes.CDLL(None, use_errno=True)
# Holds the interpreter's lock all the time: there is no other thread.
native = ctypes.PyDLL(os.path.join(HERE, "zygote.so"))


def main() -> None:
    gather_arenas()
    sys.dont_write_bytecode = True
    sys.argv = [""]
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)
    missed, settled = Missed(), set()
    while True:
        control = socket.socket(fileno=CONTROL_FD)
        begin = json.loads(control.recv(LONGEST_PACKET))
        ready = warm_up(begin, missed)
        arrange_memory(settled, [found["module"] for found in ready["imported"]])
        control.send(json.dumps({"ready": ready}).encode())
        control.detach()
        kind, entries = serve()
        if kind == HANDLER:
            os._exit(enter.begin(entries))


def address(function: object) -> int | None:
    return ctypes.cast(function, _pointer).value  # type: ignore[arg-type]


def gather_arenas() -> None:
    """Makes the interpreter put its small objects where huge pages can be made of them."""
    functions = native.snowmelt_arena_alloc, native.snowmelt_arena_free
    allocator = ArenaAllocator(None, *map(address, functions))
    ctypes.pythonapi.PyObject_SetArenaAllocator(ctypes.byref(allocator))


def warm_up(begin: dict, missed: "Missed") -> dict:
    """Imports the modules, and returns the report."""
    sys.path[:0] = begin["python_path"]
    importlib.invalidate_caches()
    sys.meta_path.append(missed)
    imported, failed = import_all(begin["imports"])
    sys.meta_path.remove(missed)
    return {
        "failed": failed[:MAX_FAILED],
        "threads": len(os.listdir("/proc/self/task")) - 1,
        "imported": imported,
        "missed": sorted(missed.names)[:MAX_MISSED],
    }


class Missed:
    """The last of the finders, which is asked only if all others failed. It finds nothing and
    records the names, because a package that looked in vain for another may have chosen a
    fallback."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def find_spec(self, name: str, path: object = None, _target: object = None) -> None:
        if path is None:
            self.names.add(name[:100])


def import_all(modules: list[str]) -> tuple[list[dict], list[str]]:
    """Imports what can be imported; the other imports are repeated, and raise, in the children."""
    imported, failed = [], []
    before = own_memory()
    for module in modules:
        started = time.perf_counter_ns()
        try:
            importlib.import_module(module)
        except BaseException as error:  # noqa: BLE001 a module may raise anything, even exit
            text = f"{module}: {type(error).__name__}: {error}"[:500]
            failed.append(text)
            print(f"zygote: cannot import {text}", file=sys.stderr, flush=True)
            continue
        us = (time.perf_counter_ns() - started) // 1000
        after = own_memory()
        imported.append({"module": module, "us": us, "bytes": max(after - before, 0)})
        before = after
    return imported, failed


def own_memory() -> int:
    """Bytes of memory that only this process uses."""
    with open("/proc/self/smaps_rollup") as lines:
        for line in lines:
            if line.startswith("Private_Dirty:"):
                return int(line.split()[1]) * 1024
    return 0


def arrange_memory(settled: set[int], imported: list[str]) -> None:
    """Arranges the memory so that children share as much as possible, and probes what they need of
    it. `settled` are the huge pages that were made here, or in a zygote above, before: those are
    shared with it, and would be copied."""
    enter.prepare()
    # Without this, the first collection in a child would touch, and so copy, every object.
    gc.collect()
    gc.freeze()
    # Before there are huge pages: writes while a probe child shares them would split them.
    enter.touched[:] = fault_probe.probe(imported, unused())
    gc.freeze()
    # A huge page is one entry of the page table, which is what a fork copies.
    for page in huge_pages():
        if page not in settled:
            libc.madvise(_pointer(page), ctypes.c_size_t(HUGE_PAGE), MADV_COLLAPSE)
            settled.add(page)
    sys.stdout.flush()
    sys.stderr.flush()


def huge_pages() -> list[int]:
    """The huge pages that fit into the anonymous writable memory of this process."""
    pages = []
    for start, end in fault_probe.mappings(unused(), fault_probe.is_anonymous):
        first = -(-start // HUGE_PAGE) * HUGE_PAGE
        pages.extend(range(first, end - HUGE_PAGE + 1, HUGE_PAGE))
    return pages


def unused() -> tuple[int, int]:
    """Addresses that are reserved for small objects and still empty, 64 GiB, to be skipped."""
    start, end = ctypes.c_ulong(), ctypes.c_ulong()
    native.snowmelt_arenas_unused(ctypes.byref(start), ctypes.byref(end))
    return start.value, end.value


def serve() -> tuple[int, bytes]:
    """Forks on order; returns in a child, with its kind and its entries."""
    python = ctypes.pythonapi
    functions = (
        libc.fork,
        python.PyOS_BeforeFork,
        python.PyOS_AfterFork_Parent,
        python.PyOS_AfterFork_Child,
        warm,
    )
    hooks = Hooks(*map(address, functions))
    order = Order()
    kind = native.snowmelt_serve(CONTROL_FD, ctypes.byref(hooks), ctypes.byref(order))
    return kind, ctypes.string_at(order.entries, order.length)


if __name__ == "__main__":
    main()
