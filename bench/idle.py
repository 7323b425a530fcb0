"""The cost of an idle platform."""

import subprocess
import tempfile
import time
from pathlib import Path

from common.figures import Section
from common.machine_state import MachineState
from common.paths import SNOWMELT, shown, tpch
from common.server import Server

LIMIT_MIB = 60


def _memory_of_tree(pid: int) -> dict[str, int]:
    """Proportional set size of a process and its descendants, by command line."""
    found: dict[str, int] = {}
    todo = [pid]
    while todo:
        one = todo.pop()
        folder = Path(f"/proc/{one}")
        words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
        lines = (folder / "smaps_rollup").read_text().splitlines()
        size = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
        name = " ".join([Path(words[0]).name, *words[1:3]]).strip()
        found[f"{name} ({one})"] = size
        for task in (folder / "task").iterdir():
            todo += map(int, (task / "children").read_text().split())
    return found


def run() -> Section:
    section = Section("Idle cost")
    lineitem = tpch("1", ["lineitem"]) / "lineitem"
    sql = f"select count(*) from '{shown(lineitem)}'"
    before = MachineState()
    subprocess.run([SNOWMELT, "sql", sql, "--embedded"], check=True, stdout=subprocess.DEVNULL)
    left = before.new_since()
    section.promise(
        "after `snowmelt sql`", "no process", str(left) if left else "nothing left", not left
    )
    with tempfile.TemporaryDirectory(prefix="sm-") as folder, Server(Path(folder)) as server:
        time.sleep(2)
        memory = _memory_of_tree(server.status()["pid"])
        said = server.status()["memory_bytes"]
    total = sum(memory.values()) / 2**20
    section.say("Proportional set size of `snowmelt up` and all that it started, after 2 s.")
    section.table(
        ["process", "MiB"], [[name, f"{size / 2**20:.1f}"] for name, size in memory.items()]
    )
    section.say(f"`snowmelt status` says {said / 2**20:.1f} MiB of resident memory.")
    section.commands += [f'snowmelt sql "{sql}" --embedded', "snowmelt up", "snowmelt status"]
    section.promise(
        "`snowmelt up`, idle", f"under {LIMIT_MIB} MiB", f"{total:.1f} MiB", total < LIMIT_MIB
    )
    return section
