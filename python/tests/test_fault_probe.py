"""The fault probe reports the pages that a child of its zygote will write and read. Each test runs
in a separate process, which forks and freezes its memory."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

PYTHON = Path(__file__).resolve().parents[1]
PRELUDE = f"""
import json, os, sys
sys.path[:0] = [{str(PYTHON)!r}, {str(PYTHON / "snowmelt" / "_runtime")!r}]
from snowmelt._runtime import preload
import enter, fault_probe

def pages(spans, advice):
    return {{page for start, length, kind in spans if kind == advice
             for page in range(start, start + length, fault_probe.PAGE)}}

def copied(among):
    "The share of these pages of which this process has a copy of its own."
    with open("/proc/self/pagemap", "rb", buffering=0) as table:
        found = 0
        for page in among:
            table.seek(page // fault_probe.PAGE * 8)
            found += bool(int.from_bytes(table.read(8), "little") & fault_probe.EXCLUSIVE)
    return found / len(among)
"""


def run(code: str) -> Any:
    program = PRELUDE + textwrap.dedent(code)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def test_a_child_has_the_pages_that_the_fault_probe_found() -> None:
    (count, before, after), _ = run("""
        enter.prepare()
        enter.touched[:] = fault_probe.probe(["json"])
        known = sorted(pages(enter.touched, fault_probe.POPULATE_WRITE))
        mine, theirs = os.pipe()
        if os.fork() == 0:
            before = copied(known)
            for start, length, advice in enter.touched:
                enter.libc.madvise(enter.ctypes.c_void_p(start), enter.ctypes.c_size_t(length), advice)
            os.write(theirs, json.dumps([len(known), before, copied(known)]).encode())
            os._exit(0)
        os.wait()
        print(os.read(mine, 100).decode())
    """)
    assert count > 50
    assert before < 0.5
    assert after > 0.95


def test_reserved_address_ranges_are_skipped() -> None:
    found, _ = run("""
        import ctypes, mmap
        space = mmap.mmap(-1, 1 << 36, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)
        start = ctypes.addressof(ctypes.c_char.from_buffer(space))
        space[0] = space[1 << 20] = 1
        unused = start + (1 << 20), start + (1 << 36)
        writable = fault_probe.mappings(unused, fault_probe.is_writable)
        print(json.dumps([any(first <= start < last for first, last in writable),
                          any(first < unused[1] and unused[0] < last for first, last in writable)]))
    """)
    assert found == [True, False]


def test_a_zygote_continues_if_the_fault_probe_hangs_or_fails() -> None:
    (hung, failed, left), err = run("""
        fault_probe.TIMEOUT = 0.5
        run = fault_probe.run
        fault_probe.run = lambda imported: __import__("time").sleep(60)
        hung = fault_probe.probe(["json"])
        fault_probe.run = run
        failed = fault_probe.probe(["no_such_module"])
        try:
            left = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            left = None
        print(json.dumps([hung, failed, left]))
    """)
    assert (hung, failed, left) == ([], [], None)
    assert "was not served" in err


def test_the_fault_probe_prints_nothing_and_leaves_no_files() -> None:
    (spans, modules, files), err = run("""
        before = set(sys.modules)
        spans = fault_probe.probe(["json"])
        new = sorted(set(sys.modules) - before)
        print(json.dumps([len(spans), new, os.path.exists(fault_probe.FILE)]))
    """)
    assert spans > 0
    assert (modules, files, err) == ([], False, "")
